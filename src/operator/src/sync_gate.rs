//! Sync gate: holds back the step of an object that would read a kind whose informer has not synced.
//!
//! A kind that was never listed is unknown, not missing: an Agent whose Secrets may not be read would otherwise leave Running for no
//! reason. So the kinds that a step reads are gathered along the object's references before the step. While every kind is listed this costs
//! nothing.

use std::{collections::HashSet, fmt, sync::Arc};

use actions::ports::{CacheReader, ChildKind};
use cluster::{Unlisted, WatchHealth, cache::KindCaches};
use crds::{HasReferences, RefKind, Reference, tool::ServerRef};
use meta::Key;

use super::controlled::ReconciledKind;

/// Kinds that a step of a server reads besides its references: the Tools that it publishes, and the users of those.
const USERS_OF_TOOLS: [&str; 4] = ["Tool", "Agent", "Flow", "FlowSet"];

/// Gate before the steps, by the state of the watches.
pub(super) struct SyncGate {
    watch_health: Arc<WatchHealth>,
    kinds: KindCaches,
    caches: Arc<dyn CacheReader>,
}

impl fmt::Debug for SyncGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncGate").field("board", &self.watch_health).finish_non_exhaustive()
    }
}

impl SyncGate {
    /// Creates a gate for these caches, by the state on `board`.
    pub(super) fn new(board: Arc<WatchHealth>, kinds: KindCaches, caches: Arc<dyn CacheReader>) -> Self {
        Self { watch_health: board, kinds, caches }
    }

    /// Returns a kind that a step of this object would read and that is not synced; `None`: all are.
    pub(super) fn unsynced<K: ReconciledKind>(&self, key: &Key) -> Option<Unlisted> {
        if self.watch_health.is_complete() {
            return None;
        }
        let object = K::map(&self.kinds).get(key)?;
        if object.is_deleting() {
            // Nothing but its Deployment counts for it any more; in a namespace that is being deleted, not even that.
            let going = self.caches.is_namespace_going(&key.namespace);
            let mut own = [K::KIND, ChildKind::Deployment.as_str()].into_iter().filter(|_| !going);
            return own.find_map(|kind| self.watch_health.unlisted(kind, &key.namespace));
        }
        let children = K::CHILDREN.iter().map(|kind| kind.as_str()).chain(K::HAS_PODS.then_some("Pod"));
        let users = ServerRef::KINDS.contains(&K::KIND).then_some(USERS_OF_TOOLS).into_iter().flatten();
        let mut own = std::iter::once(K::KIND).chain(children).chain(users);
        own.find_map(|kind| self.watch_health.unlisted(kind, &key.namespace))
            .or_else(|| self.unsynced_reference(key, object.as_ref()))
    }

    /// Follows the references of an object, transitively where its users read on.
    fn unsynced_reference(&self, key: &Key, object: &impl HasReferences) -> Option<Unlisted> {
        let mut seen = HashSet::new();
        let mut open: Vec<(Key, Reference)> =
            object.references().into_iter().map(|found| (key.clone(), found)).collect();
        while let Some((from, Reference { kind, namespace, name, .. })) = open.pop() {
            let abroad = namespace
                .as_ref()
                .is_some_and(|other| *other != from.namespace)
                .then(|| self.watch_health.unlisted("Namespace", ""));
            let namespace = namespace.unwrap_or_else(|| from.namespace.clone());
            if let Some(unlisted) = self.watch_health.unlisted(kind.as_str(), &namespace).or(abroad.flatten()) {
                return Some(unlisted);
            }
            let found = Key::new(namespace, name);
            if kind.is_transitive() && seen.insert((kind, found.clone())) {
                let further = self.references(kind, &found);
                open.extend(further.into_iter().map(|reference| (found.clone(), reference)));
            }
        }
        None
    }

    fn references(&self, kind: RefKind, key: &Key) -> Vec<Reference> {
        references_of(&self.kinds, kind, key).unwrap_or_default()
    }
}

