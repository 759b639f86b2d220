//! Ranges of IP addresses.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// Range of IP addresses; a single address is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressRange {
    /// First address.
    base: IpAddr,
    /// Bits that all addresses share.
    length: u8,
}

impl AddressRange {
    /// Reports whether `address` is in the range; an IPv4-mapped address counts as that of IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.base.is_ipv4() && first_address(address, self.length) == self.base
    }

    /// Reports whether the range is one of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.base.is_ipv4()
    }

    /// Returns the range to which NAT64 maps one of IPv4, by its well-known prefix (RFC 6052); `None` for one of IPv6.
    pub fn nat64(&self) -> Option<Self> {
        let IpAddr::V4(base) = self.base else { return None };
        let base = Ipv6Addr::from((0x0064_ff9b_u128 << 96) | u128::from(u32::from(base)));
        Some(Self { base: base.into(), length: self.length + 96 })
    }

    /// Reports whether the range is every address of its family.
    pub fn is_everything(&self) -> bool {
        self.length == 0
    }
}

/// Returns the first address of the range of `address` whose addresses share `length` bits.
fn first_address(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length.into())).unwrap_or(0);
            Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length.into())).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    }
}

impl From<IpAddr> for AddressRange {
    fn from(address: IpAddr) -> Self {
        let base = address.to_canonical();
        Self { base, length: if base.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = || {
            let (base, length) = match text.split_once('/') {
                Some((base, length)) => (base.parse::<IpAddr>().ok()?, Some(number(length)?)),
                None => (text.parse::<IpAddr>().ok()?, None),
            };
            let most = if base.is_ipv4() { 32 } else { 128 };
            let length = u8::try_from(length.unwrap_or(most)).ok().filter(|length| u16::from(*length) <= most)?;
            (base == base.to_canonical()).then(|| Self { base: first_address(base, length), length })
        };
        range().ok_or_else(|| format!("{text:?} is not a range of addresses: write one as 10.0.0.0/8 or fd00::/8"))
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.length)
    }
}

/// Returns a decimal number without sign and leading zeros.
pub(super) fn number(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ipv4_has_one_of_nat64() {
        let mapped = |text: &str| text.parse::<AddressRange>().unwrap().nat64().map(|range| range.to_string());
        for (range, expected) in [
            ("10.0.0.0/8", Some("64:ff9b::a00:0/104")),
            ("192.0.0.192", Some("64:ff9b::c000:c0/128")),
            ("fc00::/7", None),
        ] {
            assert_eq!(mapped(range).as_deref(), expected, "{range}");
        }
    }
}
