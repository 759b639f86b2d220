//! The garbage collector and the end of namespaces: what follows from a write is done before its response.
//!
//! Compares owners by uid alone. An object whose owners are all gone is deleted; one of which some are there loses the
//! references to the others. Looks only at the objects that a change concerns, which the store has noted.

use serde_json::Value;

use crate::{
    delete::{FOREGROUND, ORPHAN},
    key::StoreKey,
    object::{items, set_finalizers, set_metadata, text},
    options::{DeleteOptions, Propagation},
    snapshot::{Owner, Snapshot},
    write::Request,
};

/// One consequence.
#[derive(Debug, PartialEq)]
enum CollectorStep {
    /// The object is deleted, and its dependents as said.
    Delete(StoreKey, Option<Propagation>),
    /// The object keeps the references to these owners only.
    Disown(StoreKey, Vec<Owner>),
    /// The object keeps these finalizers only.
    Release(StoreKey, Vec<String>),
    /// The object is removed.
    Remove(StoreKey),
}

impl Request<'_> {
    /// Does what follows from the changes so far, until nothing follows any more.
    pub(crate) fn settle(&mut self) {
        while let Some(key) = self.store.take_dirty() {
            for step in self.steps(&key) {
                self.take(step);
            }
        }
    }

    fn take(&mut self, step: CollectorStep) {
        let now = self.now;
        match step {
            CollectorStep::Delete(key, propagation) => {
                self.mark(&key, &DeleteOptions { propagation, ..DeleteOptions::default() });
            }
            CollectorStep::Disown(key, owners) => {
                let Some(mut object) = self.store.object(&key) else { return };
                let is_kept = |reference: &&Value| owners.iter().any(|owner| owner.uid == text(reference, "/uid"));
                let kept = items(&object, "/metadata/ownerReferences").iter().filter(is_kept).cloned().collect();
                set_metadata(&mut object, "ownerReferences", (!owners.is_empty()).then_some(Value::Array(kept)));
                self.store.put(key, object, now);
            }
            CollectorStep::Release(key, finalizers) => {
                let Some(mut object) = self.store.object(&key) else { return };
                set_finalizers(&mut object, &finalizers);
                self.store.put(key, object, now);
            }
            CollectorStep::Remove(key) => self.store.remove(&key),
        }
    }

    /// Returns what follows for an object. A step that changes it makes it looked at again.
    fn steps(&self, key: &StoreKey) -> Vec<CollectorStep> {
        let Some(object) = self.store.get(key) else { return Vec::new() };
        let step = self.dependent_step(key, object);
        let step = step.or_else(|| if object.is_deleting { self.owner_step(key, object) } else { None });
        match step {
            Some(step) => vec![step],
            None if object.is_deleting && self.is_namespace(key) => self.namespace_steps(key, object),
            None => Vec::new(),
        }
    }

    fn is_namespace(&self, key: &StoreKey) -> bool {
        self.kinds.get(key.kind).is_some_and(|kind| kind.name == "Namespace")
    }

    /// Returns the object with a uid.
    fn owner(&self, uid: &str) -> Option<&Snapshot> {
        self.store.get(self.store.owners().place(uid)?).map(AsRef::as_ref)
    }

    /// Returns what the state of its owners means for an object.
    fn dependent_step(&self, key: &StoreKey, object: &Snapshot) -> Option<CollectorStep> {
        if object.owners.is_empty() {
            return None;
        }
        let waits = |owner: &Snapshot, finalizer: &str| {
            owner.is_deleting && owner.finalizers.iter().any(|name| name == finalizer)
        };
        let orphaned = |owner: &&Owner| self.owner(&owner.uid).is_some_and(|owner| waits(owner, ORPHAN));
        if object.owners.iter().any(|owner| orphaned(&owner)) {
            let kept = object.owners.iter().filter(|owner| !orphaned(owner)).cloned().collect();
            return Some(CollectorStep::Disown(key.clone(), kept));
        }
        let is_solid = |owner: &&Owner| self.owner(&owner.uid).is_some_and(|owner| !waits(owner, FOREGROUND));
        let solid: Vec<Owner> = object.owners.iter().filter(is_solid).cloned().collect();
        if !solid.is_empty() {
            return (solid.len() < object.owners.len()).then(|| CollectorStep::Disown(key.clone(), solid));
        }
        if object.is_deleting {
            return None;
        }
        // An owner waits for it, and it has dependents of its own: they go first, too.
        let has_dependents = self.store.owners().dependents(&object.uid).next().is_some();
        let is_waited_for = has_dependents && object.owners.iter().any(|owner| self.owner(&owner.uid).is_some());
        Some(CollectorStep::Delete(key.clone(), is_waited_for.then_some(Propagation::Foreground)))
    }

    /// Returns the step that ends the wait of an owner that is being deleted, if no dependent blocks it any more.
    fn owner_step(&self, key: &StoreKey, owner: &Snapshot) -> Option<CollectorStep> {
        let has = |finalizer: &str| owner.finalizers.iter().any(|name| name == finalizer);
        let finalizer = if has(ORPHAN) { ORPHAN } else { FOREGROUND };
        let blocks = |reference: &Owner| reference.uid == owner.uid && (finalizer == ORPHAN || reference.blocks);
        let mut dependents = self.store.owners().dependents(&owner.uid).filter_map(|key| self.store.get(key));
        if !has(finalizer) || dependents.any(|object| object.owners.iter().any(blocks)) {
            return None;
        }
        let rest: Vec<String> = owner.finalizers.iter().filter(|name| *name != finalizer).cloned().collect();
        if rest.is_empty() && !self.is_namespace(key) && !owner.has_grace {
            return Some(CollectorStep::Remove(key.clone()));
        }
        Some(CollectorStep::Release(key.clone(), rest))
    }

    /// Empties a namespace that is being deleted, and removes it when it is empty.
    fn namespace_steps(&self, key: &StoreKey, namespace: &Snapshot) -> Vec<CollectorStep> {
        let mut is_empty = true;
        let mut steps = Vec::new();
        for kind in (0..self.kinds.len()).filter(|kind| *kind != key.kind) {
            for (key, object) in self.store.list(kind, &key.name) {
                is_empty = false;
                if !object.is_deleting {
                    steps.push(CollectorStep::Delete(key.clone(), Some(Propagation::Background)));
                }
            }
        }
        if is_empty && namespace.finalizers.is_empty() {
            steps.push(CollectorStep::Remove(key.clone()));
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        kinds,
        options::{FieldValidation, WriteOptions},
        patch::PatchType,
        store::Store,
        target::Target,
    };

    /// Names of objects; those with an odd index are Pods on a node, which have time to end.
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

    #[derive(Debug, Clone)]
    enum Act {
        Create { name: usize, owners: Vec<usize>, blocks: bool, waits: bool },
        Delete(usize, Option<Propagation>),
        Kill(usize),
        Release(usize),
        EndNamespace,
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let name = 0..NAMES.len();
        let propagation = prop_oneof![
            Just(None::<Propagation>),
            Just(Some(Propagation::Background)),
            Just(Some(Propagation::Foreground)),
            Just(Some(Propagation::Orphan)),
        ];
        let create = (name.clone(), proptest::collection::vec(name.clone(), 0..3), any::<bool>(), any::<bool>());
        let act = prop_oneof![
            6 => create.prop_map(|(name, owners, blocks, waits)| Act::Create { name, owners, blocks, waits }),
            3 => (name.clone(), propagation).prop_map(|(name, propagation)| Act::Delete(name, propagation)),
            1 => name.clone().prop_map(Act::Kill),
            3 => name.prop_map(Act::Release),
            1 => Just(Act::EndNamespace),
        ];
        proptest::collection::vec(act, 1..30)
    }

    fn target(kind: &str, name: &str) -> Target {
        let kind = kinds::all().iter().position(|found| found.name == kind).unwrap();
        let namespace = if kinds::all()[kind].traits.cluster { "" } else { "n" };
        Target { kind, namespace: namespace.to_owned(), name: name.to_owned(), subresource: String::new() }
    }

    fn object(name: usize) -> Target {
        target(if name % 2 == 1 { "Pod" } else { "ConfigMap" }, NAMES[name])
    }

    /// Runs one act, and what follows. What the server refuses changes nothing.
    fn run(store: &mut Store, act: &Act) {
        let mut request = Request { kinds: kinds::all(), store, now: Timestamp::UNIX_EPOCH };
        let options =
            WriteOptions { dry_run: false, manager: "m".to_owned(), force: false, validation: FieldValidation::Strict };
        let collection = |target: &Target| Target { name: String::new(), ..target.clone() };
        let namespace = target("Namespace", "n");
        match act {
            Act::Create { name, owners, blocks, waits } => {
                let body = json!({ "metadata": { "name": "n" } });
                let _ = request.create(&collection(&namespace), body, &options);
                let owner = |owner: &usize| {
                    let found = request.store.get(&request.key(&object(*owner)));
                    let uid = found.map_or("gone", |found| found.uid.as_str());
                    json!({ "apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "blockOwnerDeletion": blocks })
                };
                let owners: Vec<Value> = owners.iter().map(owner).collect();
                let finalizers: &[&str] = if *waits { &["recif.dev/waits"] } else { &[] };
                let metadata = json!({ "name": NAMES[*name], "ownerReferences": owners, "finalizers": finalizers });
                let mut body = json!({ "metadata": metadata });
                if name % 2 == 1 {
                    body["spec"] = json!({ "nodeName": "node", "containers": [{ "name": "c", "image": "i" }] });
                }
                let _ = request.create(&collection(&object(*name)), body, &options);
            }
            Act::Delete(name, propagation) => {
                let options = DeleteOptions { propagation: *propagation, ..DeleteOptions::default() };
                let _ = request.delete(&object(*name), &options);
            }
            Act::Kill(name) => {
                let _ = request.delete(&object(*name), &DeleteOptions { grace: Some(0), ..DeleteOptions::default() });
            }
            Act::Release(name) => {
                let patch = br#"{"metadata":{"finalizers":null}}"#;
                let _ = request.patch(&object(*name), PatchType::Merge, patch, &options);
            }
            Act::EndNamespace => {
                let _ = request.delete(&namespace, &DeleteOptions::default());
            }
        }
        request.settle();
    }

    proptest! {
        #[test]
        fn nothing_follows_any_more_for_any_object_and_what_no_owner_holds_is_gone(acts in acts()) {
            let mut store = Store::new(kinds::all());
            for act in &acts {
                run(&mut store, act);
                let keys: Vec<StoreKey> =
                    (0..kinds::all().len()).flat_map(|kind| store.list(kind, "")).map(|(key, _)| key.clone()).collect();
                let request = Request { kinds: kinds::all(), store: &mut store, now: Timestamp::UNIX_EPOCH };
                for key in &keys {
                    // The store has noted only what the act concerned, but nothing was left out.
                    prop_assert_eq!(request.steps(key), vec![], "{:?} after {:?}", key, act);
                    let object = request.store.get(key).unwrap();
                    let is_held = object.owners.iter().all(|owner| request.owner(&owner.uid).is_some());
                    prop_assert!(is_held || object.is_deleting, "{key:?} is left of its owners after {act:?}");
                }
            }
        }
    }
}
