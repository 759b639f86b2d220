//! The read model: every object of our kinds, once, and what changed since when.
//!
//! Each change gets the next number, its *stamp*, and an object stands in the journal under its newest stamp only. So whoever
//! says up to which stamp he read gets what changed since: the newest state of each object, however many changes he missed,
//! and no queue is kept for anybody. Deletions stay in the journal for a while; who asks for what was forgotten begins anew.

mod arguments;
mod columns;
mod credentials;
mod feed;
mod journal;
mod mask;
mod packed;
mod query;
mod record;
mod summary;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use cluster::Change;
use crds::{ApiKind, KINDS};
use journal::Journal;
use meta::{HistoryEntry, Key};
use tokio::sync::watch;

pub use columns::Column;
pub use credentials::MASKED;
pub use feed::{Batch, ChangedObject, Feed};
pub(super) use mask::mask_rendered;
pub use query::{Cursor, CursorError, FleetListing, KindVisibility, Phases, Selection, Sort, Visibility};
pub use record::{Record, RecordReference};
pub use summary::{Ready, Replicas, ServerFacts, Summary};

/// Every object of our kinds.
#[derive(Debug)]
pub struct FleetCache {
    inner: Mutex<FleetCacheState>,
    definitions: Mutex<BTreeMap<(u8, Key), Arc<str>>>,
    stamps: watch::Sender<u64>,
    epoch: Box<str>,
    live: AtomicBool,
}

#[derive(Debug)]
struct FleetCacheState {
    /// By the place of the kind in [`KINDS`].
    kinds: Vec<BTreeMap<Key, FleetEntry>>,
    /// What somebody should look at, in the order of kinds and names.
    attention: BTreeSet<(u8, Key)>,
    journal: Journal,
}

/// An object, and the stamp of its last change.
#[derive(Debug, Clone)]
pub struct FleetEntry {
    /// The stamp.
    pub stamp: u64,
    /// The object.
    pub record: Arc<Record>,
}

impl FleetCache {
    /// Nothing is known yet. Stamps of two epochs have nothing to do with one another.
    pub fn new(epoch: &str) -> Self {
        let inner = FleetCacheState {
            kinds: KINDS.iter().map(|_| BTreeMap::new()).collect(),
            attention: BTreeSet::new(),
            journal: Journal::default(),
        };
        Self {
            inner: Mutex::new(inner),
            definitions: Mutex::default(),
            stamps: watch::Sender::new(0),
            epoch: epoch.into(),
            live: AtomicBool::new(false),
        }
    }

    /// From now on what comes is news: before, objects were only met, and their steps happened long ago.
    pub fn go_live(&self) {
        self.live.store(true, Relaxed);
    }

    /// Which run of the process this is.
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Follows a change of an object of the kind in this place of [`KINDS`].
    pub fn apply_change(&self, row: u8, change: &Change<Record>) {
        let inner = match (&change.new, &change.old) {
            (Some(new), old) => {
                // Of another object of that name, every entry is new.
                let told = old.as_ref().filter(|old| old.uid == new.uid).map_or(0, |old| old.seq);
                let moves = if self.live.load(Relaxed) { new.history_after(told) } else { Vec::new() };
                let mut inner = self.lock();
                inner.put(row, new.clone(), moves);
                inner
            }
            (None, Some(old)) => {
                let mut inner = self.lock();
                inner.remove(row, old.clone());
                inner
            }
            (None, None) => return,
        };
        self.stamps.send_replace(inner.journal.last());
    }

    /// Takes the definitions of a server's tools, as the ConfigMap with them holds them; `None`: it is gone. A change of them
    /// is a change of the server.
    pub fn set_tools(&self, server: &'static ApiKind, key: &Key, definitions: Option<Arc<str>>) {
        let Some(row) = row(server) else { return };
        let place = (row, key.clone());
        {
            let mut known = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
            if known.get(&place) == definitions.as_ref() {
                return;
            }
            match definitions {
                Some(text) => drop(known.insert(place, text)),
                None => drop(known.remove(&place)),
            }
        }
        let mut inner = self.lock();
        let server = inner.kinds.get(usize::from(row)).and_then(|kind| kind.get(key)).cloned();
        if let Some(FleetEntry { record, .. }) = server {
            inner.put(row, record, Vec::new());
            self.stamps.send_replace(inner.journal.last());
        }
    }

