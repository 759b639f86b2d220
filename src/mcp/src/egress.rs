//! Deny list: where requests to servers of others may go, and the HTTP clients of the operator's.
//!
//! A RemoteMCPServer makes the operator send requests, and a Tool makes a runner, so the metadata services of clouds and
//! link-local addresses are denied to both; each adds its own rules. An address is judged when a connection is made to it
//! and not before, so a name that resolves to another address the second time is no way around it; the operator uses no
//! proxy, which would resolve by itself. Redirects stay at their origin, and so do the credentials in headers.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, ClientBuilder, StatusCode};
use url::{Host, Url};

/// What is denied by default: link-local addresses and the metadata services of clouds.
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

/// Addresses of whoever connects: loopback, and the unspecified ones, which the kernel takes for loopback.
pub const LOOPBACK_RANGES: &[&str] = &["127.0.0.0/8", "::1/128", "0.0.0.0/8", "::/128"];

/// The prefixes whose last 32 bits are an IPv4 address to which a gateway translates (RFC 6052, RFC 8215).
const NAT64: [&str; 2] = ["64:ff9b::/96", "64:ff9b:1::/48"];

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    length: u8,
}

impl std::str::FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no range of addresses: write one as 169.254.0.0/16 or fe80::/10");
        let (base, length) = text.split_once('/').ok_or_else(wrong)?;
        let (base, length): (IpAddr, u8) = (base.parse().map_err(|_| wrong())?, length.parse().map_err(|_| wrong())?);
        let most = if base.is_ipv4() { 32 } else { 128 };
        if length > most { Err(wrong()) } else { Ok(Self { base, length }) }
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

/// The first of `ranges` that holds `address`, or the IPv4 address that it is translated to.
pub fn range_of(ranges: &[Cidr], address: IpAddr) -> Option<Cidr> {
    let address = address.to_canonical();
    let translated = match address {
        IpAddr::V6(v6)
            if NAT64.iter().filter_map(|prefix| prefix.parse::<Cidr>().ok()).any(|it| it.contains(address)) =>
        {
            let [.., a, b, c, d] = v6.octets();
            Some(IpAddr::from([a, b, c, d]))
        }
        _ => None,
    };
    ranges.iter().find(|range| [Some(address), translated].into_iter().flatten().any(|it| range.contains(it))).copied()
}

/// An address that is denied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its address {address} {why}")]
pub struct DeniedAddress {
    /// Where a connection would have gone.
    pub address: IpAddr,
    /// Why not, after "its address 10.0.0.1 ".
    pub why: String,
}

/// Whether a connection may go to the address that a host, as it is written in a URL, has.
pub type AddressPolicy = Arc<dyn Fn(&str, IpAddr) -> Result<(), DeniedAddress> + Send + Sync>;

/// Judges an address that is written in a URL: such a one is never resolved.
///
/// # Errors
/// [`DeniedAddress`].
pub fn check_url(url: &Url, judge: &AddressPolicy) -> Result<(), DeniedAddress> {
    match url.host() {
        Some(Host::Ipv4(address)) => judge("", address.into()),
        Some(Host::Ipv6(address)) => judge("", address.into()),
        _ => Ok(()),
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientBuildError {
    /// The certificates cannot be read.
    #[error("the certificates cannot be read: {0}")]
    Certificates(String),
    /// Anything else.
    #[error("no HTTP client: {0}")]
    Other(String),
}

/// How a server's certificate is judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// By the system's authorities.
    #[default]
    System,
    /// By these, in PEM, besides the system's.
    Additional(Vec<u8>),
    /// Not at all.
    Unverified,
}

impl Trust {
    /// What makes a client judge so.
    ///
    /// # Errors
    /// [`NoClient::Certificates`].
    pub fn client_config(&self) -> Result<impl Fn(ClientBuilder) -> ClientBuilder + use<>, ClientBuildError> {
        let unread = |error: reqwest::Error| ClientBuildError::Certificates(super::error_text::causes(&error));
        let certificates = match self {
            Self::Additional(pem) => Certificate::from_pem_bundle(pem).map_err(unread)?,
            Self::System | Self::Unverified => Vec::new(),
        };
        if certificates.is_empty() && matches!(self, Self::Additional(_)) {
            return Err(ClientBuildError::Certificates("there is no certificate in PEM".into()));
        }
        let anyone = *self == Self::Unverified;
        Ok(move |builder: ClientBuilder| match certificates.is_empty() {
            true => builder.tls_danger_accept_invalid_certs(anyone),
            false => builder.tls_certs_merge(certificates.clone()),
        })
    }
}

/// The HTTP clients of discoveries.
pub struct EgressClients {
    policy: AddressPolicy,
    /// Loading the system's certificates takes milliseconds, so these two are kept.
    system: Mutex<Option<Client>>,
    unverified: Mutex<Option<Client>>,
}

impl EgressClients {
    /// Clients that do not connect to addresses in these ranges.
    pub fn new(denied: Vec<Cidr>) -> Self {
        let judge = move |_: &str, address| match range_of(&denied, address) {
            Some(range) => {
                let why = format!("is in {range}, which --mcp-deny-cidr of the operator denies");
                Err(DeniedAddress { address, why })
            }
            None => Ok(()),
        };
        Self { policy: Arc::new(judge), system: Mutex::default(), unverified: Mutex::default() }
    }

    /// The client for a server.
    ///
    /// # Errors
    /// [`ClientBuildError`].
    pub fn client(&self, trust: &Trust) -> Result<Client, ClientBuildError> {
        let judge = trust.client_config()?;
        match trust {
            Trust::System => self.cached(&self.system, judge),
            Trust::Unverified => self.cached(&self.unverified, judge),
            Trust::Additional(_) => self.build(judge),
        }
    }

    /// Judges an address that is written in a URL.
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
        let builder = || {
            with(Client::builder())
                .user_agent(concat!("recif-operator/", env!("CARGO_PKG_VERSION")))
                .no_proxy()
                .dns_resolver(DnsResolver(self.policy.clone()))
                .redirect(same_origin())
                .pool_idle_timeout(Duration::from_secs(5))
                .pool_max_idle_per_host(2)
        };
        // An image without CA certificates can still ask servers over plain http.
        let built = builder().build().or_else(|_| builder().tls_certs_only([]).build());
        built.map_err(|error| ClientBuildError::Other(error.to_string()))
    }
}

/// Requests are repeated whole at another path of the same origin; nowhere else.
fn same_origin() -> Policy {
    Policy::custom(|attempt| {
        let stays = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
        let whole = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
        if stays && whole && attempt.previous().len() <= 5 { attempt.follow() } else { attempt.stop() }
    })
}

/// Resolves as the system does, and gives out only addresses that are not denied.
pub struct DnsResolver(pub AddressPolicy);

impl Resolve for DnsResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let judge = self.0.clone();
        Box::pin(async move { Ok(Box::new(lookup(name.as_str(), &judge).await?.into_iter()) as Addrs) })
    }
}

/// The addresses of a name that are not denied.
///
/// # Errors
/// It has none, or [`DeniedAddress`] where all of them are.
pub async fn lookup(name: &str, judge: &AddressPolicy) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
    let (mut allowed, mut refusal) = (Vec::new(), None);
    for address in tokio::net::lookup_host((name, 0)).await? {
        match judge(name, address.ip()) {
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
}
