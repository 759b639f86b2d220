//! Informer cache of one kind: the newest known version of each object (a reflector store, as in
//! [client-go](https://pkg.go.dev/k8s.io/client-go/tools/cache)).
//!
//! Two streams feed an [`ObjectMap`]: the kind's watch, and the responses to our own writes, which usually arrive earlier. The newer
//! resource version wins, whichever stream brought it. A deletion leaves a tombstone, so that a response that was overtaken by the deletion
//! does not bring the object back. A relist is compared with the objects in the cache, so that a deletion missed while disconnected still
//! reaches the subscribers.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use meta::Key;
use tokio::time::Instant;

/// Lifetime of a tombstone: longer than the response to any write can be under way.
const TOMBSTONE_LIFE: Duration = Duration::from_secs(60);

/// Identity of one version of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion {
    /// Namespace and name.
    pub key: Key,
    /// The uid.
    pub uid: String,
    /// The resource version, as a number that can be compared.
    pub resource_version: u64,
}

/// One version of an object.
#[derive(Debug)]
pub struct Versioned<T> {
    /// Identity of the version.
    pub version: ObjectVersion,
    /// The object.
    pub object: Arc<T>,
}

impl<T> Versioned<T> {
    /// Pairs an object with its version.
    pub fn new(head: ObjectVersion, object: T) -> Self {
        Self { version: head, object: Arc::new(object) }
    }
}

/// Origin of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeSource {
    /// The watch.
    Watch,
    /// The response to a write of our own.
    Write,
    /// The watch, after the store of the API server was restored to an earlier state: an object that looks the same may be another one.
    Restored,
}

/// Change of one object, as subscribers receive it.
#[derive(Debug)]
pub struct Change<T> {
    /// Key of the object.
    pub key: Key,
    /// The version known before; `None` for a new object.
    pub old: Option<Arc<T>>,
    /// The version known from now on; `None` for an object that is gone or cannot be decoded.
    pub new: Option<Arc<T>>,
    /// Origin of the change.
    pub source: ChangeSource,
}

/// Item of a list.
#[derive(Debug)]
pub enum ListItem<T> {
    /// Object that cannot be decoded.
    Unreadable(ObjectVersion),
    /// Object of which this version or something newer (a later version, or the deletion) is known already.
    Known(Key),
    /// Object to be taken into the cache.
    New(Versioned<T>),
}

type Subscriber<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;

/// Informer cache: the newest known version of each object of one kind.
///
/// Subscribers run while the map is locked, so that they see the changes of an object in order. They must be quick and must not access this
/// map. They may take other locks, as long as no holder of such a lock locks this map.
#[doc(alias = "reflector store")]
pub struct ObjectMap<T> {
    inner: Mutex<ObjectMapState<T>>,
    subscribers: Mutex<Vec<Subscriber<T>>>,
}

struct StoredObject<T> {
    version: u64,
    object: Arc<T>,
}

/// Invariant: where a key has an object and a tombstone, the object is newer. `tombstone_queue` holds every tombstone, oldest first, and
/// also those that a later one replaced.
struct ObjectMapState<T> {
    objects: HashMap<Key, StoredObject<T>>,
    tombstones: HashMap<Key, u64>,
    tombstone_queue: VecDeque<(Instant, Key, u64)>,
}

impl<T> fmt::Debug for ObjectMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectMap").field("len", &self.lock().objects.len()).finish_non_exhaustive()
    }
}

impl<T> Default for ObjectMap<T> {
    fn default() -> Self {
        let inner =
            ObjectMapState { objects: HashMap::new(), tombstones: HashMap::new(), tombstone_queue: VecDeque::new() };
        Self { inner: Mutex::new(inner), subscribers: Mutex::new(Vec::new()) }
    }
}

impl<T> ObjectMap<T> {
    /// Registers a function that is called for every later change.
    pub fn subscribe(&self, subscriber: impl Fn(&Change<T>) + Send + Sync + 'static) {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(subscriber));
    }

    /// Returns the newest known version of an object.
    pub fn get(&self, key: &Key) -> Option<Arc<T>> {
        self.lock().objects.get(key).map(|seen| seen.object.clone())
    }

    /// Returns the keys of all objects.
    pub fn keys(&self) -> Vec<Key> {
        self.lock().objects.keys().cloned().collect()
    }

    /// Returns the objects for which `wanted` is true. It must be quick, because the map is locked meanwhile.
    pub fn matching(&self, wanted: impl Fn(&Key, &T) -> bool) -> Vec<Arc<T>> {
        let inner = self.lock();
        let found = inner.objects.iter().filter(|(key, held)| wanted(key, &held.object));
        found.map(|(_, held)| held.object.clone()).collect()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.lock().objects.len()
    }

    /// Reports whether the map holds no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reports whether this version or something newer (a later version, or the deletion) is known, so that there is no need to decode it.
    pub fn contains_version(&self, head: &ObjectVersion) -> bool {
        let inner = self.lock();
        let held = inner.objects.get(&head.key).is_some_and(|held| held.version >= head.resource_version);
        held || inner.has_tombstone(head)
    }

