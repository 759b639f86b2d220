//! Egress rules: which addresses a tool connects to.
//!
//! | address | URL of a Tool | URL that a model chose |
//! |---|---|---|
//! | metadata services, link-local | never | never |
//! | this Pod's own | never | never |
//! | loopback (an extra container) | where the Tool's own text names it, but for the ports of sidecar and runner | never |
//! | private ranges | yes | never |
//!
//! A Tool may be written by others than the agent's owner, and what a model chooses comes in the end from anyone. Names
//! are judged where they are resolved and not before, so an address that changes between check and use is no way around
//! it. With a proxy, which resolves by itself, the name is resolved here as well before the request is sent; a name that
//! only the proxy knows is the proxy's business.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    sync::Arc,
};

use mcp::{AddressPolicy, Cidr, DENIED_RANGES, DeniedAddress, LOOPBACK_RANGES, check_url, lookup, range_of};
use url::{Host, Url};

use crate::Lookup;

/// The sidecar's port.
const SIDECAR: u16 = 8888;
/// Where the Internet does not lead: RFC 1918, RFC 6598, RFC 2544, RFC 4193.
const PRIVATE: [&str; 6] =
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7"];
/// Variables that name a proxy, as the HTTP client reads them.
const PROXIES: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Who chose a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlSource {
    /// Whoever wrote the Tool.
    Tool,
    /// The model.
    Model,
}

/// The rules of a process.
pub(super) struct EgressPolicy {
    /// Ports of this Pod that are not a tool's.
    ports: Vec<u16>,
    /// Whether the process runs on a developer's machine, whose servers Tools may name as they like.
    local: bool,
    /// The hosts of the proxies that are used.
    proxies: Arc<[String]>,
}

impl EgressPolicy {
    /// The rules that follow from the variables of the process.
    pub(super) fn new(environment: &Lookup) -> Self {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        let port = |name: &str| set(name).and_then(|text| text.parse().ok());
        let own: Vec<u16> = ["CORAIL_PORT", "PORT"].iter().filter_map(|name| port(name)).collect();
        let own = if own.is_empty() { vec![8000] } else { own };
        let host = |url: String| {
            let url = if url.contains("://") { url } else { format!("http://{url}") };
            Url::parse(&url).ok()?.host_str().map(str::to_owned)
        };
        Self {
            ports: own.into_iter().chain([SIDECAR]).collect(),
            local: set("RECIF_LOCAL").is_some_and(|value| value == "true"),
            proxies: PROXIES.iter().filter_map(|name| set(name)).filter_map(host).collect(),
        }
    }

    /// Judges what the text of `url` tells of where it leads.
    ///
    /// # Errors
    /// Why it is not connected to, for the model.
    pub(super) async fn check_url(&self, url: &Url, who: UrlSource) -> Result<(), String> {
        let port = url.port_or_known_default().unwrap_or_default();
        if self.ports.contains(&port) && names_loopback(url) {
            return Err(format!("port {port} on loopback belongs to the sidecar or the runtime"));
        }
        let judge = self.address_check(who);
        check_url(url, &judge).map_err(|denied| denied.to_string())?;
        if let (Some(Host::Domain(name)), false) = (url.host(), self.proxies.is_empty())
            && let Err(problem) = lookup(name, &judge).await
            && let Some(denied) = problem.downcast_ref::<DeniedAddress>()
        {
            return Err(denied.to_string());
        }
        Ok(())
    }

    /// What judges the addresses that names have. A name that is empty stands for an address that is written in the URL.
    pub(super) fn address_check(&self, who: UrlSource) -> AddressPolicy {
        let ranges = |texts: &[&str]| -> Vec<Cidr> { texts.iter().filter_map(|text| text.parse().ok()).collect() };
        let (denied, loopback, private) = (ranges(DENIED_RANGES), ranges(LOOPBACK_RANGES), ranges(&PRIVATE));
        let (local, proxies) = (self.local && who == UrlSource::Tool, self.proxies.clone());
        Arc::new(move |name, address| {
            let deny = |why: String| Err(DeniedAddress { address, why });
            if proxies.iter().any(|proxy| proxy == name) {
                return Ok(());
            }
            if let Some(range) = range_of(&denied, address) {
                return deny(format!(
                    "is in {range}, link-local or of a cloud's metadata service: no tool connects there"
                ));
            }
            if range_of(&loopback, address).is_some() {
                let named = who == UrlSource::Tool && (name.is_empty() || is_localhost(name));
                return match local || named {
                    true => Ok(()),
                    false => deny("is loopback: only a Tool whose own URL says so connects there".into()),
                };
            }
            if !local && is_own(address) {
                return deny("is this Pod's own: no tool connects there".into());
            }
            match range_of(&private, address).filter(|_| who == UrlSource::Model) {
                Some(range) => deny(format!(
                    "is in {range}, which is private: a URL that a model chose leads to public addresses alone; for this \
                     one the agent needs an http tool"
                )),
                None => Ok(()),
            }
        })
    }
}

