//! Informer caches: the newest version of each object of a kind, from a watch and from the responses to writes of the node's own.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt as _;
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch};

/// Pause after an error of a watch.
const RETRY: Duration = Duration::from_millis(100);

/// Namespace and name.
pub(crate) type Key = (String, String);

/// Objects of one kind.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    objects: Mutex<Objects<K>>,
    /// Notified of each change.
    changed: Arc<Notify>,
    is_listed: watch::Sender<bool>,
}

#[derive(Debug)]
struct Objects<K> {
    found: BTreeMap<Key, Arc<K>>,
    /// Objects of a list that is not complete yet.
    listed: HashMap<Key, Arc<K>>,
    /// Version up to which the watch has delivered every change.
    version: u64,
}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static> Cache<K> {
    /// Makes an empty cache, which notifies `changed` of each change.
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        let objects = Objects { found: BTreeMap::new(), listed: HashMap::new(), version: 0 };
        Self { objects: Mutex::new(objects), changed, is_listed: watch::Sender::new(false) }
    }

    /// Follows the objects of an API for ever.
    pub(crate) async fn follow(&self, api: Api<K>) {
        let mut events = watcher(api, watcher::Config::default()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.apply(event),
                Err(error) => {
                    tracing::debug!(%error, "watch");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits until the objects have been listed.
    pub(crate) async fn listed(&self) {
        // Cannot fail: the sender is ours.
        let _ = self.is_listed.subscribe().wait_for(|is_listed| *is_listed).await;
    }

    fn apply(&self, event: Event<K>) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => objects.listed.clear(),
            Event::InitApply(object) => {
                objects.version = objects.version.max(version(&object));
                objects.listed.insert(key(&object), Arc::new(object));
                return;
            }
            Event::InitDone => {
                objects.found = std::mem::take(&mut objects.listed).into_iter().collect();
                self.is_listed.send_replace(true);
            }
            Event::Apply(object) => {
                objects.version = objects.version.max(version(&object));
                let known = objects.found.get(&key(&object)).map_or(0, |known| version(known.as_ref()));
                if known > version(&object) {
                    return;
                }
                objects.found.insert(key(&object), Arc::new(object));
            }
            Event::Delete(object) => {
                objects.version = objects.version.max(version(&object));
                objects.found.remove(&key(&object));
            }
        }
        drop(objects);
        self.changed.notify_one();
    }

    /// Takes the response to a write. One that the watch has passed is ignored, because the object may be gone by now.
    pub(crate) fn observe(&self, object: K) {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let known = objects.found.get(&key(&object)).map_or(0, |known| version(known.as_ref()));
        if version(&object) > objects.version.max(known) {
            objects.found.insert(key(&object), Arc::new(object));
            drop(objects);
            self.changed.notify_one();
        }
    }

    /// Returns an object.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.found.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Returns every object, by namespace and name.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).found.values().cloned().collect()
    }
}

fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
}

fn version<K: Resource>(object: &K) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn map(name: &str, version: u64) -> ConfigMap {
        serde_json::from_value(
            json!({ "metadata": { "namespace": "ns", "name": name, "resourceVersion": version.to_string() } }),
        )
        .unwrap()
    }

    fn seen(cache: &Cache<ConfigMap>) -> Vec<String> {
        cache.all().iter().map(|map| format!("{}@{}", map.name_any(), version(map.as_ref()))).collect()
    }

    #[test]
    fn the_newest_version_counts_and_what_is_gone_does_not_come_back() {
        let cache = Cache::new(Arc::default());
        cache.apply(Event::Init);
        cache.apply(Event::InitApply(map("a", 3)));
        assert_eq!(seen(&cache), Vec::<String>::new(), "a list counts when it is complete");
        cache.apply(Event::InitDone);
        cache.observe(map("a", 5));
        cache.apply(Event::Apply(map("a", 4)));
        assert_eq!(seen(&cache), ["a@5"], "the response is newer than the watch");
        cache.observe(map("b", 6));
        cache.apply(Event::Apply(map("a", 5)));
        cache.apply(Event::Apply(map("b", 6)));
        cache.apply(Event::Delete(map("b", 8)));
        cache.observe(map("b", 7));
        assert_eq!(seen(&cache), ["a@5"], "a response that comes late");
        cache.apply(Event::Init);
        cache.apply(Event::InitApply(map("c", 9)));
        cache.apply(Event::InitDone);
        assert_eq!(seen(&cache), ["c@9"], "what is not in a list is gone");
    }
}
