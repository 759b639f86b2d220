//! Ports of this machine to which no URL of others may lead, such as those of the process itself.

use std::{net::IpAddr, str::FromStr};

use url::{Host, Url};

/// Ports on loopback that are closed to the URLs of servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClosedPorts {
    ports: Vec<u16>,
    any_name: bool,
}

impl ClosedPorts {
    /// Returns a check of these ports. With `any_name` a host name counts as one of this machine: it is used where names that
    /// resolve to loopback are connected to, and the address is only known when the connection is made.
    pub fn new(ports: Vec<u16>, any_name: bool) -> Self {
        Self { ports, any_name }
    }

    /// Adds the ports of another check.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.ports.extend(other.ports);
        Self { any_name: self.any_name || other.any_name, ..self }
    }

    /// Checks where a URL leads.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn check(&self, url: &Url) -> Result<(), String> {
        let port = url.port_or_known_default().unwrap_or_default();
        if !self.ports.contains(&port) {
            return Ok(());
        }
        match url.host() {
            _ if names_loopback(url) => Err(format!("port {port} on loopback belongs to Récif itself")),
            Some(Host::Domain(name)) if self.any_name => {
                Err(format!("port {port} of this machine, of which {name} may be a name, belongs to Récif itself"))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for ClosedPorts {
    type Err = &'static str;

    /// Reads ports separated by commas, with or without spaces. An empty text has none.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = |port: &str| port.trim().parse::<u16>().ok().filter(|port| *port > 0);
        let ports: Option<Vec<u16>> = match text.trim() {
            "" => Some(Vec::new()),
            listed => listed.split(',').map(read).collect(),
        };
        ports.map(|ports| Self::new(ports, false)).ok_or("numbers from 1 to 65535, separated by commas")
    }
}

/// Reports whether the host of `url` is literally a loopback address or name.
fn names_loopback(url: &Url) -> bool {
    let is_loopback = |address: IpAddr| {
        let address = address.to_canonical();
        address.is_loopback() || address.is_unspecified()
    };
    match url.host() {
        Some(Host::Ipv4(address)) => is_loopback(address.into()),
        Some(Host::Ipv6(address)) => is_loopback(address.into()),
        Some(Host::Domain(name)) => is_localhost(name),
        None => false,
    }
}

/// Reports whether the name is always loopback (RFC 6761, section 6.3).
pub fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_port_is_refused_however_this_machine_is_named() {
        let here = ClosedPorts::new(vec![80, 8780], false);
        let dev = ClosedPorts::new(vec![80, 8780], true);
        for (url, plain, local) in [
            ("http://127.0.0.1:8780/", false, false),
            ("http://127.9.9.9:8780/", false, false),
            ("http://0x7f.1:8780/", false, false),
            ("http://[::1]:8780/", false, false),
            ("http://[::]:8780/", false, false),
            ("http://[::ffff:127.0.0.1]:8780/", false, false),
            ("http://0.0.0.0:8780/", false, false),
            ("http://localhost:8780/", false, false),
            ("http://LOCALHOST.:8780/", false, false),
            ("http://a.localhost:8780/", false, false),
            ("http://localhost/", false, false),
            ("https://localhost:8780/", false, false),
            ("http://my.machine:8780/", true, false),
            ("http://192.0.2.1:8780/", true, true),
            ("http://my.machine:3000/", true, true),
            ("http://127.0.0.1:3000/", true, true),
            ("https://localhost/", true, true),
        ] {
            let parsed = Url::parse(url).unwrap();
            assert_eq!(here.check(&parsed).is_ok(), plain, "{url}");
            assert_eq!(dev.check(&parsed).is_ok(), local, "{url}");
            assert_eq!(ClosedPorts::default().check(&parsed), Ok(()), "{url}");
        }
    }

    #[test]
    fn ports_are_listed_with_commas() {
        for (text, expected) in [
            ("", Some(vec![])),
            (" ", Some(vec![])),
            ("8780", Some(vec![8780])),
            (" 8780 , 44321,1 ", Some(vec![8780, 44321, 1])),
            ("65535", Some(vec![65535])),
            ("8780,", None),
            (",", None),
            ("0", None),
            ("65536", None),
            ("-1", None),
            ("http", None),
            ("8780 44321", None),
        ] {
            assert_eq!(text.parse().ok(), expected.map(|ports| ClosedPorts::new(ports, false)), "{text:?}");
        }
        let both = ClosedPorts::new(vec![1], true).and("2".parse().unwrap());
        assert_eq!(both, ClosedPorts::new(vec![1, 2], true));
    }
}
