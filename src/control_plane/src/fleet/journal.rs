//! What changed, by stamp: each object once, under its newest one.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use meta::{HistoryEntry, Key};

use super::{Record, transition::Transition};

/// How many deletions are remembered.
const DELETIONS: usize = 4096;
/// How many transitions are remembered.
const TRANSITIONS: usize = 4096;

/// What changed, by stamp.
#[derive(Debug, Default)]
pub(super) struct Journal {
    last: u64,
    /// Who has not read up to here has missed a deletion that is forgotten.
    horizon: u64,
    notes: BTreeMap<u64, Note>,
    /// Stamps of deletions, oldest first; also of objects that were made again since.
    burials: VecDeque<u64>,
    graves: HashMap<(u8, Key), u64>,
    transitions: VecDeque<Transition>,
}

/// The newest state of an object.
#[derive(Debug, Clone)]
pub(super) struct Note {
    pub(super) record: Arc<Record>,
    pub(super) deleted: bool,
    /// When the change was seen.
    pub(super) at: Instant,
}

impl Journal {
    /// The stamp of the last change.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Whether everything that changed after this stamp is still known.
    pub(super) fn knows(&self, stamp: u64) -> bool {
        (self.horizon..=self.last).contains(&stamp)
    }

    /// Notes a version of an object that stood under the stamp `before`; returns its new one.
    pub(super) fn applied(&mut self, before: Option<u64>, record: Arc<Record>, moves: Vec<HistoryEntry>) -> u64 {
        self.last += 1;
        let stamp = self.last;
        let grave = self.graves.remove(&(record.row, record.key.clone()));
        before.into_iter().chain(grave).for_each(|old| drop(self.notes.remove(&old)));
        for entry in moves {
            self.transitions.push_back(Transition { stamp, record: record.clone(), entry: Arc::new(entry) });
        }
        let surplus = self.transitions.len().saturating_sub(TRANSITIONS);
        self.transitions.drain(..surplus);
        self.notes.insert(stamp, Note { record, deleted: false, at: Instant::now() });
        stamp
    }

    /// Notes that an object is gone that stood under the stamp `before`.
    pub(super) fn deleted(&mut self, before: Option<u64>, record: Arc<Record>) {
        self.last += 1;
        before.into_iter().for_each(|old| drop(self.notes.remove(&old)));
        self.graves.insert((record.row, record.key.clone()), self.last);
        self.notes.insert(self.last, Note { record, deleted: true, at: Instant::now() });
        self.burials.push_back(self.last);
        while self.burials.len() > DELETIONS {
            let Some(oldest) = self.burials.pop_front() else { break };
            // One that was made again since is no deletion any more: whoever reads on learns of it under its new stamp.
            if let Some(note) = self.notes.remove(&oldest) {
                self.graves.remove(&(note.record.row, note.record.key.clone()));
                self.horizon = oldest;
            }
        }
    }

    /// At most `limit` objects that changed after `stamp`, with the stamps of their changes, oldest change first.
    pub(super) fn after(&self, stamp: u64, limit: usize) -> Vec<(u64, Note)> {
        self.notes.range(stamp + 1..).take(limit).map(|(stamp, note)| (*stamp, note.clone())).collect()
    }

    /// When the oldest change after `stamp` was seen.
    pub(super) fn oldest_after(&self, stamp: u64) -> Option<Instant> {
        self.notes.range(stamp + 1..).next().map(|(_, note)| note.at)
    }

    /// Transitions after `stamp` and up to `last`, as far as they are remembered.
    pub(super) fn transitions(&self, stamp: u64, last: u64) -> Vec<Transition> {
        let from = self.transitions.partition_point(|transition| transition.stamp <= stamp);
        let to = self.transitions.partition_point(|transition| transition.stamp <= last);
        self.transitions.range(from..to.max(from)).cloned().collect()
    }
}
