//! Log of all calls that passed the proxy, in order, with their outcome.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{ApiCall, ProxyFault};

/// One call.
#[derive(Debug, Clone)]
pub struct CallRecord {
    /// Time since the start of the log.
    pub at: Duration,
    /// Request.
    pub call: ApiCall,
    /// True if the body of a write names a uid or a resource version as precondition.
    pub has_precondition: bool,
    /// Phase that a patch sets in the status of an object.
    pub phase: Option<String>,
    /// Faults that were applied to it.
    pub faults: Vec<ProxyFault>,
    /// Status code of the API server's response; `None`: the request was not forwarded, or is not answered yet.
    pub status: Option<u16>,
    /// Number of the events of a watch that a fault changed; for a list, 1 if its response was an older one.
    pub changed_events: usize,
}

/// Log of calls.
///
/// Invariant: entries are only appended, so the index of an entry is valid forever.
#[derive(Debug)]
pub struct CallLog {
    started: Instant,
    entries: Mutex<Vec<CallRecord>>,
    /// Times of the starts of clients, in order.
    client_starts: Mutex<Vec<Duration>>,
}

impl Default for CallLog {
    fn default() -> Self {
        Self { started: Instant::now(), entries: Mutex::default(), client_starts: Mutex::default() }
    }
}

impl CallLog {
    /// Appends a call; returns its index, with which the outcome is recorded later.
    pub(super) fn record(&self, call: ApiCall, guarded: bool, phase: Option<String>, faults: Vec<ProxyFault>) -> usize {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(CallRecord {
            at: self.started.elapsed(),
            call,
            has_precondition: guarded,
            phase,
            faults,
            status: None,
            changed_events: 0,
        });
        entries.len() - 1
    }

    /// Records the status code of the API server's response.
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

    /// Records that a client is about to be started: what follows is not of an earlier one.
    pub fn record_client_start(&self) {
        self.client_starts.lock().unwrap_or_else(PoisonError::into_inner).push(self.started.elapsed());
    }

    /// Returns the times of the starts of clients, in order.
    pub fn client_starts(&self) -> Vec<Duration> {
        self.client_starts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of calls that this fault changed; for a fault of events, the number of events.
    pub fn hit_count(&self, fault: ProxyFault) -> usize {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let met = entries.iter().filter(|entry| entry.faults.contains(&fault));
        if fault.is_of_events() || fault == ProxyFault::Past {
            met.map(|entry| entry.changed_events).sum()
        } else {
            met.count()
        }
    }

    /// Returns the start of the log, from which the times of its entries are counted.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns the time since the start: a mark for [`since`](Self::since).
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the calls since a mark.
    pub fn since(&self, mark: Duration) -> Vec<CallRecord> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().filter(|entry| entry.at >= mark).cloned().collect()
    }
}
