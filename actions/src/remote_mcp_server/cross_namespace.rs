//! Cross-namespace reference by address: a URL that leads to a Service of another namespace.
//!
//! The operator asks from its own place in the network, which policies let in everywhere. So a server whose URL names a
//! Service of another namespace is asked only where that is an MCPServer whose `allowedNamespaces` admits this namespace.

use crds::RemoteMCPServer;
use machine::ActionError;
use meta::PhasedObject;
use url::Url;

use crate::{deps::Deps, ports::CacheReader};

/// Whether the server may be asked.
///
/// # Errors
/// `AddressDenied`: its URL leads to a Service that is not for this namespace.
pub(super) fn check_allowed(cr: &RemoteMCPServer, world: &Deps) -> Result<(), ActionError> {
    let own = cr.key().namespace;
    let Some((name, namespace)) = service_of_url(&cr.spec.url, &world.settings.cluster_domain, world.cache.as_ref())
    else {
        return Ok(());
    };
    if namespace == own {
        return Ok(());
    }
    let denied = |why: &str| {
        let message = format!("spec.url leads to {name:?} in namespace {namespace:?}, {why}");
        Err(ActionError::terminal("AddressDenied", message))
    };
    match world.cache.mcp_server(&namespace, &name) {
        None => denied("which is no MCPServer: only those are for other namespaces"),
        Some(server) => {
            let allowed = server.spec.allowed_namespaces.clone().unwrap_or_default();
            match allowed.admits(world.cache.namespace_labels(&own).as_deref()) {
                true => Ok(()),
                false => denied("an MCPServer that is not for this namespace: let its spec.allowedNamespaces allow it"),
            }
        }
    }
}

/// Whether who may ask is decided by another object, which may change.
pub(super) fn is_cross_namespace(cr: &RemoteMCPServer, world: &Deps) -> bool {
    let found = service_of_url(&cr.spec.url, &world.settings.cluster_domain, world.cache.as_ref());
    found.is_some_and(|(_, namespace)| namespace != cr.key().namespace)
}

/// The Service that a URL names, and its namespace, as the cluster's names are: `a.ns`, `a.ns.svc`, `a.ns.svc.<domain>`,
/// with the name of a Pod before it; or a Pod by its address, `10-1-2-3.ns.pod`. `a.ns` may be a host of the Internet as well, unless there is such a namespace.
fn service_of_url(url: &str, domain: &str, views: &dyn CacheReader) -> Option<(String, String)> {
    // Read as the client reads it that connects: percent-encoded and wide dots are dots.
    let url = Url::parse(url).ok()?;
    let host = url.domain()?.trim_end_matches('.').to_ascii_lowercase();
    let within =
        host.strip_suffix(&domain.to_ascii_lowercase()).and_then(|host| host.strip_suffix('.')).unwrap_or(&host);
    let labels: Vec<&str> = within.split('.').collect();
    match labels[..] {
        [name, namespace, "svc" | "pod"] | [_, name, namespace, "svc"] => Some((name.to_owned(), namespace.to_owned())),
        [name, namespace] => {
            let is_there = views.namespace_labels(namespace).is_some() || views.mcp_server(namespace, name).is_some();
            is_there.then(|| (name.to_owned(), namespace.to_owned()))
        }
        _ => None,
    }
}
