//! Egress policy: addresses to which tools may connect, as a defence against [server-side request
//! forgery](https://owasp.org/www-community/attacks/Server_Side_Request_Forgery).
//!
//! | address | URL of a Tool | URL that a model chose |
//! |---|---|---|
//! | metadata services, link-local | never | never |
//! | this Pod's own | never | never |
//! | loopback (an extra container) | if the Tool's URL names it literally, except the ports of sidecar and runner, and closed ones | never |
//! | private ranges | yes | if `egress` of the agent lists the address |
//!
//! With `egress` the host of each URL must also be in the agent's list ([`listed_hosts`](super::listed_hosts)).
//!
//! With `RECIF_LOCAL`, on a developer's machine, a Tool may reach loopback and this machine under any name, but for those
//! ports.
//!
//! A Tool may be written by others than the agent's owner, and a URL chosen by a model may come from anyone. Names are
//! checked by the addresses they resolve to when the connection is made, so DNS rebinding between check and use cannot
//! bypass the policy. With a proxy, which resolves names itself, the name is also resolved here before the request is
//! sent; a name that only the proxy can resolve is left to the proxy. The client may connect to the proxy itself wherever
//! it is, but a URL to the proxy's host is judged like any other: by the port, or `NO_PROXY`, it leads to another server.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    sync::Arc,
};

use mcp::{
    AddressPolicy, Cidr, ClosedPorts, DENIED_RANGES, DeniedAddress, LOOPBACK_RANGES, check_url, is_localhost, lookup,
    range_of,
};
use url::{Host, Url};

use super::listed_hosts::ListedHosts;
use crate::{
    Lookup,
    variables::{closed_ports, is_local, sidecar_port},
};

/// Ranges that are not routed on the Internet: RFC 1918, RFC 6598, RFC 2544, RFC 4193.
const PRIVATE: [&str; 6] =
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7"];
/// Variables that configure a proxy, as the HTTP client reads them.
const PROXIES: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Origin of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlSource {
    /// The author of the Tool.
    Tool,
    /// The model.
    Model,
}

/// Egress policy of the process.
pub(super) struct EgressPolicy {
    /// Ports of this Pod that belong to the runtime or the sidecar, and those that its owner closed.
    closed: ClosedPorts,
    /// Set on a developer's machine, where Tools may reach loopback under any name.
    local: bool,
    /// Host names of the configured proxies.
    proxies: Arc<[String]>,
    /// Hosts to which tools may connect.
    hosts: ListedHosts,
}

impl EgressPolicy {
    /// Creates the policy from the environment variables of the process.
    pub(super) fn new(environment: &Lookup) -> Self {
        let set = |name: &str| environment(name).filter(|value| !value.is_empty());
        let port = |name: &str| set(name).and_then(|text| text.parse().ok());
        let own: Vec<u16> = ["CORAIL_PORT", "PORT"].iter().filter_map(|name| port(name)).collect();
        let own = if own.is_empty() { vec![8000] } else { own };
        // The process has not started with variables that cannot be read.
        let (sidecar, closed) = (sidecar_port(environment).ok(), closed_ports(environment).unwrap_or_default());
        let (ports, local) = (own.into_iter().chain(sidecar).collect(), is_local(environment));
        let host = |url: String| {
            let url = if url.contains("://") { url } else { format!("http://{url}") };
            Url::parse(&url).ok()?.host_str().map(str::to_owned)
        };
        Self {
            closed: ClosedPorts::new(ports, local).and(closed),
            local,
            proxies: PROXIES.iter().filter_map(|name| set(name)).filter_map(host).collect(),
            hosts: ListedHosts::new(environment),
        }
    }

    /// Returns the hosts to which tools may connect, for the check of redirects.
    pub(super) fn hosts(&self) -> ListedHosts {
        self.hosts.clone()
    }

    /// Checks `url` by its text, and with a proxy also the addresses of its host name.
    ///
    /// # Errors
    /// The reason for the refusal, for the model.
    pub(super) async fn check_url(&self, url: &Url, who: UrlSource) -> Result<(), String> {
        self.closed.check(url)?;
        let policy = self.address_check(who);
        check_url(url, &policy).map_err(|denied| denied.to_string())?;
        self.hosts.check(url)?;
        match url.host() {
            Some(Host::Domain(name)) if is_among(&self.proxies, name) => check_all(name, &policy).await,
            Some(Host::Domain(name)) if !self.proxies.is_empty() => match lookup(name, &policy).await {
                Err(problem) => {
                    problem.downcast_ref::<DeniedAddress>().map_or(Ok(()), |denied| Err(denied.to_string()))
                }
                Ok(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Returns the check of the addresses that the HTTP client resolves. It admits a proxy's name, by which the client
    /// connects to the proxy; [`Self::check_url`] has judged the URLs to that host.
    pub(super) fn connection_check(&self, who: UrlSource) -> AddressPolicy {
        let (policy, proxies) = (self.address_check(who), self.proxies.clone());
        Arc::new(move |name, address| if is_among(&proxies, name) { Ok(()) } else { policy(name, address) })
    }

    /// Returns the check of resolved addresses. An empty name stands for an address that is literally in the URL.
    fn address_check(&self, who: UrlSource) -> AddressPolicy {
        let ranges = |texts: &[&str]| -> Vec<Cidr> { texts.iter().filter_map(|text| text.parse().ok()).collect() };
        let (denied, loopback, private) = (ranges(DENIED_RANGES), ranges(LOOPBACK_RANGES), ranges(&PRIVATE));
        let local = self.local && who == UrlSource::Tool;
        let hosts = self.hosts();
        Arc::new(move |name, address| {
            let deny = |why: String| Err(DeniedAddress { address, why });
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
            match range_of(&private, address).filter(|_| who == UrlSource::Model && !hosts.has_address(address)) {
                Some(range) => deny(format!(
                    "is in {range}, which is private: a URL that a model chose leads to public addresses alone; for this \
                     one the agent needs an http tool, or the address in its egress"
                )),
                None => Ok(()),
            }
        })
    }
}

/// Reports whether `name` is the host name of a proxy.
fn is_among(proxies: &[String], name: &str) -> bool {
    proxies.iter().any(|proxy| proxy.eq_ignore_ascii_case(name))
}

/// Checks every address of a proxy's name, because the client may connect to each of them ([`EgressPolicy::connection_check`]).
async fn check_all(name: &str, policy: &AddressPolicy) -> Result<(), String> {
    let addresses = tokio::net::lookup_host((name, 0)).await.map_err(|error| format!("{name}: {error}"))?;
    addresses.into_iter().try_for_each(|address| policy(name, address.ip())).map_err(|denied| denied.to_string())
}

/// Reports whether `address` is one of this Pod's: the kernel then selects it as the source address of a connection to
/// it. A UDP socket sends no packet on connect.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect((address, 9)).map(|()| socket));
    socket.and_then(|socket| socket.local_addr()).is_ok_and(|from| from.ip() == address)
}

#[cfg(test)]
mod tests;