macro_rules! references_of {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        fn references_of(kinds: &KindCaches, kind: RefKind, key: &Key) -> Option<Vec<Reference>> {
            match kind.as_str() {
                $(stringify!($kind) => kinds.of::<crds::$module::$kind>().get(key).map(|object| object.references()),)+
                _ => None,
            }
        }
    };
}
crds::for_each_kind!(references_of);

#[cfg(test)]
mod tests {
    use cluster::{
        ChangeSource, ObjectVersion, Versioned,
        cache::{Caches, InformerReader},
        resource::Resource,
    };
    use crds::{Agent, Prompt, RemoteMCPServer, Tool};
    use serde_json::{Value, json};

    use super::*;

    /// Checks the steps of an Agent with these fields and of a Prompt. The Agent may use a Tool that calls a server of namespace `far` with
    /// a header from a Secret. Every kind but `unlisted` (kind and namespace) is listed.
    fn kept(fields: Value, unlisted: (&Resource, &str)) -> (Option<Unlisted>, Option<Unlisted>) {
        fn add<K: ReconciledKind + serde::de::DeserializeOwned>(kinds: &KindCaches, name: &str, spec: Value) {
            let metadata = json!({ "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1" });
            let object = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
            let head = ObjectVersion { key: Key::new("ns", name), uid: name.into(), resource_version: 1 };
            K::map(kinds).observe(Versioned::new(head, object), ChangeSource::Watch);
        }
        let (board, maps) = (Arc::new(WatchHealth::default()), Caches::default());
        let watched = [
            Resource::of::<Agent>(),
            Resource::of::<Tool>(),
            Resource::of::<Prompt>(),
            Resource::of::<RemoteMCPServer>(),
        ];
        let children = [ChildKind::Secret, ChildKind::Deployment].map(Resource::child);
        for resource in watched.into_iter().chain(children) {
            for namespace in ["ns", "far"] {
                let row = board.add(&resource, Some(namespace));
                if (&resource, namespace) != unlisted {
                    board.record_list(row);
                }
            }
        }
        let mut agent = json!({ "name": "A", "framework": "corail" });
        agent.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        add::<Agent>(&maps.kinds, "a", agent);
        let server = json!({ "name": "s", "namespace": "far" });
        add::<Tool>(&maps.kinds, "t", json!({ "name": "t", "type": "mcp", "mcpServerRef": server }));
        add::<Prompt>(&maps.kinds, "p", json!({ "content": "hi" }));
        let unknown = SyncGate::new(board.clone(), maps.kinds.clone(), Arc::new(InformerReader::new(&maps, board)));
        (unknown.unsynced::<Agent>(&Key::new("ns", "a")), unknown.unsynced::<Prompt>(&Key::new("ns", "p")))
    }

    #[test]
    fn who_reads_what_was_never_listed_is_held_back_and_who_does_not_goes_on() {
        let secrets = Resource::child(ChildKind::Secret);
        let deployments = Resource::child(ChildKind::Deployment);
        let with_tool = || json!({ "tools": ["t"] });
        for (fields, unlisted, kind, namespace) in [
            (json!({}), true, secrets, "ns"),
            (json!({}), true, deployments, "ns"),
            (json!({}), false, secrets, "far"),
            (json!({}), false, Resource::of::<crds::Tool>(), "ns"),
            (with_tool(), true, Resource::of::<crds::Tool>(), "ns"),
            (with_tool(), true, Resource::of::<crds::RemoteMCPServer>(), "far"),
            (with_tool(), false, Resource::of::<crds::RemoteMCPServer>(), "ns"),
        ] {
            let (agent, prompt) = kept(fields.clone(), (&kind, namespace));
            assert_eq!(agent.is_some(), unlisted, "{fields} without {} of {namespace}", kind.kind);
            assert_eq!(prompt, None, "a Prompt reads nothing");
        }
    }
}
