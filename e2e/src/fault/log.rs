//! Every call that passed, in order, with what became of it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{ApiCall, ProxyFault};

/// One call.
#[derive(Debug, Clone)]
pub struct CallRecord {
    /// Since the log began.
    pub at: Duration,
    /// What it was about.
    pub call: ApiCall,
    /// Of a write: whether it says which object or version it means, by a uid or a resource version.
    pub has_precondition: bool,
    /// What was done to it.
    pub faults: Vec<ProxyFault>,
    /// The API server's answer; `None`: it was not asked, or has not answered.
    pub status: Option<u16>,
    /// How many events of a watch were changed by a fault; for a list, 1 if its answer was an older one.
    pub changed_events: usize,
}

/// The calls.
#[derive(Debug)]
pub struct CallLog {
    started: Instant,
    entries: Mutex<Vec<CallRecord>>,
}

impl Default for CallLog {
    fn default() -> Self {
        Self { started: Instant::now(), entries: Mutex::default() }
    }
}

impl CallLog {
    /// Takes a call down; the number by which its answer is added.
    pub(super) fn record(&self, call: ApiCall, guarded: bool, faults: Vec<ProxyFault>) -> usize {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(CallRecord {
            at: self.started.elapsed(),
            call,
            has_precondition: guarded,
            faults,
            status: None,
            changed_events: 0,
        });
        entries.len() - 1
    }

    /// Adds an answer of the API server.
    pub(super) fn record_status(&self, number: usize, code: u16) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(number) {
            entry.status = Some(code);
        }
    }

    /// Counts an event of a watch, or a list, that a fault changed.
    pub(super) fn count_changed_event(&self, number: usize) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(number) {
            entry.changed_events += 1;
        }
    }

    /// How many calls met this fault and were changed by it; of a fault of events, how many events.
    pub fn hit_count(&self, fault: ProxyFault) -> usize {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let met = entries.iter().filter(|entry| entry.faults.contains(&fault));
        if fault.is_of_events() || fault == ProxyFault::Past {
            met.map(|entry| entry.changed_events).sum()
        } else {
            met.count()
        }
    }

    /// When it began, which the times of its entries are counted from.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// How long it has gone on: a mark for [`since`](Self::since).
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The calls since a mark.
    pub fn since(&self, mark: Duration) -> Vec<CallRecord> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().filter(|entry| entry.at >= mark).cloned().collect()
    }
}
