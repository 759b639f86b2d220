//! The objects in memory. Every write takes the next version of the whole store, and is recorded: for watches in the ring of
//! changes, for the garbage collector in the index of owners and in the set of objects that it has to look at.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    key::StoreKey,
    kinds::Kind,
    object::set_metadata,
    owners::OwnerIndex,
    ring::{Change, Ring},
    snapshot::Snapshot,
};

/// Version of an empty store. An apply with the version `1` means "only if it is not there": no object ever has it.
const FIRST_VERSION: u64 = 100;
/// Time after which an Event that nothing changes is removed: the default of `kube-apiserver --event-ttl`.
const EVENT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// Every object, and the last changes.
#[derive(Debug)]
pub(crate) struct Store {
    kinds: &'static [Kind],
    version: u64,
    objects: BTreeMap<StoreKey, Arc<Snapshot>>,
    owners: OwnerIndex,
    ring: Ring,
    /// Versions of Events by the time of their removal, in order.
    expiries: VecDeque<(Timestamp, StoreKey, u64)>,
    /// Objects that the garbage collector has to look at.
    dirty: BTreeSet<StoreKey>,
    /// Kinds whose watches are to be woken.
    changed: BTreeSet<usize>,
}

impl Store {
    /// Makes an empty store.
    pub(crate) fn new(kinds: &'static [Kind]) -> Self {
        Self {
            kinds,
            version: FIRST_VERSION,
            objects: BTreeMap::new(),
            owners: OwnerIndex::default(),
            ring: Ring::new(kinds.len(), FIRST_VERSION),
            expiries: VecDeque::new(),
            dirty: BTreeSet::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Returns the version of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the snapshot of an object.
    pub(crate) fn get(&self, key: &StoreKey) -> Option<&Arc<Snapshot>> {
        self.objects.get(key)
    }

    /// Returns an object.
    pub(crate) fn object(&self, key: &StoreKey) -> Option<Value> {
        Some(self.objects.get(key)?.object(&self.kinds[key.kind]))
    }

    /// Returns the objects of a kind in a namespace, or in all if it is empty, by namespace and name.
    pub(crate) fn list(&self, kind: usize, namespace: &str) -> impl Iterator<Item = (&StoreKey, &Arc<Snapshot>)> {
        let first = StoreKey { kind, namespace: namespace.to_owned(), name: String::new() };
        let end = first.clone();
        let is_in =
            move |key: &StoreKey| key.kind == kind && (end.namespace.is_empty() || key.namespace == end.namespace);
        self.objects.range(first..).take_while(move |(key, _)| is_in(key))
    }

    /// Returns the index of owners.
    pub(crate) fn owners(&self) -> &OwnerIndex {
        &self.owners
    }

    /// Returns the changes of a kind after a version: see [`Ring::after`].
    pub(crate) fn changes_after(&self, kind: usize, version: u64) -> Result<impl Iterator<Item = &Change>, u64> {
        self.ring.after(kind, version)
    }

    /// Stores an object at a time under the next version, which it gets, and returns it.
    pub(crate) fn put(&mut self, key: StoreKey, mut object: Value, now: Timestamp) -> Value {
        self.version += 1;
        set_metadata(&mut object, "resourceVersion", Some(self.version.to_string().into()));
        let kind = &self.kinds[key.kind];
        let new = Arc::new(Snapshot::of(kind, &mut object));
        if kind.name == "Event" {
            self.expiries.push_back((now + EVENT_LIFETIME, key.clone(), self.version));
        }
        let old = self.objects.insert(key.clone(), new.clone());
        self.record(key, old, Some(new));
        object
    }

    /// Removes an object, if it is there.
    pub(crate) fn remove(&mut self, key: &StoreKey) {
        let Some(old) = self.objects.remove(key) else { return };
        self.version += 1;
        self.record(key.clone(), Some(old), None);
    }

    /// Removes the Events that nothing has changed for their lifetime. Called before each request, it needs no timers.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        while let Some((_, key, version)) = self.expiries.pop_front_if(|(at, _, _)| *at <= now) {
            if self.objects.get(&key).is_some_and(|found| found.version == version) {
                self.remove(&key);
            }
        }
    }

    /// Takes an object that the garbage collector has to look at, because it or its owners, dependents or content have changed.
    pub(crate) fn take_dirty(&mut self) -> Option<StoreKey> {
        self.dirty.pop_first()
    }

