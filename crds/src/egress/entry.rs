//! One entry of `egress`: its hosts and its port.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use url::Host;

use super::address_range::{AddressRange, number};

/// Port of an entry that names none.
pub(super) const DEFAULT_PORT: u16 = 443;
/// Advice for an entry that cannot be read.
pub(super) const EXAMPLES: &str = "write api.example.com, *.example.com:8443 or 10.1.0.0/16:5432";

/// Entry that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressEntryError(String);

impl fmt::Display for EgressEntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "egress {:?} is no address: {EXAMPLES}", self.0)
    }
}

impl std::error::Error for EgressEntryError {}

/// Hosts and the port of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EgressEntry {
    /// Hosts.
    pub host: EgressHost,
    /// TCP port.
    pub port: u16,
}

/// Hosts of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum EgressHost {
    /// Host of this name, in lower case.
    Name(String),
    /// Every host below this domain, not the domain itself.
    Below(String),
    /// Addresses of this range.
    Range(AddressRange),
}

impl EgressEntry {
    /// Reports whether the entry admits a connection to this host, as it is written in a URL.
    pub fn admits(&self, host: &Host<&str>, port: u16) -> bool {
        self.port == port && self.host.is_host(host)
    }
}

impl EgressHost {
    fn is_host(&self, host: &Host<&str>) -> bool {
        match (self, host) {
            (Self::Name(name), Host::Domain(domain)) => domain.trim_end_matches('.').eq_ignore_ascii_case(name),
            (Self::Below(parent), Host::Domain(domain)) => {
                let domain = domain.trim_end_matches('.').to_ascii_lowercase();
                domain.strip_suffix(parent.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (Self::Range(range), Host::Ipv4(address)) => range.contains((*address).into()),
            (Self::Range(range), Host::Ipv6(address)) => range.contains((*address).into()),
            _ => false,
        }
    }
}

impl FromStr for EgressEntry {
    type Err = EgressEntryError;

    fn from_str(text: &str) -> Result<Self, EgressEntryError> {
        parse(text).ok_or_else(|| EgressEntryError(text.to_owned()))
    }
}

impl fmt::Display for EgressEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            EgressHost::Name(name) => write!(f, "{name}:{}", self.port),
            EgressHost::Below(parent) => write!(f, "*.{parent}:{}", self.port),
            EgressHost::Range(range) if range.is_ipv4() => write!(f, "{range}:{}", self.port),
            EgressHost::Range(range) => write!(f, "[{range}]:{}", self.port),
        }
    }
}

impl From<EgressEntry> for String {
    fn from(entry: EgressEntry) -> Self {
        entry.to_string()
    }
}

impl TryFrom<String> for EgressEntry {
    type Error = EgressEntryError;

    fn try_from(text: String) -> Result<Self, EgressEntryError> {
        text.parse()
    }
}

fn parse(text: &str) -> Option<EgressEntry> {
    if let Some(rest) = text.strip_prefix('[') {
        let (range, port) = rest.split_once(']')?;
        let range = range.parse::<AddressRange>().ok().filter(|range| !range.is_ipv4())?;
        let port = if port.is_empty() { DEFAULT_PORT } else { port_number(port.strip_prefix(':')?)? };
        return Some(EgressEntry { host: EgressHost::Range(range), port });
    }
    if text.matches(':').count() > 1 {
        let range = text.parse::<AddressRange>().ok()?;
        return Some(EgressEntry { host: EgressHost::Range(range), port: DEFAULT_PORT });
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, port_number(port)?),
        None => (text, DEFAULT_PORT),
    };
    let host = match (host.parse::<AddressRange>(), host.strip_prefix("*.")) {
        (Ok(range), _) => EgressHost::Range(range),
        (Err(_), Some(parent)) if is_name(parent) => EgressHost::Below(parent.to_ascii_lowercase()),
        (Err(_), None) if is_name(host) => EgressHost::Name(host.to_ascii_lowercase()),
        _ => return None,
    };
    Some(EgressEntry { host, port })
}

/// Reports whether `name` is a DNS name whose last label begins with a letter: otherwise a URL would have an address there.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253 && name.split('.').all(is_label) && last.starts_with(|first: char| first.is_ascii_alphabetic())
}

fn port_number(text: &str) -> Option<u16> {
    number(text).filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    fn shown(text: &str) -> Option<String> {
        text.parse::<EgressEntry>().ok().map(|entry| entry.to_string())
    }

    #[test]
    fn an_entry_is_a_host_a_domain_or_a_range_with_a_port() {
        for (text, expected) in [
            ("api.example.com", "api.example.com:443"),
            ("API.Example.com:8443", "api.example.com:8443"),
            ("*.example.com", "*.example.com:443"),
            ("searxng", "searxng:443"),
            ("my_db.shop.svc:5432", "my_db.shop.svc:5432"),
            ("10.1.2.3", "10.1.2.3/32:443"),
            ("10.1.2.3/16:5432", "10.1.0.0/16:5432"),
            ("0.0.0.0/0:80", "0.0.0.0/0:80"),
            ("2001:db8::1", "[2001:db8::1/128]:443"),
            ("2001:db8::/32", "[2001:db8::/32]:443"),
            ("[2001:db8::/32]:8443", "[2001:db8::/32]:8443"),
            ("[::1]", "[::1/128]:443"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
            assert_eq!(shown(expected).as_deref(), Some(expected), "what is shown can be read");
        }
    }

    #[test]
    fn other_text_is_refused_with_examples() {
        for text in [
            "",
            "*",
            "https://api.example.com",
            "api.example.com/path",
            "api.example.com:0",
            "api.example.com:65536",
            "api.example.com:+80",
            "api.example.com:080",
            "api.*.com",
            "-a.example.com",
            "a..example.com",
            "999.1.1.1",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "[10.0.0.1]:80",
            "[2001:db8::1",
            "2001:db8::/129",
            "::ffff:10.0.0.1",
            "user@example.com",
            "a b",
        ] {
            let error = text.parse::<EgressEntry>().unwrap_err().to_string();
            assert!(error.contains("write api.example.com, *.example.com:8443 or 10.1.0.0/16:5432"), "{error}");
        }
    }

    #[test]
    fn an_entry_admits_its_hosts_at_its_port() {
        let admits = |entry: &str, url: &str| {
            let (entry, url) = (entry.parse::<EgressEntry>().unwrap(), Url::parse(url).unwrap());
            entry.admits(&url.host().unwrap(), url.port_or_known_default().unwrap())
        };
        for (entry, url, expected) in [
            ("example.com", "https://example.com/x", true),
            ("example.com", "https://EXAMPLE.com./x", true),
            ("example.com", "http://example.com/", false),
            ("example.com", "https://api.example.com/", false),
            ("*.example.com", "https://api.example.com/", true),
            ("*.example.com", "https://a.b.example.com/", true),
            ("*.example.com", "https://example.com/", false),
            ("*.example.com", "https://badexample.com/", false),
            ("10.1.0.0/16:80", "http://10.1.255.255/", true),
            ("10.1.0.0/16:80", "http://[::ffff:10.1.0.1]/", true),
            ("10.1.0.0/16:80", "http://10.2.0.1/", false),
            ("2001:db8::/32", "https://[2001:db8:1::1]/", true),
            ("2001:db8::/32", "https://[2001:db9::1]/", false),
            ("0.0.0.0/0", "https://example.com/", false),
        ] {
            assert_eq!(admits(entry, url), expected, "{entry} {url}");
        }
    }
}
