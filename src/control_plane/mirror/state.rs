//! How the mirror is doing, for readiness and metrics.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{control_plane::fleet::Fleet, store::StoreError};

/// How the mirror is doing.
#[derive(Debug, Default)]
pub struct State(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Up to which stamp everything is stored; `None`: nothing was stored yet.
    position: Option<u64>,
    /// Since when the database fails, and how.
    failure: Option<(Instant, String)>,
}

impl State {
    /// Up to which stamp of the fleet everything is stored; `None`: nothing was stored yet.
    pub(super) fn position(&self) -> Option<u64> {
        self.lock().position
    }

    pub(super) fn wrote(&self, position: u64) {
        self.lock().position = Some(position);
    }

    /// Takes note of a failure; whether it is another one than before.
    pub(super) fn failed(&self, error: &StoreError) -> bool {
        let text = error.to_string();
        let failure = &mut self.lock().failure;
        let since = failure.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        let is_new = failure.as_ref().is_none_or(|(_, before)| *before != text);
        *failure = Some((since, text));
        is_new
    }

    /// Takes note that the database works; whether it did not before.
    pub(super) fn recovered(&self) -> bool {
        self.lock().failure.take().is_some()
    }

    /// Whether the last use of the database failed.
    pub fn is_failing(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// How long the oldest change that is not stored yet has been waiting; zero: everything is stored.
    pub fn behind(&self, fleet: &Fleet) -> Duration {
        let (position, failing) = {
            let inner = self.lock();
            (inner.position.unwrap_or_default(), inner.failure.as_ref().map(|(since, _)| *since))
        };
        let Some(oldest) = fleet.oldest_after(position) else { return Duration::ZERO };
        // An object that changes again stands under its newest change.
        failing.map_or(oldest, |since| since.min(oldest)).elapsed()
    }

    /// What readiness tells besides: the process is ready without a database. How it fails is in the log: nobody signs in to ask.
    pub fn notes(&self, fleet: &Fleet) -> Vec<String> {
        let behind = self.behind(fleet).as_secs();
        self.is_failing().then(|| format!("database: it fails; {behind} s behind")).into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
