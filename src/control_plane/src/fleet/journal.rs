//! Journal of changes by stamp: each object once, under its newest stamp.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use meta::{HistoryEntry, Key};

use super::{Record, transition::FleetTransition};

/// Limit of the remembered deletions.
const MAX_DELETIONS: usize = 4096;
/// Limit of the remembered transitions.
const MAX_TRANSITIONS: usize = 4096;

/// Changes by stamp.
///
/// Invariant: `entries` holds each object at most once: a live one under its newest stamp, a deleted one under the stamp of its
/// tombstone until that is evicted. `tombstones` holds exactly the deleted objects in `entries`. `transitions` are sorted by
/// stamp.
#[derive(Debug, Default)]
pub(super) struct Journal {
    last: u64,
    /// Stamp of the newest evicted tombstone. A reader that has not read up to here has missed a deletion.
    horizon: u64,
    entries: BTreeMap<u64, JournalEntry>,
    /// Stamps of deletions, oldest first, including those of objects that were created again since.
    tombstone_queue: VecDeque<u64>,
    tombstones: HashMap<(u8, Key), u64>,
    transitions: VecDeque<FleetTransition>,
}

/// Newest state of an object.
#[derive(Debug, Clone)]
pub(super) struct JournalEntry {
    pub(super) record: Arc<Record>,
    pub(super) deleted: bool,
    /// Time at which the change was seen.
    pub(super) at: Instant,
}

impl Journal {
    /// Returns the stamp of the last change.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Reports whether everything that changed after this stamp is still in the journal.
    pub(super) fn knows(&self, stamp: u64) -> bool {
        (self.horizon..=self.last).contains(&stamp)
    }

    /// Records a version of an object whose entry had the stamp `before`; returns its new stamp.
    pub(super) fn applied(&mut self, before: Option<u64>, record: Arc<Record>, moves: Vec<HistoryEntry>) -> u64 {
        self.last += 1;
        let stamp = self.last;
        let grave = self.tombstones.remove(&(record.row, record.key.clone()));
        before.into_iter().chain(grave).for_each(|old| drop(self.entries.remove(&old)));
        for entry in moves {
            self.transitions.push_back(FleetTransition { stamp, record: record.clone(), entry: Arc::new(entry) });
        }
        let surplus = self.transitions.len().saturating_sub(MAX_TRANSITIONS);
        self.transitions.drain(..surplus);
        self.entries.insert(stamp, JournalEntry { record, deleted: false, at: Instant::now() });
        stamp
    }

    /// Records the deletion of an object whose entry had the stamp `before`, and evicts the oldest tombstones beyond the limit.
    pub(super) fn deleted(&mut self, before: Option<u64>, record: Arc<Record>) {
        self.last += 1;
        before.into_iter().for_each(|old| drop(self.entries.remove(&old)));
        self.tombstones.insert((record.row, record.key.clone()), self.last);
        self.entries.insert(self.last, JournalEntry { record, deleted: true, at: Instant::now() });
        self.tombstone_queue.push_back(self.last);
        while self.tombstone_queue.len() > MAX_DELETIONS {
            let Some(oldest) = self.tombstone_queue.pop_front() else { break };
            // The entry is gone if the object was created again since: readers get it under its new stamp, so nothing is
            // missed.
            if let Some(note) = self.entries.remove(&oldest) {
                self.tombstones.remove(&(note.record.row, note.record.key.clone()));
                self.horizon = oldest;
            }
        }
    }

    /// Returns at most `limit` objects that changed after `stamp`, with the stamps of their changes, oldest change first.
    pub(super) fn after(&self, stamp: u64, limit: usize) -> Vec<(u64, JournalEntry)> {
        self.entries.range(stamp + 1..).take(limit).map(|(stamp, note)| (*stamp, note.clone())).collect()
    }

    /// Returns the time at which the oldest change after `stamp` was seen.
    pub(super) fn oldest_after(&self, stamp: u64) -> Option<Instant> {
        self.entries.range(stamp + 1..).next().map(|(_, note)| note.at)
    }

    /// Returns the remembered transitions after `stamp` and up to `last`.
    pub(super) fn transitions(&self, stamp: u64, last: u64) -> Vec<FleetTransition> {
        let from = self.transitions.partition_point(|transition| transition.stamp <= stamp);
        let to = self.transitions.partition_point(|transition| transition.stamp <= last);
        self.transitions.range(from..to.max(from)).cloned().collect()
    }
}
