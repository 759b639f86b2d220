//! Ranges of addresses: those that are denied by default, and the search for the range of an address, however it is written.

use std::net::{IpAddr, Ipv4Addr};

/// Ranges that are denied by default: link-local addresses and the metadata services of clouds.
pub const DENIED_RANGES: &[&str] = &[
    "169.254.0.0/16",
    "fe80::/10",
    // EC2, and its identities of Pods.
    "fd00:ec2::254/128",
    "fd00:ec2::23/128",
    // Google Compute Engine.
    "fd20:ce::254/128",
    // Alibaba, Azure, Oracle.
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
];

/// Ranges of the connecting host itself: loopback, and the unspecified addresses, which the kernel takes for loopback.
pub const LOOPBACK_RANGES: &[&str] = &["127.0.0.0/8", "::1/128", "0.0.0.0/8", "::/128"];

/// Well-known prefix of NAT64 (RFC 6052), `64:ff9b::/96`: the last 32 bits are the IPv4 address to which a gateway translates.
const NAT64_WELL_KNOWN: [u8; 12] = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];
/// Prefix of NAT64 for local use (RFC 8215), `64:ff9b:1::/48`, in which a network picks a prefix of 48, 56, 64 or 96 bits.
const NAT64_LOCAL: [u8; 6] = [0, 0x64, 0xff, 0x9b, 0, 1];

/// Range of IP addresses in CIDR notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    length: u8,
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a range of addresses: write one as 169.254.0.0/16 or fe80::/10");
        let (base, length) = text.split_once('/').ok_or_else(wrong)?;
        let (base, length): (IpAddr, u8) = (base.parse().map_err(|_| wrong())?, length.parse().map_err(|_| wrong())?);
        // An IPv4-mapped range becomes the IPv4 range, as every address that is compared with it does.
        let (before, base) = (base, base.to_canonical());
        let length = if before == base { Some(length) } else { length.checked_sub(96) };
        let most = if base.is_ipv4() { 32 } else { 128 };
        length.filter(|length| *length <= most).map(|length| Self { base, length }).ok_or_else(wrong)
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.length)
    }
}

impl Cidr {
    fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                u32::from(base) & mask == u32::from(address) & mask
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                u128::from(base) & mask == u128::from(address) & mask
            }
            _ => false,
        }
    }
}

/// Returns the first of `ranges` that contains `address`, or an IPv4 address to which NAT64 may translate it.
pub fn range_of(ranges: &[Cidr], address: IpAddr) -> Option<Cidr> {
    let address = address.to_canonical();
    let translated = match address {
        IpAddr::V4(_) => Vec::new(),
        IpAddr::V6(v6) => translations(v6.octets()),
    };
    let is_in = |range: &&Cidr| range.contains(address) || translated.iter().any(|it| range.contains((*it).into()));
    ranges.iter().find(is_in).copied()
}

/// Returns the IPv4 addresses to which NAT64 may translate an address. The length of a local prefix is not known, so each is tried
/// (RFC 6052, section 2.2: octet 8 is skipped).
fn translations(octets: [u8; 16]) -> Vec<Ipv4Addr> {
    if octets.starts_with(&NAT64_WELL_KNOWN) {
        return vec![Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15])];
    }
    if !octets.starts_with(&NAT64_LOCAL) {
        return Vec::new();
    }
    let layouts = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]];
    let found = layouts.into_iter().map(|place| Ipv4Addr::from(place.map(|at: usize| octets[at])));
    // 0.0.0.0/8 is what a wrong length reads from zeros. A packet to it is delivered nowhere.
    found.filter(|found| found.octets()[0] != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_or_refused_with_an_example() {
        for range in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "fe80::/10"] {
            assert_eq!(range.parse::<Cidr>().unwrap().to_string(), range);
        }
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains([1, 2, 3, 4].into()));
        for range in ["10.0.0.0", "10.0.0.0/33", "::/129", "a/8", ""] {
            assert!(range.parse::<Cidr>().unwrap_err().contains("169.254.0.0/16"), "{range}");
        }
    }

    #[test]
    fn an_ipv4_mapped_range_is_the_ipv4_range() {
        let range: Cidr = "::ffff:10.0.0.0/104".parse().unwrap();
        assert_eq!(range, "10.0.0.0/8".parse().unwrap());
        assert!(range.contains([10, 1, 2, 3].into()) && !range.contains([11, 0, 0, 1].into()));
        assert!(range.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert_eq!("::ffff:0:0/96".parse(), "0.0.0.0/0".parse::<Cidr>());
        assert!("::ffff:10.0.0.0/90".parse::<Cidr>().is_err(), "more than the IPv4 addresses");
    }
}
