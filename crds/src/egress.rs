//! `egress` of a workload: addresses to which its Pods may connect, besides those that its configuration names.
//!
//! An entry is `host[:port]`, `*.domain[:port]`, or an address or CIDR with `[:port]`; the port is 443 if none is given. An IPv6
//! address with a port stands in brackets. The rule of the schema admits this grammar but for the form of IPv6 addresses, which
//! the operator checks when it accepts the object.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// Variable that holds the addresses for the runtime, as an [`EgressList`] in JSON.
pub const EGRESS_VARIABLE: &str = "RECIF_EGRESS";
/// Most entries of a workload.
const MAX_ENTRIES: usize = 64;
/// Most characters of an entry: a name of 253 with `*.` and a port.
const MAX_LENGTH: usize = 262;
/// Port of an entry that names none.
const DEFAULT_PORT: u16 = 443;
/// Advice for an entry that cannot be read.
const EXAMPLES: &str = "write api.example.com, *.example.com:8443 or 10.1.0.0/16:5432";

/// Returns the schema of the list.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": MAX_ENTRIES,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "maxLength": MAX_LENGTH,
            "x-kubernetes-validations": [{ "rule": rule(), "message": EXAMPLES }],
        },
    })
}

/// Returns the rule on an entry, in CEL. No expression has a backslash or an opening bracket to escape.
fn rule() -> String {
    let port = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])";
    let octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    let word = "[a-zA-Z0-9_]([-a-zA-Z0-9_]*[a-zA-Z0-9_])?";
    let last = "[a-zA-Z]([-a-zA-Z0-9_]*[a-zA-Z0-9_])?";
    let name = ["([*][.])?(", word, "[.])*", last].concat();
    let v4 = [octet, "([.]", octet, "){3}(/(3[0-2]|[12]?[0-9]))?"].concat();
    let v6 = "[0-9a-fA-F]{0,4}(:[0-9a-fA-F]{0,4}){2,7}(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?";
    let plain = ["self.matches('^(", name.as_str(), "|", v4.as_str(), ")(:", port, ")?$')"].concat();
    let bare = ["self.matches('^", v6, "$')"].concat();
    let bracketed = ["(self.startsWith('[') && self.matches('^.", v6, "[]](:", port, ")?$'))"].concat();
    [plain, bare, bracketed].join(" || ")
}

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

/// Range of IP addresses; a single address is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressRange {
    /// First address.
    base: IpAddr,
    /// Bits that all addresses share.
    length: u8,
}

/// Addresses to which the runtime may connect, in [`EGRESS_VARIABLE`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressList {
    /// Entries of the spec.
    #[serde(default)]
    pub listed: Vec<EgressEntry>,
    /// Addresses of tools and models, which the operator adds.
    #[serde(default)]
    pub own: Vec<EgressEntry>,
}

impl EgressList {
    /// Checks the host and port of a URL.
    ///
    /// # Errors
    /// The reason for the refusal, as the rest of a sentence after "refused: ".
    pub fn check(&self, url: &Url) -> Result<(), String> {
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err("the URL has no host".to_owned());
        };
        if self.listed.iter().chain(&self.own).any(|entry| entry.admits(&host, port)) {
            return Ok(());
        }
        let port = if port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
        Err(format!("host {host}{port} is not in the egress list of this agent"))
    }
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

/// Returns a decimal number without sign and leading zeros.
fn number(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn the_list_of_the_runtime_is_read_as_it_was_written() {
        let list =
            EgressList { listed: vec!["*.example.com".parse().unwrap()], own: vec!["10.0.0.1:80".parse().unwrap()] };
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(text, r#"{"listed":["*.example.com:443"],"own":["10.0.0.1/32:80"]}"#);
        assert_eq!(serde_json::from_str::<EgressList>(&text).unwrap(), list);
    }
}