    /// Takes in a version of an object, unless that version, a newer one or the deletion is known.
    pub fn observe(&self, seen: Versioned<T>, cause: ChangeSource) {
        let mut inner = self.lock();
        let Versioned { version: head, object } = seen;
        let stale = inner.objects.get(&head.key).is_some_and(|held| held.version >= head.resource_version);
        if stale || inner.has_tombstone(&head) {
            return;
        }
        let ObjectVersion { key, resource_version: version, .. } = head;
        let new = Some(object.clone());
        let old = inner.objects.insert(key.clone(), StoredObject { version, object }).map(|held| held.object);
        self.notify(&Change { key, old, new, source: cause });
    }

    /// Takes in the deletion of an object as of this version and leaves a tombstone, unless a newer version is known.
    pub fn remove(&self, key: &Key, version: u64, cause: ChangeSource) {
        let mut inner = self.lock();
        if inner.objects.get(key).is_some_and(|held| held.version > version) {
            return;
        }
        inner.add_tombstone(key, version);
        if let Some(held) = inner.objects.remove(key) {
            self.notify(&Change { key: key.clone(), old: Some(held.object), new: None, source: cause });
        }
    }

    /// Drops an object whose version cannot be decoded, so that nothing acts on its earlier state. The same version is taken in once it can
    /// be decoded: a new CustomResourceDefinition changes how the API server returns it.
    pub fn drop_unreadable(&self, head: &ObjectVersion, cause: ChangeSource) {
        self.remove(&head.key, head.resource_version.saturating_sub(1), cause);
    }

    /// Takes in a relist: a complete list as of `version`, of one namespace or (`None`) of all. An object that is in the cache but not in
    /// the list is gone, unless it is newer than the list.
    pub fn replace(&self, namespace: Option<&str>, items: Vec<ListItem<T>>, version: u64) {
        let mut listed = HashSet::with_capacity(items.len());
        for item in items {
            match item {
                ListItem::Known(key) => {
                    listed.insert(key);
                }
                ListItem::Unreadable(head) => {
                    self.drop_unreadable(&head, ChangeSource::Watch);
                    listed.insert(head.key);
                }
                ListItem::New(seen) => {
                    listed.insert(seen.version.key.clone());
                    self.observe(seen, ChangeSource::Watch);
                }
            }
        }
        let inner = self.lock();
        let in_scope = |key: &Key| namespace.is_none_or(|only| only == key.namespace);
        let gone = inner
            .objects
            .iter()
            .filter(|(key, held)| in_scope(key) && held.version <= version && !listed.contains(*key));
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        drop(inner);
        for key in gone {
            self.remove(&key, version, ChangeSource::Watch);
        }
    }

    /// Takes in a complete list of a store that was restored to an earlier state. It replaces everything known of one namespace, or
    /// (`None`) of all, the responses to our own writes and the tombstones included, because that belongs to a history that is undone.
    pub fn rebuild(&self, namespace: Option<&str>, items: Vec<Versioned<T>>) {
        let mut inner = self.lock();
        let in_scope = |key: &Key| namespace.is_none_or(|only| only == key.namespace);
        inner.tombstones.retain(|key, _| !in_scope(key));
        let listed: HashSet<&Key> = items.iter().map(|item| &item.version.key).collect();
        let gone: Vec<Key> =
            inner.objects.keys().filter(|key| in_scope(key) && !listed.contains(key)).cloned().collect();
        for key in gone {
            let old = inner.objects.remove(&key).map(|held| held.object);
            self.notify(&Change { key, old, new: None, source: ChangeSource::Restored });
        }
        for Versioned { version: ObjectVersion { key, resource_version: version, .. }, object } in items {
            let new = Some(object.clone());
            let old = inner.objects.insert(key.clone(), StoredObject { version, object }).map(|held| held.object);
            self.notify(&Change { key, old, new, source: ChangeSource::Restored });
        }
    }

