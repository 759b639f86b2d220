//! Who refers to what: a changed Tool, Secret or ConfigMap finds its users here, and nobody else is woken.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

use actions::machine::Key;
use crds::{Agent, RefKind, Reference, Tool, references::agent_references};

use crate::cluster::Change;

/// An object that may refer to others in its namespace.
pub trait Refers {
    /// What it refers to.
    fn references(&self) -> Vec<Reference>;
}

impl Refers for Agent {
    fn references(&self) -> Vec<Reference> {
        agent_references(self)
    }
}

impl Refers for Tool {
    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }
}

/// The objects of one kind by what they refer to.
#[derive(Debug, Default)]
pub struct Referrers(Mutex<HashMap<(RefKind, Key), BTreeSet<String>>>);

impl Referrers {
    /// Follows a change of a referring object.
    pub fn follow<K: Refers>(&self, change: &Change<K>) {
        let targets = |object: Option<&K>| -> BTreeSet<(RefKind, Key)> {
            let references = object.map(Refers::references).unwrap_or_default();
            references.into_iter().map(|found| (found.kind, Key::new(&change.key.namespace, found.name))).collect()
        };
        let (old, new) = (targets(change.old.as_deref()), targets(change.new.as_deref()));
        if old == new {
            return;
        }
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in old.difference(&new) {
            if let Some(names) = index.get_mut(gone) {
                names.remove(&change.key.name);
                if names.is_empty() {
                    index.remove(gone);
                }
            }
        }
        for target in new {
            index.entry(target).or_default().insert(change.key.name.clone());
        }
    }

    /// The keys of those that refer to this object.
    pub fn of(&self, kind: RefKind, key: &Key) -> Vec<Key> {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names = index.get(&(kind, key.clone()));
        names.into_iter().flatten().map(|name| Key::new(&key.namespace, name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::Cause;

    struct Fake(Vec<&'static str>);

    impl Refers for Fake {
        fn references(&self) -> Vec<Reference> {
            let tool = |name: &&str| Reference { kind: RefKind::Tool, name: (*name).into(), optional: false };
            self.0.iter().map(tool).collect()
        }
    }

    #[test]
    fn users_are_found_by_what_they_refer_to_now() {
        let index = Referrers::default();
        let change = |old: Option<Vec<&'static str>>, new: Option<Vec<&'static str>>| {
            let wrap = |tools: Option<Vec<&'static str>>| tools.map(|tools| Arc::new(Fake(tools)));
            index.follow(&Change { key: Key::new("ns", "a"), old: wrap(old), new: wrap(new), cause: Cause::Watch });
        };
        let users = |tool: &str| index.of(RefKind::Tool, &Key::new("ns", tool));
        change(None, Some(vec!["x", "y"]));
        assert_eq!(users("x"), [Key::new("ns", "a")]);
        assert_eq!(index.of(RefKind::Tool, &Key::new("other", "x")), []);
        change(Some(vec!["x", "y"]), Some(vec!["y", "z"]));
        assert_eq!((users("x").len(), users("y").len(), users("z").len()), (0, 1, 1));
        change(Some(vec!["y", "z"]), None);
        assert!(index.0.lock().unwrap().is_empty());
    }
}