    /// Takes the kinds whose objects have changed.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.changed)
    }

    fn record(&mut self, key: StoreKey, old: Option<Arc<Snapshot>>, new: Option<Arc<Snapshot>>) {
        self.owners.update(&key, old.as_deref(), new.as_deref());
        self.mark_dirty(&key, old.as_deref(), new.as_deref());
        self.changed.insert(key.kind);
        self.ring.push(Change { version: self.version, key, old, new });
    }

    /// Notes what the garbage collector has to look at after a change.
    fn mark_dirty(&mut self, key: &StoreKey, old: Option<&Snapshot>, new: Option<&Snapshot>) {
        for owner in old.into_iter().chain(new).flat_map(|object| &object.owners) {
            self.dirty.extend(self.owners.place(&owner.uid).cloned());
        }
        // What an object that stays does not change for its dependents.
        if let Some(last) = new.or(old).filter(|last| new.is_none() || last.is_deleting) {
            self.dirty.extend(self.owners.dependents(&last.uid).cloned());
        }
        let is_namespace = |kind: &Kind| kind.name == "Namespace";
        if let Some(kind) = self.kinds.iter().position(is_namespace).filter(|_| !key.namespace.is_empty()) {
            let namespace = StoreKey { kind, namespace: String::new(), name: key.namespace.clone() };
            let is_ending = self.objects.get(&namespace).is_some_and(|found| found.is_deleting);
            self.dirty.extend(is_ending.then_some(namespace));
        }
        self.dirty.extend(new.map(|_| key.clone()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{kinds, ring::KEPT_CHANGES};

    fn key(kind: usize, name: &str) -> StoreKey {
        StoreKey { kind, namespace: "a".to_owned(), name: name.to_owned() }
    }

    fn object() -> Value {
        json!({ "metadata": {} })
    }

    fn put(store: &mut Store, key: StoreKey) {
        store.put(key, object(), Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn changes_that_are_not_kept_are_not_passed_over() {
        let mut store = Store::new(kinds::all());
        let first = store.version();
        for _ in 0..KEPT_CHANGES {
            put(&mut store, key(1, "x"));
        }
        assert_eq!(store.changes_after(1, first).map(Iterator::count), Ok(KEPT_CHANGES));
        store.remove(&key(1, "x"));
        assert_eq!(store.changes_after(1, first).map(Iterator::count), Err(first + 1));
        assert_eq!(store.changes_after(1, first + 1).map(Iterator::count), Ok(KEPT_CHANGES));
        assert_eq!(store.changes_after(1, store.version()).map(Iterator::count), Ok(0));
    }

    #[test]
    fn a_kind_is_listed_without_its_neighbours() {
        let mut store = Store::new(kinds::all());
        for kind in [0, 1, 2] {
            for name in ["b", "a"] {
                put(&mut store, key(kind, name));
            }
            put(&mut store, StoreKey { namespace: "b".to_owned(), ..key(kind, "c") });
        }
        let names = |namespace| store.list(1, namespace).map(|(key, _)| (key.kind, &*key.name)).collect::<Vec<_>>();
        assert_eq!(names(""), [(1, "a"), (1, "b"), (1, "c")]);
        assert_eq!(names("a"), [(1, "a"), (1, "b")]);
        assert_eq!(names("c"), []);
    }

    #[test]
    fn an_event_expires_one_hour_after_its_last_change() {
        let mut store = Store::new(kinds::all());
        let kind = kinds::all().iter().position(|kind| kind.name == "Event").unwrap();
        let at = |minutes| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes);
        for (name, minutes) in [("a", 0), ("b", 0), ("b", 30)] {
            store.put(key(kind, name), object(), at(minutes));
        }
        put(&mut store, key(1, "map"));
        let names = |store: &Store| store.objects.keys().map(|key| key.name.clone()).collect::<Vec<_>>();
        for (minutes, expected) in
            [(59, &["map", "a", "b"][..]), (60, &["map", "b"]), (89, &["map", "b"]), (90, &["map"])]
        {
            store.expire(at(minutes));
            assert_eq!(names(&store), expected, "after {minutes} minutes");
        }
        assert!(store.expiries.is_empty());
        assert_eq!(store.changes_after(kind, 0).map(Iterator::count), Err(FIRST_VERSION));
        assert_eq!(store.changes_after(kind, FIRST_VERSION).map(Iterator::count), Ok(5), "watches learn of it");
    }

    #[test]
    fn the_collector_looks_only_at_what_a_change_concerns() {
        let mut store = Store::new(kinds::all());
        let with_uid =
            |uid: &str, owner: &str| json!({ "metadata": { "uid": uid, "ownerReferences": [{ "uid": owner }] } });
        let mut dirty_after = |change: &dyn Fn(&mut Store)| {
            change(&mut store);
            std::iter::from_fn(|| store.take_dirty()).map(|key| key.name).collect::<Vec<_>>()
        };
        let put = |name: &'static str, owner: &'static str| {
            move |store: &mut Store| drop(store.put(key(1, name), with_uid(name, owner), Timestamp::UNIX_EPOCH))
        };
        for (name, owner) in [("owner", "none"), ("child", "owner"), ("other", "none")] {
            dirty_after(&put(name, owner));
        }
        assert_eq!(
            dirty_after(&put("owner", "none")),
            ["owner"],
            "a change of an owner that stays is none for its dependents"
        );
        assert_eq!(dirty_after(&put("child", "owner")), ["child", "owner"]);
        assert_eq!(dirty_after(&|store| store.remove(&key(1, "owner"))), ["child"]);
        assert_eq!(dirty_after(&|store| store.remove(&key(1, "other"))), Vec::<String>::new());
    }
}