    /// The definitions of a server's tools: a JSON array of `{name, description, inputSchema, …}`.
    pub fn tools(&self, kind: &str, key: &Key) -> Option<Arc<str>> {
        let row = row(ApiKind::find(kind)?)?;
        let known = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(row, key.clone())).cloned()
    }

    /// The object of that kind and name.
    pub fn get(&self, kind: &ApiKind, key: &Key) -> Option<FleetEntry> {
        let row = row(kind)?;
        self.lock().kinds.get(usize::from(row))?.get(key).cloned()
    }

    /// The objects of a kind in a namespace that the object of this uid made.
    pub fn owned_by(&self, kind: &str, namespace: &str, owner: &str) -> Vec<Arc<Record>> {
        let Some(row) = ApiKind::find(kind).and_then(row) else { return Vec::new() };
        let inner = self.lock();
        let kind = inner.kinds.get(usize::from(row)).into_iter();
        let there = kind.flat_map(|kind| {
            let from = Key::new(namespace, "");
            kind.range(from..).take_while(|(key, _)| key.namespace == namespace).map(|(_, entry)| &entry.record)
        });
        there.filter(|record| record.owner.as_deref() == Some(owner)).cloned().collect()
    }

    /// Every object, by kind and name, and the stamp of the last change in them.
    pub fn snapshot(&self) -> (u64, Vec<Arc<Record>>) {
        let inner = self.lock();
        (inner.journal.last(), inner.all().map(|entry| entry.record.clone()).collect())
    }

    /// What changes from the beginning on: first every object, then each change.
    pub fn feed(self: &Arc<Self>) -> Feed {
        Feed::new(self.clone(), 0)
    }

    /// What changes after this stamp; `None`: see [`FleetCache::knows`].
    pub fn feed_after(self: &Arc<Self>, stamp: u64) -> Option<Feed> {
        self.knows(stamp).then(|| Feed::new(self.clone(), stamp))
    }

    /// Whether everything is known that changed after this stamp: not if it is from another epoch, or too much was forgotten
    /// since.
    pub fn knows(&self, stamp: u64) -> bool {
        self.lock().journal.knows(stamp)
    }

    /// The stamp of the last change, as it grows.
    pub fn stamps(&self) -> watch::Receiver<u64> {
        self.stamps.subscribe()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.lock().kinds.iter().map(BTreeMap::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the oldest change after this stamp was seen, as far as its object did not change again; `None`: there is none.
    pub fn oldest_after(&self, stamp: u64) -> Option<Instant> {
        self.lock().journal.oldest_after(stamp)
    }

    /// The stamp of the last change.
    pub fn last(&self) -> u64 {
        self.lock().journal.last()
    }

    fn lock(&self) -> MutexGuard<'_, FleetCacheState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FleetCacheState {
    fn put(&mut self, row: u8, record: Arc<Record>, moves: Vec<HistoryEntry>) {
        let Some(kind) = self.kinds.get_mut(usize::from(row)) else { return };
        let place = (row, record.key.clone());
        if record.attention {
            self.attention.insert(place.clone());
        } else {
            self.attention.remove(&place);
        }
        let before = kind.get(&record.key).map(|entry| entry.stamp);
        let stamp = self.journal.applied(before, record.clone(), moves);
        kind.insert(place.1, FleetEntry { stamp, record });
    }

    fn remove(&mut self, row: u8, record: Arc<Record>) {
        let Some(kind) = self.kinds.get_mut(usize::from(row)) else { return };
        let before = kind.remove(&record.key).map(|entry| entry.stamp);
        self.attention.remove(&(row, record.key.clone()));
        self.journal.deleted(before, record);
    }

    /// Every object, by kind and name.
    fn all(&self) -> impl Iterator<Item = &FleetEntry> {
        self.kinds.iter().flat_map(BTreeMap::values)
    }
}

/// The place of a kind in [`KINDS`].
pub fn row(kind: &ApiKind) -> Option<u8> {
    let place = KINDS.iter().position(|known| known.name == kind.name)?;
    u8::try_from(place).ok()
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod transition;
