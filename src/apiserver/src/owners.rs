//! The index of owners: where the object of a uid is, and which objects name a uid as owner.

use std::collections::{BTreeSet, HashMap};

use crate::{key::StoreKey, snapshot::Snapshot};

/// Index of the objects in a store.
#[derive(Debug, Default)]
pub(crate) struct OwnerIndex {
    by_uid: HashMap<String, StoreKey>,
    dependents: HashMap<String, BTreeSet<StoreKey>>,
}

impl OwnerIndex {
    /// Takes up the change of an object; `old` is missing for a creation, `new` for a deletion.
    pub(crate) fn update(&mut self, key: &StoreKey, old: Option<&Snapshot>, new: Option<&Snapshot>) {
        if let Some(old) = old {
            self.by_uid.remove(&old.uid);
            for owner in &old.owners {
                if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                    dependents.remove(key);
                    if dependents.is_empty() {
                        self.dependents.remove(&owner.uid);
                    }
                }
            }
        }
        if let Some(new) = new {
            self.by_uid.insert(new.uid.clone(), key.clone());
            for owner in &new.owners {
                self.dependents.entry(owner.uid.clone()).or_default().insert(key.clone());
            }
        }
    }

    /// Returns the place of the object with a uid.
    pub(crate) fn place(&self, uid: &str) -> Option<&StoreKey> {
        self.by_uid.get(uid)
    }

    /// Returns the places of the objects that name a uid as owner.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &StoreKey> {
        self.dependents.get(uid).into_iter().flatten()
    }
}
