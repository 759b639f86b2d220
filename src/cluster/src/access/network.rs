//! Ranges of IP addresses (CIDR), and the client's address behind trusted proxies (`X-Forwarded-For`).

use std::{net::IpAddr, str::FromStr};

/// Range of IP addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// Text that is no network.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("--trusted-proxies {0}: give networks such as 10.0.0.0/8 or fd00::/8")]
pub struct NetworkParseError(String);

impl FromStr for Network {
    type Err = NetworkParseError;

    fn from_str(text: &str) -> Result<Self, NetworkParseError> {
        let none = || NetworkParseError(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| none())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| none()))?;
        if bits <= most { Ok(Self { address, bits }) } else { Err(none()) }
    }
}

impl Network {
    /// Parses the values of `--trusted-proxies`.
    ///
    /// # Errors
    /// The first text that is no network.
    pub fn parse_all(texts: &[String]) -> Result<Vec<Self>, NetworkParseError> {
        // An empty variable is parsed as a list with one empty name.
        texts.iter().filter(|text| !text.is_empty()).map(|text| text.parse()).collect()
    }

    /// Returns the addresses of these values of `X-Forwarded-For`, nearest first, up to the first text that is no address.
    pub fn hops<'a>(values: &'a [&'a [u8]]) -> impl Iterator<Item = IpAddr> + 'a {
        let hops = values.iter().rev().flat_map(|value| value.rsplit(|byte| *byte == b','));
        hops.map_while(|hop| str::from_utf8(hop.trim_ascii()).ok()?.parse().ok())
    }

    /// Returns the address of the client of a request from `peer`: the first of `peer` and its chain, nearest first, that is no trusted
    /// proxy; `peer` itself if all are.
    pub fn client_address(trusted: &[Self], peer: IpAddr, chain: impl Iterator<Item = IpAddr>) -> IpAddr {
        let trusts = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
        if !trusts(peer) {
            return peer;
        }
        chain.map(|hop| hop.to_canonical()).find(|hop| !trusts(*hop)).unwrap_or(peer)
    }

    /// Reports whether the network contains an address, given in its canonical form.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differs = ours.to_bits() ^ theirs.to_bits();
                differs.checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differs = ours.to_bits() ^ theirs.to_bits();
                differs.checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_their_addresses() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("::1/128", "::1", "127.0.0.1"),
        ] {
            let found: Network = network.parse().unwrap();
            assert!(found.contains(inside.parse().unwrap()) && !found.contains(outside.parse().unwrap()), "{network}");
        }
        let everything: Network = "0.0.0.0/0".parse().unwrap();
        assert!(everything.contains("203.0.113.9".parse().unwrap()));
        for bad in ["10.0.0.0/33", "::/129", "10.0.0/8", "a", "10.0.0.0/", "10.0.0.0/-1"] {
            assert_eq!(bad.parse::<Network>(), Err(NetworkParseError(bad.to_owned())), "{bad}");
        }
        let refused = Network::parse_all(&["10.0.0.0/8".into(), "x".into()]).unwrap_err();
        assert_eq!(refused.to_string(), "--trusted-proxies x: give networks such as 10.0.0.0/8 or fd00::/8");
        assert_eq!(Network::parse_all(&[String::new()]), Ok(Vec::new()));
    }
}
