//! Use of an object by objects of other namespaces, which its `allowedNamespaces` admits.

use crds::tool_server::AllowedNamespaces;

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
