//! Every call that passed, in order, with what became of it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{Call, Fault};

/// One call.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Since the log began.
    pub at: Duration,
    /// What it was about.
    pub call: Call,
    /// Of a write: whether it says which object or version it means, by a uid or a resource version.
    pub guarded: bool,
    /// What was done to it.
    pub faults: Vec<Fault>,
    /// The API server's answer; `None`: it was not asked, or has not answered.
    pub answered: Option<u16>,
    /// How many events of a watch were changed by a fault; for a list, 1 if its answer was an older one.
    pub events: usize,
}

/// The calls.
#[derive(Debug)]
pub struct Log {
    begun: Instant,
    entries: Mutex<Vec<Entry>>,
}

impl Default for Log {
    fn default() -> Self {
        Self { begun: Instant::now(), entries: Mutex::default() }
    }
}

impl Log {
    /// Takes a call down; the number by which its answer is added.
    pub(super) fn begin(&self, call: Call, guarded: bool, faults: Vec<Fault>) -> usize {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(Entry { at: self.begun.elapsed(), call, guarded, faults, answered: None, events: 0 });
        entries.len() - 1
    }

    /// Adds an answer of the API server.
    pub(super) fn answered(&self, number: usize, code: u16) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(number) {
            entry.answered = Some(code);
        }
    }

    /// Counts an event of a watch, or a list, that a fault changed.
    pub(super) fn disturbed(&self, number: usize) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(number) {
            entry.events += 1;
        }
    }

    /// How many calls met this fault and were changed by it; of a fault of events, how many events.
    pub fn met(&self, fault: Fault) -> usize {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let met = entries.iter().filter(|entry| entry.faults.contains(&fault));
        if fault.is_of_events() || fault == Fault::Past { met.map(|entry| entry.events).sum() } else { met.count() }
    }

    /// When it began, which the times of its entries are counted from.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// How long it has gone on: a mark for [`since`](Self::since).
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The calls since a mark.
    pub fn since(&self, mark: Duration) -> Vec<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().filter(|entry| entry.at >= mark).cloned().collect()
    }
}
