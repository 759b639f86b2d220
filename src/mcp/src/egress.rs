//! Egress policy: deny list of addresses for requests to servers of others, and the HTTP clients of the operator that enforce it.
//!
//! A RemoteMCPServer makes the operator send requests, and a Tool makes a runner do so. Against server-side request forgery
//! ([SSRF](https://owasp.org/www-community/attacks/Server_Side_Request_Forgery)) the metadata services of clouds and link-local
//! addresses are denied to both; each adds its own rules. An address is checked when a connection is made to it and not before,
//! so a name that resolves to another address the second time (DNS rebinding) is no way around it. The operator uses no proxy,
//! which would resolve names by itself. Redirects stay at their origin, and so do the credentials in headers.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, StatusCode};
use url::{Host, Url};

use super::http_client::build_client;

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

/// Error: connections to this address are denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its address {address} {why}")]
pub struct DeniedAddress {
    /// Address of the connection.
    pub address: IpAddr,
    /// Reason, as the rest of a sentence after "its address 10.0.0.1 ".
    pub why: String,
}

/// Policy that admits or denies a connection, given the host as it is written in a URL and an address of it.
pub type AddressPolicy = Arc<dyn Fn(&str, IpAddr) -> Result<(), DeniedAddress> + Send + Sync>;

/// Checks an address that is written in a URL: such an address is never resolved, so [`DnsResolver`] does not see it.
///
/// # Errors
/// [`DeniedAddress`].
pub fn check_url(url: &Url, address_policy: &AddressPolicy) -> Result<(), DeniedAddress> {
    match url.host() {
        Some(Host::Ipv4(address)) => address_policy("", address.into()),
        Some(Host::Ipv6(address)) => address_policy("", address.into()),
        _ => Ok(()),
    }
}

/// Reason why no HTTP client can be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientBuildError {
    /// The certificates cannot be read.
    #[error("the certificates cannot be read: {0}")]
    Certificates(String),
    /// Anything else.
    #[error("no HTTP client: {0}")]
    Other(String),
}

/// Verification of a server's certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// By the system's certificate authorities.
    #[default]
    System,
    /// By these, in PEM, besides the system's.
    Additional(Vec<u8>),
    /// No verification.
    Unverified,
}

impl Trust {
    /// Returns a function that configures a client for this verification.
    ///
    /// # Errors
    /// [`ClientBuildError::Certificates`].
    pub fn client_config(&self) -> Result<impl Fn(ClientBuilder) -> ClientBuilder + use<>, ClientBuildError> {
        let unread = |error: reqwest::Error| ClientBuildError::Certificates(super::error_text::causes(&error));
        let certificates = match self {
            Self::Additional(pem) => Certificate::from_pem_bundle(pem).map_err(unread)?,
            Self::System | Self::Unverified => Vec::new(),
        };
        if certificates.is_empty() && matches!(self, Self::Additional(_)) {
            return Err(ClientBuildError::Certificates("it holds no certificate in PEM form".into()));
        }
        let anyone = *self == Self::Unverified;
        Ok(move |builder: ClientBuilder| match certificates.is_empty() {
            true => builder.tls_danger_accept_invalid_certs(anyone),
            false => builder.tls_certs_merge(certificates.clone()),
        })
    }
}

/// HTTP clients of discoveries.
pub struct EgressClients {
    policy: AddressPolicy,
    /// Cached clients, this one and the next: loading the system's certificates takes milliseconds.
    system: Mutex<Option<Client>>,
    unverified: Mutex<Option<Client>>,
}

impl EgressClients {
    /// Returns clients that do not connect to addresses in these ranges.
    pub fn new(denied: Vec<Cidr>) -> Self {
        let address_policy = move |_: &str, address| match range_of(&denied, address) {
            Some(range) => {
                let why = format!("is in {range}, which --mcp-deny-cidr of the operator denies");
                Err(DeniedAddress { address, why })
            }
            None => Ok(()),
        };
        Self { policy: Arc::new(address_policy), system: Mutex::default(), unverified: Mutex::default() }
    }

    /// Returns the client for servers with this verification.
    ///
    /// # Errors
    /// [`ClientBuildError`].
    pub fn client(&self, trust: &Trust) -> Result<Client, ClientBuildError> {
        let address_policy = trust.client_config()?;
        match trust {
            Trust::System => self.cached(&self.system, address_policy),
            Trust::Unverified => self.cached(&self.unverified, address_policy),
            Trust::Additional(_) => self.build(address_policy),
        }
    }

    /// Checks an address that is written in a URL.
    ///
    /// # Errors
    /// [`DeniedAddress`].
    pub fn check_url(&self, url: &Url) -> Result<(), DeniedAddress> {
        check_url(url, &self.policy)
    }

