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
    /// What was done to it.
    pub faults: Vec<Fault>,
    /// The API server's answer; `None`: it was not asked, or has not answered.
    pub answered: Option<u16>,
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
    pub(super) fn begin(&self, call: Call, faults: Vec<Fault>) -> usize {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(Entry { at: self.begun.elapsed(), call, faults, answered: None });
        entries.len() - 1
    }

    /// Adds an answer of the API server.
    pub(super) fn answered(&self, number: usize, code: u16) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get_mut(number) {
            entry.answered = Some(code);
        }
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