/// Whether the text of `url` says loopback.
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

/// Names that are always loopback (RFC 6761, section 6.3).
fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether `address` is one of this Pod's: then the kernel would send to it from itself. Nothing is sent to find out.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect((address, 9)).map(|()| socket));
    socket.and_then(|socket| socket.local_addr()).is_ok_and(|from| from.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(variables: &'static [(&str, &str)]) -> EgressPolicy {
        EgressPolicy::new(&|name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        })
    }

    async fn admits(reach: &EgressPolicy, url: &str, who: UrlSource) -> bool {
        reach.check_url(&Url::parse(url).unwrap(), who).await.is_ok()
    }

    #[tokio::test]
    async fn an_address_in_a_url_is_judged_by_who_chose_it() {
        let reach = reach(&[("CORAIL_PORT", "8001")]);
        for (url, tool, model) in [
            ("http://169.254.169.254/latest/meta-data/", false, false),
            ("http://2852039166/", false, false),
            ("http://[fd00:ec2::254]/", false, false),
            ("http://[64:ff9b::169.254.169.254]/", false, false),
            ("http://127.0.0.1:9000/", true, false),
            ("http://[::ffff:127.0.0.1]:9000/", true, false),
            ("http://0.0.0.0:9000/", true, false),
            ("http://127.0.0.1:8888/", false, false),
            ("http://127.9.9.9:8888/", false, false),
            ("http://0x7f.1:8888/", false, false),
            ("http://[::]:8888/", false, false),
            ("http://127.0.0.1:8001/", false, false),
            ("http://localhost:8001/", false, false),
            ("http://10.0.0.1/", true, false),
            ("http://172.20.0.1/", true, false),
            ("http://192.168.200.200/", true, false),
            ("http://100.64.0.1/", true, false),
            ("http://[fd12::1]/", true, false),
            ("http://[::ffff:10.0.0.1]/", true, false),
            ("http://8.8.8.8/", true, true),
            ("http://example.com/", true, true),
        ] {
            assert_eq!(admits(&reach, url, UrlSource::Tool).await, tool, "{url} of a Tool");
            assert_eq!(admits(&reach, url, UrlSource::Model).await, model, "{url} of a model");
        }
    }

    #[tokio::test]
    async fn a_name_is_judged_by_the_address_that_it_has() {
        let loopback: IpAddr = [127, 0, 0, 1].into();
        let (plain, dev) = (reach(&[]), reach(&[("RECIF_LOCAL", "true")]));
        assert!(plain.address_check(UrlSource::Tool)("localhost", loopback).is_ok());
        assert!(plain.address_check(UrlSource::Tool)("sly.example", loopback).is_err(), "rebinding");
        assert!(plain.address_check(UrlSource::Model)("localhost", loopback).is_err());
        assert!(dev.address_check(UrlSource::Tool)("my.machine", loopback).is_ok());
        assert!(dev.address_check(UrlSource::Model)("localhost", loopback).is_err());
        assert!(dev.address_check(UrlSource::Tool)("x", [169, 254, 1, 1].into()).is_err());
    }

    #[tokio::test]
    async fn with_a_proxy_the_host_of_the_url_is_judged_and_the_proxy_is_reached() {
        let proxied = reach(&[("HTTPS_PROXY", "proxy.corp:3128")]);
        assert!(!admits(&proxied, "http://localhost:9/", UrlSource::Model).await);
        assert!(admits(&proxied, "http://localhost:9/", UrlSource::Tool).await);
        assert!(admits(&proxied, "http://surely-not-there.invalid/", UrlSource::Model).await);
        assert!(proxied.address_check(UrlSource::Model)("proxy.corp", [10, 0, 0, 1].into()).is_ok());
    }

    #[test]
    fn an_own_address_is_known() {
        assert!(is_own([127, 0, 0, 1].into()));
        assert!(!is_own([192, 0, 2, 1].into()));
    }
}
