//! Services by the hosts of URLs. Our operator asks a Service of another namespace only if it is an MCPServer that admits the namespace
//! of the RemoteMCPServer, where kagent connects to any.

use crate::world::World;

/// Service that a URL leads to, by the [DNS names of the
/// cluster](https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServiceHost {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Set if the host can be no other one; `a.b` may be a host of the Internet as well.
    pub(super) is_certain: bool,
}

impl ServiceHost {
    /// Returns the Service of a URL. `a.b` counts if the input has the namespace, or if the URL has no TLS and a port of its own.
    pub(super) fn of(url: &str, world: &World<'_>) -> Option<Self> {
        let url = with_scheme(url.trim());
        let (scheme, rest) = url.split_once("://")?;
        let is_plain = scheme.eq_ignore_ascii_case("http");
        if !is_plain && !scheme.eq_ignore_ascii_case("https") {
            return None;
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, address)| address);
        let (host, port) = authority.split_once(':').unwrap_or((authority, "80"));
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let host = host.strip_suffix(".cluster.local").unwrap_or(&host);
        let labels: Vec<&str> = host.split('.').collect();
        let (name, namespace, is_certain) = match labels[..] {
            [name, namespace, "svc"] | [_, name, namespace, "svc"] => (name, namespace, true),
            [name, namespace] if world.has_namespace(namespace) => (name, namespace, true),
            [name, namespace] if is_plain && port != "80" => (name, namespace, false),
            _ => return None,
        };
        let is_service = !name.is_empty() && !namespace.is_empty();
        is_service.then(|| Self { namespace: namespace.to_owned(), name: name.to_owned(), is_certain })
    }
}

/// Returns a URL with a scheme.
pub(super) fn with_scheme(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("http://{url}") }
}
