//! The newest known version of each object of one kind.
//!
//! Two streams feed an [`ObjectMap`]: the kind's watch, and the answers to our own writes, which are usually earlier.
//! The newer resource version wins, whichever stream brought it. A deletion leaves a tombstone, so that an answer that
//! was overtaken by the deletion does not bring the object back; a relist is compared with what is held, so that a
//! deletion missed while disconnected still reaches the subscribers.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use meta::Key;
use tokio::time::Instant;

/// Longer than any answer to a write can be under way.
const TOMBSTONE_LIFE: Duration = Duration::from_secs(60);

/// What identifies one version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Namespace and name.
    pub key: Key,
    /// The uid.
    pub uid: String,
    /// The resource version, as a number.
    pub version: u64,
}

/// One version of an object.
#[derive(Debug)]
pub struct Seen<T> {
    /// Which one.
    pub head: Head,
    /// The object.
    pub object: Arc<T>,
}

impl<T> Seen<T> {
    /// That version of an object.
    pub fn new(head: Head, object: T) -> Self {
        Self { head, object: Arc::new(object) }
    }
}

/// Who brought a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The watch.
    Watch,
    /// The answer to a write of our own.
    Write,
    /// The watch, of a store that was put back to an earlier state: whatever looks the same may not be.
    Restored,
}

/// What changed, for subscribers.
#[derive(Debug)]
pub struct Change<T> {
    /// Which object.
    pub key: Key,
    /// The version known before; `None`: it is new.
    pub old: Option<Arc<T>>,
    /// The version known now; `None`: it is gone.
    pub new: Option<Arc<T>>,
    /// Who brought it.
    pub cause: Cause,
}

/// An object in a list.
#[derive(Debug)]
pub enum Listed<T> {
    /// It cannot be read.
    Unreadable(Head),
    /// Held already, in that version or a newer one.
    Known(Key),
    /// To be taken.
    New(Seen<T>),
}

type Subscriber<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;

/// The newest known version of each object of one kind.
///
/// Subscribers run while the map is locked, so that they see the changes of an object in their order. They must be
/// quick and must not read this map; they may lock other things that never lock this map.
pub struct ObjectMap<T> {
    inner: Mutex<Inner<T>>,
    subscribers: Mutex<Vec<Subscriber<T>>>,
}

struct Held<T> {
    version: u64,
    object: Arc<T>,
}

struct Inner<T> {
    live: HashMap<Key, Held<T>>,
    tombstones: HashMap<Key, u64>,
    burials: VecDeque<(Instant, Key, u64)>,
}

impl<T> fmt::Debug for ObjectMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectMap").field("len", &self.lock().live.len()).finish_non_exhaustive()
    }
}

impl<T> Default for ObjectMap<T> {
    fn default() -> Self {
        let inner = Inner { live: HashMap::new(), tombstones: HashMap::new(), burials: VecDeque::new() };
        Self { inner: Mutex::new(inner), subscribers: Mutex::new(Vec::new()) }
    }
}

impl<T> ObjectMap<T> {
    /// Calls this for every change from now on.
    pub fn subscribe(&self, subscriber: impl Fn(&Change<T>) + Send + Sync + 'static) {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(subscriber));
    }

