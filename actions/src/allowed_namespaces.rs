//! Use of an object by objects of other namespaces, which its `allowedNamespaces` admits.

use crds::{Agent, RefKind, Reference, tool_server::AllowedNamespaces};

use crate::ports::CacheReader;

/// Returns why objects in the namespace `from` may not use an object of `namespace` with this `allowedNamespaces`, such as
/// `may not be used from namespace "team": …`; `None` if they may.
pub(crate) fn refusal(
    cache: &dyn CacheReader,
    allowed: Option<&AllowedNamespaces>,
    namespace: &str,
    from: &str,
) -> Option<String> {
    let admits = |allowed: &AllowedNamespaces| allowed.admits(cache.namespace_labels(from).as_deref());
    let may_use = namespace == from || allowed.is_some_and(admits);
    (!may_use).then(|| format!("may not be used from namespace {from:?}: let its spec.allowedNamespaces allow it"))
}

/// Reports whether the Agent of a reference, which is the only kind that is called from other namespaces, may be used by objects in the
/// namespace `from`; true for each other kind, and for an Agent that is missing.
pub(crate) fn admits(cache: &dyn CacheReader, reference: &Reference, from: &str) -> bool {
    let other = reference.namespace.as_deref().filter(|_| reference.kind == RefKind::Agent);
    let Some(namespace) = other else { return true };
    let agent = cache.get::<Agent>(namespace, &reference.name);
    agent.is_none_or(|agent| refusal(cache, agent.spec.allowed_namespaces.as_ref(), namespace, from).is_none())
}
