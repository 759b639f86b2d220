//! The garbage collector and the end of namespaces: what follows from a write is done before its response.
//!
//! Compares owners by uid alone. An object whose owners are all gone is deleted; one of which some are there loses the
//! references to the others.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    delete::{FOREGROUND, ORPHAN},
    object::{finalizers, is_deleting, items, name, number, set_finalizers, set_metadata, text, uid},
    options::{DeleteOptions, Propagation},
    store::Key,
    write::Request,
};

/// One consequence.
#[derive(Debug, PartialEq)]
enum Step {
    /// The object is deleted, and its dependents as said.
    Delete(Key, Option<Propagation>),
    /// The object is stored as it is here.
    Put(Key, Value),
    /// The object is removed.
    Remove(Key),
}

impl Request<'_> {
    /// Does what follows from the state of the store, until nothing follows any more.
    pub(crate) fn settle(&mut self) {
        loop {
            let steps = self.next_steps();
            if steps.is_empty() {
                return;
            }
            let before = self.store.version();
            for step in steps {
                match step {
                    Step::Delete(key, propagation) => {
                        self.mark(&key, &DeleteOptions { propagation, ..DeleteOptions::default() });
                    }
                    Step::Put(key, object) => drop(self.store.put(key, object)),
                    Step::Remove(key) => drop(self.store.remove(&key)),
                }
            }
            if self.store.version() == before {
                return;
            }
        }
    }

    fn next_steps(&self) -> Vec<Step> {
        let by_uid: HashMap<&str, &Arc<Value>> = self.store.all().map(|(_, object)| (uid(object), object)).collect();
        let owners: HashSet<&str> = self
            .store
            .all()
            .flat_map(|(_, object)| items(object, "/metadata/ownerReferences"))
            .map(|reference| text(reference, "/uid"))
            .collect();
        let mut steps = Vec::new();
        for (key, object) in self.store.all() {
            steps.extend(dependent_step(key, object, &by_uid, &owners));
            if is_deleting(object) {
                steps.extend(self.owner_step(key, object));
            }
        }
        if steps.is_empty() { self.namespace_steps() } else { steps }
    }

    /// Returns the step that ends the wait of an owner that is being deleted, if no dependent blocks it any more.
    fn owner_step(&self, key: &Key, owner: &Value) -> Option<Step> {
        let has = |finalizer: &str| finalizers(owner).any(|name| name == finalizer);
        let finalizer = if has(ORPHAN) { ORPHAN } else { FOREGROUND };
        let is_blocked = |object: &Value| {
            items(object, "/metadata/ownerReferences").iter().any(|reference| {
                let blocks = finalizer == ORPHAN || reference["blockOwnerDeletion"] == Value::Bool(true);
                text(reference, "/uid") == uid(owner) && blocks
            })
        };
        if !has(finalizer) || self.store.all().any(|(_, object)| is_blocked(object)) {
            return None;
        }
        let rest: Vec<String> = finalizers(owner).filter(|name| *name != finalizer).map(str::to_owned).collect();
        let is_namespace = self.kinds.get(key.kind).is_some_and(|kind| kind.name == "Namespace");
        let has_grace = number(owner, "/metadata/deletionGracePeriodSeconds").unwrap_or_default() > 0;
        if rest.is_empty() && !is_namespace && !has_grace {
            return Some(Step::Remove(key.clone()));
        }
        let mut owner = owner.clone();
        set_finalizers(&mut owner, &rest);
        Some(Step::Put(key.clone(), owner))
    }

    /// Empties the namespaces that are being deleted, and removes those that are empty.
    fn namespace_steps(&self) -> Vec<Step> {
        let Some(kind) = self.kinds.iter().position(|kind| kind.name == "Namespace") else { return Vec::new() };
        let mut steps = Vec::new();
        for (key, namespace) in self.store.of_kind(kind).filter(|(_, namespace)| is_deleting(namespace)) {
            let content: Vec<_> = self.store.all().filter(|(other, _)| other.namespace == name(namespace)).collect();
            if content.is_empty() && finalizers(namespace).next().is_none() {
                steps.push(Step::Remove(key.clone()));
            }
            let waiting = content.into_iter().filter(|(_, object)| !is_deleting(object));
            steps.extend(waiting.map(|(key, _)| Step::Delete(key.clone(), Some(Propagation::Background))));
        }
        steps
    }
}

/// Returns what the state of its owners means for an object.
fn dependent_step(
    key: &Key,
    object: &Value,
    by_uid: &HashMap<&str, &Arc<Value>>,
    owners: &HashSet<&str>,
) -> Option<Step> {
    let references = items(object, "/metadata/ownerReferences");
    if references.is_empty() {
        return None;
    }
    let waits = |owner: &Value, finalizer: &str| is_deleting(owner) && finalizers(owner).any(|name| name == finalizer);
    let owner = |reference: &Value| by_uid.get(text(reference, "/uid")).copied();
    let orphaned = |reference: &&Value| owner(reference).is_some_and(|owner| waits(owner, ORPHAN));
    if references.iter().any(|reference| orphaned(&reference)) {
        let kept: Vec<Value> = references.iter().filter(|reference| !orphaned(reference)).cloned().collect();
        return Some(with_owners(key, object, kept));
    }
    let is_solid = |reference: &&Value| owner(reference).is_some_and(|owner| !waits(owner, FOREGROUND));
    let solid: Vec<Value> = references.iter().filter(is_solid).cloned().collect();
    if !solid.is_empty() {
        return (solid.len() < references.len()).then(|| with_owners(key, object, solid));
    }
    if is_deleting(object) {
        return None;
    }
    // An owner waits for it, and it has dependents of its own: they go first, too.
    let is_waited_for = owners.contains(uid(object)) && references.iter().any(|reference| owner(reference).is_some());
    Some(Step::Delete(key.clone(), is_waited_for.then_some(Propagation::Foreground)))
}

/// Gives an object other owners.
fn with_owners(key: &Key, object: &Value, references: Vec<Value>) -> Step {
    let mut object = object.clone();
    set_metadata(&mut object, "ownerReferences", (!references.is_empty()).then(|| references.into()));
    Step::Put(key.clone(), object)
}