    /// The newest version.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.lock().live.get(key).map(|seen| seen.object.clone())
    }

    /// The key of every object.
    pub fn keys(&self) -> Vec<Key> {
        self.lock().live.keys().cloned().collect()
    }

    /// The objects for which `wanted` says yes; it must be quick, the map is locked meanwhile.
    pub fn matching(&self, wanted: impl Fn(&Key, &T) -> bool) -> Vec<Arc<T>> {
        let inner = self.lock();
        let found = inner.live.iter().filter(|(key, held)| wanted(key, &held.object));
        found.map(|(_, held)| held.object.clone()).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.lock().live.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this version, or something newer, is known already, so that there is no need to decode it.
    pub fn knows(&self, head: &Head) -> bool {
        let inner = self.lock();
        let held = inner.live.get(&head.key).is_some_and(|held| held.version >= head.version);
        held || inner.is_buried(head)
    }

    /// Takes a version of an object, unless a newer one or its deletion is known.
    pub fn observe(&self, seen: Seen<T>, cause: Cause) {
        let mut inner = self.lock();
        let Seen { head, object } = seen;
        let stale = inner.live.get(&head.key).is_some_and(|held| held.version >= head.version);
        if stale || inner.is_buried(&head) {
            return;
        }
        let Head { key, version, .. } = head;
        let new = Some(object.clone());
        let old = inner.live.insert(key.clone(), Held { version, object }).map(|held| held.object);
        self.tell(&Change { key, old, new, cause });
    }

    /// Takes the deletion of an object as of this version.
    pub fn remove(&self, key: &Key, version: u64, cause: Cause) {
        let mut inner = self.lock();
        if inner.live.get(key).is_some_and(|held| held.version > version) {
            return;
        }
        inner.bury(key, version);
        if let Some(held) = inner.live.remove(key) {
            self.tell(&Change { key: key.clone(), old: Some(held.object), new: None, cause });
        }
    }

    /// Drops an object whose version cannot be read: nothing may be done by what it was before. The same version is taken once it can
    /// be read: a new CustomResourceDefinition changes what the API server says of it.
    pub fn drop_unreadable(&self, head: &Head, cause: Cause) {
        self.remove(&head.key, head.version.saturating_sub(1), cause);
    }

    /// Takes a complete list as of `version`, of one namespace or (`None`) of all: what is held but not listed is gone,
    /// unless it is newer than the list.
    pub fn replace(&self, namespace: Option<&str>, items: Vec<Listed<T>>, version: u64) {
        let mut listed = HashSet::with_capacity(items.len());
        for item in items {
            match item {
                Listed::Known(key) => {
                    listed.insert(key);
                }
                Listed::Unreadable(head) => {
                    self.drop_unreadable(&head, Cause::Watch);
                    listed.insert(head.key);
                }
                Listed::New(seen) => {
                    listed.insert(seen.head.key.clone());
                    self.observe(seen, Cause::Watch);
                }
            }
        }
        let inner = self.lock();
        let in_scope = |key: &Key| namespace.is_none_or(|only| only == key.namespace);
        let gone =
            inner.live.iter().filter(|(key, held)| in_scope(key) && held.version <= version && !listed.contains(*key));
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        drop(inner);
        for key in gone {
            self.remove(&key, version, Cause::Watch);
        }
    }

    /// Takes a complete list of a store that was put back to an earlier state: what is known of one namespace, or (`None`) of all,
    /// the answers to our own writes and the deletions included, is of a time that never was.
    pub fn rebuild(&self, namespace: Option<&str>, items: Vec<Seen<T>>) {
        let mut inner = self.lock();
        let in_scope = |key: &Key| namespace.is_none_or(|only| only == key.namespace);
        inner.tombstones.retain(|key, _| !in_scope(key));
        let listed: HashSet<&Key> = items.iter().map(|item| &item.head.key).collect();
        let gone: Vec<Key> = inner.live.keys().filter(|key| in_scope(key) && !listed.contains(key)).cloned().collect();
        for key in gone {
            let old = inner.live.remove(&key).map(|held| held.object);
            self.tell(&Change { key, old, new: None, cause: Cause::Restored });
        }
        for Seen { head: Head { key, version, .. }, object } in items {
            let new = Some(object.clone());
            let old = inner.live.insert(key.clone(), Held { version, object }).map(|held| held.object);
            self.tell(&Change { key, old, new, cause: Cause::Restored });
        }
    }

    fn tell(&self, change: &Change<T>) {
        for subscriber in self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            subscriber(change);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Inner<T> {
    fn is_buried(&self, head: &Head) -> bool {
        self.tombstones.get(&head.key).is_some_and(|version| *version >= head.version)
    }

    fn bury(&mut self, key: &Key, version: u64) {
        let now = Instant::now();
        while let Some((at, key, version)) = self.burials.front() {
            if now.duration_since(*at) < TOMBSTONE_LIFE {
                break;
            }
            if self.tombstones.get(key) == Some(version) {
                self.tombstones.remove(key);
            }
            self.burials.pop_front();
        }
        self.tombstones.insert(key.clone(), version);
        self.burials.push_back((now, key.clone(), version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_put_back_replaces_what_is_known_of_its_namespace() {
        let map = ObjectMap::default();
        for (name, version) in [("kept", 50), ("late", 60), ("gone", 40)] {
            map.observe(seen(name, version), Cause::Write);
        }
        map.remove(&Key::new("ns", "gone"), 70, Cause::Watch);
        map.observe(elsewhere(), Cause::Watch);
        map.rebuild(Some("ns"), vec![seen("kept", 7), seen("gone", 8)]);
        let key = |name: &str| Key::new("ns", name);
        let known = |name: &str| map.get(&key(name)).map(|version| *version);
        assert_eq!((known("kept"), known("late"), known("gone")), (Some(7), None, Some(8)));
        assert!(map.get(&elsewhere().head.key).is_some());
        map.observe(seen("kept", 9), Cause::Watch);
        assert_eq!(known("kept"), Some(9), "it follows again");
    }

    fn elsewhere() -> Seen<u64> {
        let head = Head { key: Key::new("other", "a"), uid: "u".into(), version: 90 };
        Seen::new(head, 90)
    }

    fn seen(name: &str, version: u64) -> Seen<u64> {
        Seen::new(Head { key: Key::new("ns", name), uid: "u".into(), version }, version)
    }

    fn log(map: &ObjectMap<u64>) -> Arc<Mutex<Vec<String>>> {
        let log = Arc::new(Mutex::new(Vec::new()));
        let sink = log.clone();
        map.subscribe(move |change| {
            sink.lock().unwrap().push(format!("{} {:?}->{:?}", change.key.name, change.old, change.new));
        });
        log
    }

    #[test]
    fn the_newer_version_wins_whoever_brings_it() {
        let map = ObjectMap::default();
        let log = log(&map);
        map.observe(seen("a", 5), Cause::Write);
        map.observe(seen("a", 4), Cause::Watch);
        map.observe(seen("a", 5), Cause::Watch);
        map.observe(seen("a", 10), Cause::Watch);
        assert_eq!(*log.lock().unwrap(), ["a None->Some(5)", "a Some(5)->Some(10)"]);
    }

    #[test]
    fn an_answer_overtaken_by_the_deletion_does_not_bring_the_object_back() {
        let map = ObjectMap::default();
        map.observe(seen("a", 5), Cause::Watch);
        map.remove(&Key::new("ns", "a"), 8, Cause::Watch);
        map.observe(seen("a", 7), Cause::Write);
        assert!(map.is_empty());
        map.observe(seen("a", 9), Cause::Watch);
        assert_eq!(map.len(), 1, "an object made again is newer");
    }

    #[test]
    fn a_deletion_older_than_what_is_held_changes_nothing() {
        let map = ObjectMap::default();
        map.observe(seen("a", 9), Cause::Write);
        map.remove(&Key::new("ns", "a"), 8, Cause::Watch);
        assert_eq!(map.len(), 1);
    }

    #[test]
    fn a_relist_delivers_the_deletion_that_was_missed() {
        let map = ObjectMap::default();
        for item in [seen("a", 1), seen("b", 2), seen("c", 30)] {
            map.observe(item, Cause::Write);
        }
        let log = log(&map);
        map.replace(None, vec![Listed::Known(Key::new("ns", "a"))], 20);
        assert_eq!(*log.lock().unwrap(), ["b Some(2)->None"], "c is newer than the list");
        map.replace(None, vec![Listed::New(seen("a", 21))], 40);
        assert_eq!(map.keys(), [Key::new("ns", "a")], "what no list confirms does not stay for ever");
    }

    #[test]
    fn a_version_that_could_not_be_read_is_taken_when_it_can() {
        let map = ObjectMap::default();
        map.observe(seen("a", 3), Cause::Watch);
        map.drop_unreadable(&seen("a", 5).head, Cause::Watch);
        assert_eq!(map.get(&Key::new("ns", "a")), None);
        map.replace(None, vec![Listed::Unreadable(seen("a", 5).head)], 9);
        map.observe(seen("a", 4), Cause::Write);
        assert_eq!(map.get(&Key::new("ns", "a")), None, "what it was before is over");
        map.replace(None, vec![Listed::New(seen("a", 5))], 9);
        assert_eq!(map.get(&Key::new("ns", "a")).as_deref(), Some(&5));
        map.drop_unreadable(&seen("a", 4).head, Cause::Watch);
        assert_eq!(map.get(&Key::new("ns", "a")).as_deref(), Some(&5), "a newer version is known");
    }

    #[test]
    fn a_relist_of_one_namespace_leaves_the_others() {
        let map = ObjectMap::default();
        map.observe(seen("a", 1), Cause::Watch);
        map.replace(Some("other"), Vec::new(), 20);
        assert_eq!(map.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn tombstones_do_not_pile_up() {
        let map = ObjectMap::<u64>::default();
        for name in 0..100 {
            map.remove(&Key::new("ns", name.to_string()), 1, Cause::Watch);
        }
        tokio::time::advance(TOMBSTONE_LIFE).await;
        map.remove(&Key::new("ns", "last"), 1, Cause::Watch);
        assert_eq!(map.lock().tombstones.len(), 1);
    }
}