    fn notify(&self, change: &Change<T>) {
        for subscriber in self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            subscriber(change);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ObjectMapState<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> ObjectMapState<T> {
    fn has_tombstone(&self, head: &ObjectVersion) -> bool {
        self.tombstones.get(&head.key).is_some_and(|version| *version >= head.resource_version)
    }

    fn add_tombstone(&mut self, key: &Key, version: u64) {
        let now = Instant::now();
        while let Some((at, key, version)) = self.tombstone_queue.front() {
            if now.duration_since(*at) < TOMBSTONE_LIFE {
                break;
            }
            if self.tombstones.get(key) == Some(version) {
                self.tombstones.remove(key);
            }
            self.tombstone_queue.pop_front();
        }
        self.tombstones.insert(key.clone(), version);
        self.tombstone_queue.push_back((now, key.clone(), version));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_put_back_replaces_what_is_known_of_its_namespace() {
        let map = ObjectMap::default();
        for (name, version) in [("kept", 50), ("late", 60), ("gone", 40)] {
            map.observe(seen(name, version), ChangeSource::Write);
        }
        map.remove(&Key::new("ns", "gone"), 70, ChangeSource::Watch);
        map.observe(elsewhere(), ChangeSource::Watch);
        map.rebuild(Some("ns"), vec![seen("kept", 7), seen("gone", 8)]);
        let key = |name: &str| Key::new("ns", name);
        let known = |name: &str| map.get(&key(name)).map(|version| *version);
        assert_eq!((known("kept"), known("late"), known("gone")), (Some(7), None, Some(8)));
        assert!(map.get(&elsewhere().version.key).is_some());
        map.observe(seen("kept", 9), ChangeSource::Watch);
        assert_eq!(known("kept"), Some(9), "it follows again");
    }

    fn elsewhere() -> Versioned<u64> {
        let head = ObjectVersion { key: Key::new("other", "a"), uid: "u".into(), resource_version: 90 };
        Versioned::new(head, 90)
    }

    fn seen(name: &str, version: u64) -> Versioned<u64> {
        Versioned::new(ObjectVersion { key: Key::new("ns", name), uid: "u".into(), resource_version: version }, version)
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
    fn the_newer_version_wins_from_any_source() {
        let map = ObjectMap::default();
        let log = log(&map);
        map.observe(seen("a", 5), ChangeSource::Write);
        map.observe(seen("a", 4), ChangeSource::Watch);
        map.observe(seen("a", 5), ChangeSource::Watch);
        map.observe(seen("a", 10), ChangeSource::Watch);
        assert_eq!(*log.lock().unwrap(), ["a None->Some(5)", "a Some(5)->Some(10)"]);
    }

    #[test]
    fn an_answer_overtaken_by_the_deletion_does_not_bring_the_object_back() {
        let map = ObjectMap::default();
        map.observe(seen("a", 5), ChangeSource::Watch);
        map.remove(&Key::new("ns", "a"), 8, ChangeSource::Watch);
        map.observe(seen("a", 7), ChangeSource::Write);
        assert!(map.is_empty());
        map.observe(seen("a", 9), ChangeSource::Watch);
        assert_eq!(map.len(), 1, "an object made again is newer");
    }

    #[test]
    fn a_deletion_older_than_what_is_held_changes_nothing() {
        let map = ObjectMap::default();
        map.observe(seen("a", 9), ChangeSource::Write);
        map.remove(&Key::new("ns", "a"), 8, ChangeSource::Watch);
        assert_eq!(map.len(), 1);
    }

    #[test]
    fn a_relist_delivers_the_deletion_that_was_missed() {
        let map = ObjectMap::default();
        for item in [seen("a", 1), seen("b", 2), seen("c", 30)] {
            map.observe(item, ChangeSource::Write);
        }
        let log = log(&map);
        map.replace(None, vec![ListItem::Known(Key::new("ns", "a"))], 20);
        assert_eq!(*log.lock().unwrap(), ["b Some(2)->None"], "c is newer than the list");
        map.replace(None, vec![ListItem::New(seen("a", 21))], 40);
        assert_eq!(map.keys(), [Key::new("ns", "a")], "what no list confirms does not stay for ever");
    }

    #[test]
    fn a_version_that_could_not_be_read_is_taken_when_it_can() {
        let map = ObjectMap::default();
        map.observe(seen("a", 3), ChangeSource::Watch);
        map.drop_unreadable(&seen("a", 5).version, ChangeSource::Watch);
        assert_eq!(map.get(&Key::new("ns", "a")), None);
        map.replace(None, vec![ListItem::Unreadable(seen("a", 5).version)], 9);
        map.observe(seen("a", 4), ChangeSource::Write);
        assert_eq!(map.get(&Key::new("ns", "a")), None, "what it was before is over");
        map.replace(None, vec![ListItem::New(seen("a", 5))], 9);
        assert_eq!(map.get(&Key::new("ns", "a")).as_deref(), Some(&5));
        map.drop_unreadable(&seen("a", 4).version, ChangeSource::Watch);
        assert_eq!(map.get(&Key::new("ns", "a")).as_deref(), Some(&5), "a newer version is known");
    }

    #[test]
    fn a_relist_of_one_namespace_leaves_the_others() {
        let map = ObjectMap::default();
        map.observe(seen("a", 1), ChangeSource::Watch);
        map.replace(Some("other"), Vec::new(), 20);
        assert_eq!(map.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn tombstones_do_not_pile_up() {
        let map = ObjectMap::<u64>::default();
        for name in 0..100 {
            map.remove(&Key::new("ns", name.to_string()), 1, ChangeSource::Watch);
        }
        tokio::time::advance(TOMBSTONE_LIFE).await;
        map.remove(&Key::new("ns", "last"), 1, ChangeSource::Watch);
        assert_eq!(map.lock().tombstones.len(), 1);
    }
}
