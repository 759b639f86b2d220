//! Read model: every object of our kinds, once, and a journal of changes.
//!
//! Each change gets the next number of a sequence, its *stamp*. The journal is a compacted log, as in
//! [Kafka](https://kafka.apache.org/documentation/#compaction): an object stands in it under the stamp of its newest change
//! only. So a reader that has read up to some stamp gets the newest state of each object that changed since, however many
//! changes it missed, and no queue is kept for any reader. Deletions stay in the journal as tombstones for a while; a reader
//! that missed evicted ones starts over.

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
use crds::{ApiKind, KINDS, Role};
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

/// Cache of every object of our kinds.
///
/// Invariant: `stamps` holds the journal's last stamp, because it is set while `inner` is locked. The two mutexes are never
/// held together.
#[derive(Debug)]
pub struct FleetCache {
    inner: Mutex<FleetCacheState>,
    definitions: Mutex<BTreeMap<(u8, Key), Arc<str>>>,
    stamps: watch::Sender<u64>,
    epoch: Box<str>,
    live: AtomicBool,
}

/// Objects, indexes and journal, under one lock.
///
/// Invariant: every object in `kinds` has an entry in `journal` under its stamp, and its key is in `attention` if and only if
/// its record needs attention.
#[derive(Debug)]
struct FleetCacheState {
    /// Objects by name, by the index of the kind in [`KINDS`].
    kinds: Vec<BTreeMap<Key, FleetEntry>>,
    /// Keys of the objects that need attention, in the order of kinds and names.
    attention: BTreeSet<(u8, Key)>,
    journal: Journal,
}

/// Object, and the stamp of its last change.
#[derive(Debug, Clone)]
pub struct FleetEntry {
    /// Its stamp.
    pub stamp: u64,
    /// Its newest version.
    pub record: Arc<Record>,
}

impl FleetCache {
    /// Creates an empty cache. Stamps of two epochs are not comparable.
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

    /// Starts the recording of transitions. Before this call objects come from initial lists, and the steps in their history
    /// happened long ago.
    pub fn go_live(&self) {
        self.live.store(true, Relaxed);
    }

    /// Returns the epoch: a name of this run of the process.
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// Applies a change of an object; `row` is the index of its kind in [`KINDS`].
    pub fn apply_change(&self, row: u8, change: &Change<Record>) {
        let inner = match (&change.new, &change.old) {
            (Some(new), old) => {
                // A new object under the same name shares no history with the old one.
                let seq = old.as_ref().filter(|old| old.uid == new.uid).map_or(0, |old| old.seq);
                let moves = if self.live.load(Relaxed) { new.history_after(seq) } else { Vec::new() };
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

    /// Sets or removes the definitions of a server's tools, as its ConfigMap holds them; `None`: the ConfigMap has none. A
    /// change of them counts as a change of the server.
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

    /// Returns the definitions of a server's tools: a JSON array of `{name, description, inputSchema, …}`.
    pub fn tools(&self, kind: &str, key: &Key) -> Option<Arc<str>> {
        let row = row(ApiKind::find(kind)?)?;
        let known = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(row, key.clone())).cloned()
    }

    /// Returns the object of that kind and name.
    pub fn get(&self, kind: &ApiKind, key: &Key) -> Option<FleetEntry> {
        let row = row(kind)?;
        self.lock().kinds.get(usize::from(row))?.get(key).cloned()
    }

    /// Returns the objects of a kind in a namespace whose controller has this uid.
    pub fn owned_by(&self, kind: &str, namespace: &str, owner: &str) -> Vec<Arc<Record>> {
        let mut there = ApiKind::find(kind).map(|kind| self.in_namespace(kind, namespace)).unwrap_or_default();
        there.retain(|record| record.owner.as_deref() == Some(owner));
        there
    }

    /// Returns the objects of a kind in a namespace, by name.
    pub fn in_namespace(&self, kind: &ApiKind, namespace: &str) -> Vec<Arc<Record>> {
        let Some(row) = row(kind) else { return Vec::new() };
        let inner = self.lock();
        let kind = inner.kinds.get(usize::from(row)).into_iter();
        let there = kind.flat_map(|kind| {
            let from = Key::new(namespace, "");
            kind.range(from..).take_while(|(key, _)| key.namespace == namespace).map(|(_, entry)| &entry.record)
        });
        there.cloned().collect()
    }

    /// Reports whether a namespace has a workload.
    pub fn has_workload_in(&self, namespace: &str) -> bool {
        let inner = self.lock();
        let mut workloads = KINDS.iter().zip(&inner.kinds).filter(|(kind, _)| kind.role == Role::Workload);
        workloads.any(|(_, kind)| {
            let from = Key::new(namespace, "");
            kind.range(from..).next().is_some_and(|(key, _)| key.namespace == namespace)
        })
    }

    /// Returns every object, by kind and name, and the stamp of the last change in them.
    pub fn snapshot(&self) -> (u64, Vec<Arc<Record>>) {
        let inner = self.lock();
        (inner.journal.last(), inner.all().map(|entry| entry.record.clone()).collect())
    }

    /// Reports whether the journal still holds everything that changed after this stamp. It does not if the stamp is from
    /// another epoch, or tombstones after it were evicted.
    pub fn knows(&self, stamp: u64) -> bool {
        self.lock().journal.knows(stamp)
    }

    /// Returns a receiver of the last change's stamp.
    pub fn stamps(&self) -> watch::Receiver<u64> {
        self.stamps.subscribe()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.lock().kinds.iter().map(BTreeMap::len).sum()
    }

    /// Reports whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the time at which the oldest change after this stamp was seen, among changes that are their object's newest;
    /// `None`: there is none.
    pub fn oldest_after(&self, stamp: u64) -> Option<Instant> {
        self.lock().journal.oldest_after(stamp)
    }

    /// Returns the stamp of the last change.
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

    /// Iterates over every object, by kind and name.
    fn all(&self) -> impl Iterator<Item = &FleetEntry> {
        self.kinds.iter().flat_map(BTreeMap::values)
    }
}

/// Returns the index of a kind in [`KINDS`].
pub fn row(kind: &ApiKind) -> Option<u8> {
    let place = KINDS.iter().position(|known| known.name == kind.name)?;
    u8::try_from(place).ok()
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod transition;
