//! The network in which servers are queried: in a cluster that of its Pods, on a developer's machine loopback alone.

use std::{fmt, sync::Arc};

use mcp::{Cidr, ClosedPorts};
use url::Url;

/// Function that maps a host and its port to those to which the connection is made; `None`: they are what they are.
pub type HostMap = Arc<dyn Fn(&str, u16) -> Option<(String, u16)> + Send + Sync>;

/// Network in which servers are queried. By default every address is connected to, and each URL is taken as it is.
#[derive(Clone, Default)]
pub struct DiscoveryNetwork {
    /// Ranges of addresses that are not connected to.
    pub denied: Vec<Cidr>,
    /// Ports on loopback that no server may have.
    pub closed: ClosedPorts,
    /// Addresses of the hosts of URLs; `None`: those of DNS.
    pub hosts: Option<HostMap>,
}

impl fmt::Debug for DiscoveryNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { denied, closed, hosts } = self;
        let mut shown = f.debug_struct("DiscoveryNetwork");
        shown.field("denied", denied).field("closed", closed).field("maps_hosts", &hosts.is_some()).finish()
    }
}

impl DiscoveryNetwork {
    /// Returns the URL to which requests for `url` are sent. Only plain http can have another host: a certificate would be for the
    /// first one.
    pub(super) fn resolve(&self, url: Url) -> Url {
        let Some(hosts) = self.hosts.as_ref().filter(|_| url.scheme() == "http") else { return url };
        let place = url.host_str().zip(url.port_or_known_default());
        let Some((host, port)) = place.and_then(|(host, port)| hosts(host, port)) else { return url };
        let mut there = url.clone();
        match (there.set_host(Some(&host)), there.set_port(Some(port))) {
            (Ok(()), Ok(())) => there,
            _ => url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_where_its_host_is_mapped_and_else_where_it_says() {
        let hosts: HostMap = Arc::new(|host: &str, port: u16| match (host, port) {
            ("time.default.svc.cluster.local", 80 | 3000) => Some(("127.0.0.1".to_owned(), 20417)),
            ("bad.default.svc", _) => Some(("not a host".to_owned(), 1)),
            _ => None,
        });
        let network = DiscoveryNetwork { hosts: Some(hosts), ..DiscoveryNetwork::default() };
        for (url, expected) in [
            ("http://time.default.svc.cluster.local:3000/mcp?a=b", "http://127.0.0.1:20417/mcp?a=b"),
            ("http://time.default.svc.cluster.local/mcp", "http://127.0.0.1:20417/mcp"),
            ("http://TIME.default.svc.cluster.local/", "http://127.0.0.1:20417/"),
            ("http://time.default.svc.cluster.local:81/", "http://time.default.svc.cluster.local:81/"),
            ("https://time.default.svc.cluster.local:3000/", "https://time.default.svc.cluster.local:3000/"),
            ("http://user:key@time.default.svc.cluster.local/", "http://user:key@127.0.0.1:20417/"),
            ("http://bad.default.svc/", "http://bad.default.svc/"),
            ("http://localhost:3000/mcp", "http://localhost:3000/mcp"),
        ] {
            let parsed = Url::parse(url).unwrap();
            assert_eq!(network.resolve(parsed.clone()).as_str(), expected, "{url}");
            assert_eq!(DiscoveryNetwork::default().resolve(parsed.clone()), parsed, "{url}");
        }
    }
}
