//! Cross-namespace references by address: URLs that lead to a Service of another namespace.
//!
//! The operator sends from its own place in the network, which network policies let in everywhere. So a server whose URL names a
//! Service of another namespace is queried only if that Service is an MCPServer whose `allowedNamespaces` admits this namespace.

use crds::{MCPServer, RemoteMCPServer, reason};
use machine::ActionError;
use meta::PhasedObject;
use url::Url;

use crate::{deps::Deps, ports::CacheReader};

/// Checks whether the server may be queried.
///
/// # Errors
/// `AddressDenied`: the URL leads to a Service that is not for this namespace.
pub(super) fn check_allowed(cr: &RemoteMCPServer, deps: &Deps) -> Result<(), ActionError> {
    let own = cr.key().namespace;
    let Some((name, namespace)) = service_of_url(&cr.spec.url, &deps.settings.cluster_domain, deps.cache.as_ref())
    else {
        return Ok(());
    };
    if namespace == own {
        return Ok(());
    }
    let denied = |why: &str| {
        let message = format!("spec.url leads to {name:?} in namespace {namespace:?}, {why}");
        Err(ActionError::terminal(reason::ADDRESS_DENIED, message))
    };
    match deps.cache.get::<MCPServer>(&namespace, &name) {
        None => denied("which is not an MCPServer: only those may be used from other namespaces"),
        Some(server) => {
            let allowed = server.spec.allowed_namespaces.clone().unwrap_or_default();
            match allowed.admits(deps.cache.namespace_labels(&own).as_deref()) {
                true => Ok(()),
                false => denied("an MCPServer that is not for this namespace: let its spec.allowedNamespaces allow it"),
            }
        }
    }
}

/// Reports whether the URL leads to another namespace, so that another object, which may change, decides on access.
pub(super) fn is_cross_namespace(cr: &RemoteMCPServer, deps: &Deps) -> bool {
    let found = service_of_url(&cr.spec.url, &deps.settings.cluster_domain, deps.cache.as_ref());
    found.is_some_and(|(_, namespace)| namespace != cr.key().namespace)
}

/// Returns the Service that a URL names, and its namespace, by the [DNS names of the
/// cluster](https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/): `a.ns`, `a.ns.svc`, `a.ns.svc.<domain>`,
/// with the name of a Pod before it; or a Pod by its address, `10-1-2-3.ns.pod`. `a.ns` may be a host of the Internet as well,
/// unless there is such a namespace.
fn service_of_url(url: &str, domain: &str, cache: &dyn CacheReader) -> Option<(String, String)> {
    // Parsed as by the HTTP client that connects: percent-encoded and wide dots are dots.
    let url = Url::parse(url).ok()?;
    let host = url.domain()?.trim_end_matches('.').to_ascii_lowercase();
    let within =
        host.strip_suffix(&domain.to_ascii_lowercase()).and_then(|host| host.strip_suffix('.')).unwrap_or(&host);
    let labels: Vec<&str> = within.split('.').collect();
    match labels[..] {
        [name, namespace, "svc" | "pod"] | [_, name, namespace, "svc"] => Some((name.to_owned(), namespace.to_owned())),
        [name, namespace] => {
            let is_there =
                cache.namespace_labels(namespace).is_some() || cache.get::<MCPServer>(namespace, name).is_some();
            is_there.then(|| (name.to_owned(), namespace.to_owned()))
        }
        _ => None,
    }
}
