//! The objects in memory, and a ring of their last changes. Every write takes the next version of the whole store.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use crate::object::set_metadata;

/// Version of an empty store. An apply with the version `1` means "only if it is not there": no object ever has it.
const FIRST_VERSION: u64 = 100;
/// Changes that are kept for watches.
pub(crate) const KEPT_CHANGES: usize = 4096;

/// Place of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Index of the kind in whose form it is stored.
    pub(crate) kind: usize,
    /// Namespace; empty for objects that are in none.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
}

/// One change. `old` is missing for a creation; `new` is missing for a deletion.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) old: Option<Arc<Value>>,
    pub(crate) new: Option<Arc<Value>>,
}

/// Every object, and the last changes.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    changes: VecDeque<Change>,
    /// Version of the last change that is not kept any more.
    forgotten: u64,
}

impl Store {
    /// Makes an empty store.
    pub(crate) fn new() -> Self {
        Self { version: FIRST_VERSION, objects: BTreeMap::new(), changes: VecDeque::new(), forgotten: FIRST_VERSION }
    }

    /// Returns the version of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns an object.
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// Returns every object, by kind, namespace and name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.iter()
    }

    /// Returns the objects of a kind, by namespace and name.
    pub(crate) fn of_kind(&self, kind: usize) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let first = Key { kind, namespace: String::new(), name: String::new() };
        self.objects.range(first..).take_while(move |(key, _)| key.kind == kind)
    }

    /// Stores an object under the next version, which it gets, and returns it.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        set_metadata(&mut object, "resourceVersion", Some(self.version.to_string().into()));
        let object = Arc::new(object);
        let old = self.objects.insert(key.clone(), object.clone());
        self.record(Change { version: self.version, key, old, new: Some(object.clone()) });
        object
    }

    /// Removes an object, and returns it as it was.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let old = self.objects.remove(key)?;
        self.version += 1;
        self.record(Change { version: self.version, key: key.clone(), old: Some(old.clone()), new: None });
        Some(old)
    }

    fn record(&mut self, change: Change) {
        self.changes.push_back(change);
        if self.changes.len() > KEPT_CHANGES
            && let Some(oldest) = self.changes.pop_front()
        {
            self.forgotten = oldest.version;
        }
    }

    /// Returns the changes after a version, oldest first.
    ///
    /// # Errors
    /// The version of the oldest change that is kept, if some of the changes that are asked for are not.
    pub(crate) fn changes_after(&self, version: u64) -> Result<impl Iterator<Item = &Change>, u64> {
        if version < self.forgotten {
            return Err(self.forgotten);
        }
        let start = self.changes.partition_point(|change| change.version <= version);
        Ok(self.changes.range(start..))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> Key {
        Key { kind: 1, namespace: "a".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn changes_that_are_not_kept_are_not_passed_over() {
        let mut store = Store::new();
        let first = store.version();
        for _ in 0..KEPT_CHANGES {
            store.put(key("x"), json!({}));
        }
        assert_eq!(store.changes_after(first).map(Iterator::count), Ok(KEPT_CHANGES));
        store.remove(&key("x"));
        assert_eq!(store.changes_after(first).map(Iterator::count), Err(first + 1));
        assert_eq!(store.changes_after(first + 1).map(Iterator::count), Ok(KEPT_CHANGES));
        assert_eq!(store.changes_after(store.version()).map(Iterator::count), Ok(0));
    }

    #[test]
    fn a_kind_is_listed_without_its_neighbours() {
        let mut store = Store::new();
        for kind in [0, 1, 2] {
            for name in ["b", "a"] {
                store.put(Key { kind, ..key(name) }, json!({}));
            }
        }
        let names: Vec<_> = store.of_kind(1).map(|(key, _)| (key.kind, key.name.as_str())).collect();
        assert_eq!(names, [(1, "a"), (1, "b")]);
    }
}
