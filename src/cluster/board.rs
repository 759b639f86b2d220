//! How the watches are, for the readiness probe: which have not started yet, and which right is missing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::error::RequestError;

/// The state of every watch, for the readiness probe.
#[derive(Debug, Default)]
pub struct Board {
    rows: Mutex<Vec<Row>>,
    changed: Notify,
}

#[derive(Debug)]
pub(super) struct Row {
    what: String,
    pub(super) started: bool,
    pub(super) problem: Option<Problem>,
    /// How often something was heard of it.
    heard: u64,
}

/// What was heard of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hearing {
    /// How often a list, a change or another sign of life came.
    pub count: u64,
    /// Whether it was listed and has no problem.
    pub is_well: bool,
}

#[derive(Debug)]
pub(super) struct Problem {
    text: String,
    /// A missing right is said even by a replica that was ready before: somebody has to act.
    forbidden: bool,
}

impl Board {
    /// What keeps the process from being ready, one line per watch; empty: nothing.
    pub fn unready(&self) -> Vec<String> {
        let rows = self.rows();
        let blocking = rows.iter().filter(|row| !row.started || row.problem.as_ref().is_some_and(|p| p.forbidden));
        let line = |row: &Row| match &row.problem {
            Some(problem) => format!("{}: {}", row.what, problem.text),
            None => format!("{}: not started", row.what),
        };
        blocking.map(line).collect()
    }

    /// Returns when every watch has had a complete list.
    pub async fn started(&self) {
        loop {
            let changed = self.changed.notified();
            if self.rows().iter().all(|row| row.started) {
                return;
            }
            changed.await;
        }
    }

    /// Whether each watch of this collection, such as `/apis/agents.recif.dev/v1/agents`, has had a complete list, and there is
    /// one.
    pub fn is_started(&self, collection: &str) -> bool {
        let rows = self.rows();
        let mut of_it = rows.iter().filter(|row| row.what.strip_prefix("watch ") == Some(collection)).peekable();
        of_it.peek().is_some() && of_it.all(|row| row.started)
    }

    /// What was heard of each watch of this collection.
    pub fn heard(&self, collection: &str) -> Vec<Hearing> {
        let rows = self.rows();
        let of_it = rows.iter().filter(|row| row.what.strip_prefix("watch ") == Some(collection));
        of_it.map(|row| Hearing { count: row.heard, is_well: row.started && row.problem.is_none() }).collect()
    }

    /// Takes note of a sign of life, after what it said was taken.
    pub fn hear(&self, row: usize) {
        if let Some(row) = self.rows().get_mut(row) {
            row.heard += 1;
        }
    }

    /// A row for something that is no watch and needs no start.
    pub fn add_started(&self, what: String) -> usize {
        let row = self.add(what);
        self.set(row, |row| row.started = true);
        row
    }

    /// Takes note of a failure, or of its end.
    pub fn report(&self, row: usize, error: Option<&RequestError>) {
        let problem = error.map(|error| Problem { text: error.to_string(), forbidden: error.code() == Some(403) });
        self.set(row, |row| row.problem = problem);
    }

    pub(super) fn add(&self, what: String) -> usize {
        let mut rows = self.rows();
        rows.push(Row { what, started: false, problem: None, heard: 0 });
        rows.len() - 1
    }

    pub(super) fn set(&self, row: usize, update: impl FnOnce(&mut Row)) {
        if let Some(row) = self.rows().get_mut(row) {
            update(row);
        }
        self.changed.notify_waiters();
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
