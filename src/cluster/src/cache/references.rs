//! Reverse index of references, by which a change of a Tool, Secret or ConfigMap fans out to the objects that use it and to no others.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

use crds::{HasReferences, RefKind, Reference};
use meta::{Key, PhasedObject};

use crate::Change;

/// Reverse index of references: the objects of all kinds, by the objects that they refer to.
///
/// A user of a Model also uses its PluginConfig and the Secret with its credentials. The status of a Model need not change when that Secret
/// does, so the users of the Model are found through it. Invariant: an object that no other refers to has no entry.
#[derive(Debug, Default)]
pub struct Referrers(Mutex<HashMap<ReferenceTarget, BTreeSet<Referrer>>>);

/// Object that is referred to. Without a kind: the labels of the namespace that the key names, which decide whether its objects may use
/// servers of another namespace.
type ReferenceTarget = (Option<RefKind>, Key);
/// Kind and key of an object that refers to others.
type Referrer = (&'static str, Key);

impl Referrers {
    /// Updates the index by a change of a referring object.
    pub fn follow<K: PhasedObject + HasReferences>(&self, change: &Change<K>) {
        self.change(K::KIND, &change.key, change.old.as_deref(), change.new.as_deref());
    }

    fn change(
        &self,
        kind: &'static str,
        key: &Key,
        old: Option<&impl HasReferences>,
        new: Option<&impl HasReferences>,
    ) {
        let (old, new) = (targets(key, old), targets(key, new));
        if old == new {
            return;
        }
        let user = (kind, key.clone());
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in old.difference(&new) {
            if let Some(users) = index.get_mut(gone) {
                users.remove(&user);
                if users.is_empty() {
                    index.remove(gone);
                }
            }
        }
        for target in new.difference(&old) {
            index.entry(target.clone()).or_default().insert(user.clone());
        }
    }

    /// Returns kind and key of all objects that use this one, directly or through others (transitively).
    pub fn of(&self, kind: RefKind, key: &Key) -> BTreeSet<Referrer> {
        self.users((Some(kind), key.clone()))
    }

    /// Returns kind and key of all objects for which the labels of their namespace count.
    pub fn of_namespace(&self, name: &str) -> BTreeSet<Referrer> {
        self.users((None, Key::new("", name)))
    }

    fn users(&self, target: ReferenceTarget) -> BTreeSet<Referrer> {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = BTreeSet::new();
        let mut open = vec![target];
        while let Some(target) = open.pop() {
            for (kind, user) in index.get(&target).into_iter().flatten() {
                let passes_on = RefKind::parse(kind).filter(|kind| kind.is_transitive());
                if found.insert((*kind, user.clone()))
                    && let Some(kind) = passes_on
                {
                    open.push((Some(kind), user.clone()));
                }
            }
        }
        found
    }
}

fn targets(key: &Key, object: Option<&impl HasReferences>) -> BTreeSet<ReferenceTarget> {
    let references = object.map(HasReferences::references).unwrap_or_default();
    let is_abroad = |found: &Reference| found.namespace.as_ref().is_some_and(|other| *other != key.namespace);
    let abroad = references.iter().any(is_abroad).then(|| (None, Key::new("", &key.namespace)));
    let namespace = |found: &Reference| found.namespace.clone().unwrap_or_else(|| key.namespace.clone());
    let objects = references.iter().map(|found| (Some(found.kind), Key::new(namespace(found), &found.name)));
    objects.chain(abroad).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crds::{Agent, Model, PluginConfig, Tool};
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::ChangeSource;

    fn object<K: DeserializeOwned>(spec: Option<Value>) -> Option<Arc<K>> {
        spec.map(|spec| Arc::new(serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()))
    }

    fn change<K: PhasedObject + HasReferences + DeserializeOwned>(
        index: &Referrers,
        name: &str,
        old: Option<Value>,
        new: Option<Value>,
    ) {
        let (old, new) = (object::<K>(old), object::<K>(new));
        index.follow(&Change { key: Key::new("ns", name), old, new, source: ChangeSource::Watch });
    }

    fn users(index: &Referrers, kind: RefKind, name: &str) -> Vec<String> {
        let found = index.of(kind, &Key::new("ns", name));
        found.into_iter().map(|(kind, key)| format!("{kind}/{}", key.name)).collect()
    }

    fn agent(more: Value) -> Value {
        let mut spec = json!({ "name": "A", "framework": "corail" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    }

    #[test]
    fn users_are_found_by_what_they_refer_to_now() {
        let index = Referrers::default();
        let tools = |names: Value| Some(agent(json!({ "tools": names })));
        let counts = |index: &Referrers| ["x", "y", "z"].map(|tool| users(index, RefKind::Tool, tool).len());
        change::<Agent>(&index, "a", None, tools(json!(["x", "y"])));
        assert_eq!(users(&index, RefKind::Tool, "x"), ["Agent/a"]);
        assert_eq!(index.of(RefKind::Tool, &Key::new("other", "x")).len(), 0);
        change::<Agent>(&index, "a", tools(json!(["x", "y"])), tools(json!(["y", "z"])));
        assert_eq!(counts(&index), [0, 1, 1]);
        change::<Agent>(&index, "a", tools(json!(["y", "z"])), None);
        assert!(index.0.lock().unwrap().is_empty());
    }

    #[test]
    fn users_are_found_through_what_passes_on_what_it_refers_to_and_no_others() {
        let index = Referrers::default();
        let secret = |name: &str| json!({ "type": "openai", "credentialsRef": { "name": name } });
        let model = |config: &str| json!({ "provider": "p", "model": "m", "pluginConfigRef": { "name": config } });
        for (config, name) in [("pc", "s"), ("other", "t")] {
            change::<PluginConfig>(&index, config, None, Some(secret(name)));
            change::<Model>(&index, &format!("m-{config}"), None, Some(model(config)));
            change::<Agent>(
                &index,
                &format!("a-{config}"),
                None,
                Some(agent(json!({ "modelRef": { "name": format!("m-{config}") } }))),
            );
        }
        assert_eq!(users(&index, RefKind::Secret, "s"), ["Agent/a-pc", "Model/m-pc", "PluginConfig/pc"]);
        assert_eq!(users(&index, RefKind::PluginConfig, "pc"), ["Agent/a-pc", "Model/m-pc"]);
        assert_eq!(users(&index, RefKind::Model, "m-pc"), ["Agent/a-pc"]);
    }

    #[test]
    fn users_in_another_namespace_are_found_and_so_are_those_for_which_its_labels_count() {
        let index = Referrers::default();
        let server = json!({ "name": "docs", "namespace": "tools" });
        let tool = |server: Value| Some(json!({ "name": "t", "type": "mcp", "mcpServerRef": server }));
        change::<Tool>(&index, "t", None, tool(server.clone()));
        change::<Tool>(&index, "own", None, tool(json!({ "name": "docs" })));
        change::<Agent>(&index, "a", None, Some(agent(json!({ "tools": ["t"] }))));
        let found =
            |users: BTreeSet<Referrer>| users.iter().map(|(kind, key)| format!("{kind}/{key}")).collect::<Vec<_>>();
        let of = |namespace: &str| found(index.of(RefKind::RemoteMCPServer, &Key::new(namespace, "docs")));
        assert_eq!(of("tools"), ["Agent/ns/a", "Tool/ns/t"]);
        assert_eq!(of("ns"), ["Tool/ns/own"]);
        assert_eq!(found(index.of_namespace("ns")), ["Agent/ns/a", "Tool/ns/t"]);
        assert_eq!(found(index.of_namespace("tools")), [""; 0]);
        let ask = json!({ "name": "t", "type": "agent", "agentRef": { "name": "seller", "namespace": "shop" } });
        change::<Tool>(&index, "t", tool(server.clone()), Some(ask.clone()));
        assert_eq!(found(index.of(RefKind::Agent, &Key::new("shop", "seller"))), ["Agent/ns/a", "Tool/ns/t"]);
        assert_eq!(found(index.of_namespace("ns")), ["Agent/ns/a", "Tool/ns/t"]);
        change::<Tool>(&index, "t", Some(ask), tool(server.clone()));
        change::<Tool>(&index, "t", tool(server), None);
        assert_eq!(found(index.of_namespace("ns")), [""; 0]);
    }

    #[test]
    fn what_is_called_passes_on_nothing_and_a_circle_ends() {
        let index = Referrers::default();
        let calls = |agent: &str| json!({ "name": "t", "type": "agent", "agentRef": { "name": agent } });
        change::<Tool>(&index, "t", None, Some(calls("b")));
        change::<Tool>(&index, "u", None, Some(calls("a")));
        change::<Agent>(&index, "a", None, Some(agent(json!({ "tools": ["t"] }))));
        change::<Agent>(&index, "b", None, Some(agent(json!({ "tools": ["u"], "promptRef": { "name": "p" } }))));
        assert_eq!(users(&index, RefKind::Prompt, "p"), ["Agent/b"], "who calls the agent does not read its prompt");
        assert_eq!(users(&index, RefKind::Agent, "b"), ["Agent/a", "Tool/t"]);
    }
}