    fn cached(
        &self,
        place: &Mutex<Option<Client>>,
        with: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client, ClientBuildError> {
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        match place.as_ref() {
            Some(client) => Ok(client.clone()),
            None => Ok(place.insert(self.build(with)?).clone()),
        }
    }

    fn build(&self, with: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, ClientBuildError> {
        let built = build_client("recif-operator", |builder| {
            with(builder)
                .no_proxy()
                .dns_resolver(DnsResolver(self.policy.clone()))
                .redirect(same_origin())
                .pool_idle_timeout(Duration::from_secs(5))
                .pool_max_idle_per_host(2)
        });
        built.map_err(|error| ClientBuildError::Other(error.to_string()))
    }
}

/// Returns the redirect policy: a request is repeated with its method and body (307 and 308) at another path of the same origin,
/// up to five times. Other redirects are not followed.
fn same_origin() -> Policy {
    Policy::custom(|attempt| {
        let stays = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
        let whole = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        if stays && whole && attempt.previous().len() <= 5 { attempt.follow() } else { attempt.stop() }
    })
}

/// DNS resolver of the system that returns only addresses that are not denied.
pub struct DnsResolver(pub AddressPolicy);

impl Resolve for DnsResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let address_policy = self.0.clone();
        Box::pin(async move { Ok(Box::new(lookup(name.as_str(), &address_policy).await?.into_iter()) as Addrs) })
    }
}

/// Resolves a name to those of its addresses that are not denied.
///
/// # Errors
/// The name does not resolve, or [`DeniedAddress`] if all of its addresses are denied.
pub async fn lookup(
    name: &str,
    address_policy: &AddressPolicy,
) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
    let (mut allowed, mut refusal) = (Vec::new(), None);
    for address in tokio::net::lookup_host((name, 0)).await? {
        match address_policy(name, address.ip()) {
            Ok(()) => allowed.push(address),
            Err(denied) => refusal = Some(denied),
        }
    }
    match refusal.filter(|_| allowed.is_empty()) {
        Some(denied) => Err(denied.into()),
        None => Ok(allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_judged_however_they_are_written() {
        let denied = DENIED_RANGES.iter().map(|range| range.parse().unwrap()).collect();
        let reach = EgressClients::new(denied);
        let denies = |url: &str| reach.check_url(&Url::parse(url).unwrap()).is_err();
        for url in [
            "http://169.254.169.254/latest",
            "http://2852039166/",
            "http://0xa9fea9fe/",
            "http://[fe80::1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://[fd00:ec2::254]/",
            "http://[fd00:ec2::23]/",
            "http://[fd20:ce::254]/",
            "http://[64:ff9b::169.254.169.254]/",
            "http://[64:ff9b:1::169.254.169.254]/",
        ] {
            assert!(denies(url), "{url}");
        }
        for url in [
            "http://127.0.0.1/",
            "http://10.0.0.1/",
            "http://169.253.0.1/",
            "http://[fd00::1]/",
            "http://[64:ff9b::8.8.8.8]/",
            "http://a.b/",
        ] {
            assert!(!denies(url), "{url}");
        }
        let own = EgressClients::new(LOOPBACK_RANGES.iter().map(|range| range.parse().unwrap()).collect());
        for url in
            ["http://127.9.9.9/", "http://[::1]/", "http://0.0.0.0/", "http://[::]/", "http://[::ffff:127.0.0.1]/"]
        {
            assert!(own.check_url(&Url::parse(url).unwrap()).is_err(), "{url}");
        }
    }

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
    fn a_nat64_address_of_a_denied_one_is_denied() {
        let denied = DENIED_RANGES.iter().chain(LOOPBACK_RANGES).map(|range| range.parse().unwrap()).collect();
        let reach = EgressClients::new(denied);
        let denies = |url: &str| reach.check_url(&Url::parse(url).unwrap()).is_err();
        for url in [
            "http://[64:ff9b::169.254.169.254]/",
            "http://[64:ff9b::127.0.0.1]/",
            // By a prefix of 48, 56, 64 and 96 bits.
            "http://[64:ff9b:1:a9fe:a9:fe00::]/",
            "http://[64:ff9b:1:a9fe:a9:fe00:8.8.8.8]/",
            "http://[64:ff9b:1:12a9:fe:a9fe::]/",
            "http://[64:ff9b:1:1234:a9:fea9:fe00:0]/",
            "http://[64:ff9b:1:1234:5678:9abc:169.254.169.254]/",
            "http://[64:ff9b:1::127.0.0.1]/",
            "http://[64:ff9b:1:7f00:0:100::]/",
        ] {
            assert!(denies(url), "{url}");
        }
        for url in [
            "http://[64:ff9b::8.8.8.8]/",
            "http://[64:ff9b:1::8.8.8.8]/",
            "http://[64:ff9b:1:808:8:800::]/",
            "http://[64:ff9b:1:8:8:808::]/",
            "http://[64:ff9b:1:0:8:808:800:0]/",
            "http://[64:ff9b:2:a9fe:a9:fe00::]/",
        ] {
            assert!(!denies(url), "{url}");
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
