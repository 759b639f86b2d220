//! Egress policy: deny list of addresses for requests to servers of others, and the HTTP clients of the operator that enforce it.
//!
//! A RemoteMCPServer makes the operator send requests, and a Tool makes a runner do so. Against server-side request forgery
//! ([SSRF](https://owasp.org/www-community/attacks/Server_Side_Request_Forgery)) the metadata services of clouds and link-local
//! addresses are denied to both; each adds its own rules. An address is checked when a connection is made to it and not before,
//! so a name that resolves to another address the second time (DNS rebinding) is no way around it. The operator uses no proxy,
//! which would resolve names by itself. Redirects stay at their origin, and so do the credentials in headers.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, StatusCode};
use url::{Host, Url};

use super::{
    cidr::{Cidr, range_of},
    http_client::build_client,
    trust::{ClientBuildError, Trust},
};

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
            Trust::Additional(_) | Trust::Only(_) => self.build(address_policy),
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
    use crate::cidr::{DENIED_RANGES, LOOPBACK_RANGES};

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
}
