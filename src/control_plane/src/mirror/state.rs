//! State of the mirror, for readiness, metrics and the API.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use store::StoreError;

use crate::fleet::FleetCache;

/// Interval at which a lasting failure is logged again, because its first log line is soon far away.
const WARN_AGAIN: Duration = Duration::from_secs(600);

/// State of the mirror.
#[derive(Debug, Default)]
pub struct MirrorState(Mutex<MirrorProgress>);

#[derive(Debug, Default)]
/// Progress and failure under one lock.
///
/// Invariant: `failure` is set from the first error until the rows were reconciled over a new connection.
struct MirrorProgress {
    /// Stamp up to which everything is stored; `None`: nothing was stored yet.
    position: Option<u64>,
    /// Failure of the database; `None`: it works.
    failure: Option<DatabaseFailure>,
}

/// Lasting failure of the database.
#[derive(Debug)]
struct DatabaseFailure {
    since: Instant,
    /// Last logged error, and its time.
    logged: (String, Instant),
    /// Class of the error, in words that may be shown to every caller.
    class: &'static str,
}

impl MirrorState {
    /// Returns the stamp of the fleet up to which everything is stored; `None`: nothing was stored yet.
    pub(super) fn position(&self) -> Option<u64> {
        self.lock().position
    }

    pub(super) fn advance(&self, position: u64) {
        self.lock().position = Some(position);
    }

    /// Records a failure at this time. Reports whether to log it: its text is new, or was last logged [`WARN_AGAIN`] ago.
    pub(crate) fn record_failure(&self, error: &StoreError, now: Instant) -> bool {
        let text = error.to_string();
        let failure = &mut self.lock().failure;
        let due = failure.as_ref().is_none_or(|DatabaseFailure { logged: (before, at), .. }| {
            *before != text || now.saturating_duration_since(*at) >= WARN_AGAIN
        });
        let since = failure.as_ref().map_or(now, |failure| failure.since);
        let logged = failure.take().filter(|_| !due).map_or_else(|| (text, now), |failure| failure.logged);
        *failure = Some(DatabaseFailure { since, logged, class: failure_class(error) });
        due
    }

    /// Records that the database works. Reports whether it failed before.
    pub(super) fn record_recovery(&self) -> bool {
        self.lock().failure.take().is_some()
    }

    /// Reports whether the last use of the database failed.
    pub fn is_failing(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Returns the age of the oldest change that is not stored yet; zero: everything is stored.
    pub fn behind(&self, fleet: &FleetCache) -> Duration {
        let (position, failing) = {
            let inner = self.lock();
            (inner.position.unwrap_or_default(), inner.failure.as_ref().map(|failure| failure.since))
        };
        let Some(oldest) = fleet.oldest_after(position) else { return Duration::ZERO };
        // The oldest change may hide an earlier one of the same object: the journal holds each object under its newest change
        // only.
        failing.map_or(oldest, |since| since.min(oldest)).elapsed()
    }

    /// Returns the class of the current failure, in words that may be shown to every caller; `None`: the database works. The
    /// error itself is in the log only, because readiness is public.
    pub fn problem(&self) -> Option<&'static str> {
        self.lock().failure.as_ref().map(|failure| failure.class)
    }

    /// Returns the notes for readiness: the process is ready without a database, too.
    pub fn notes(&self, fleet: &FleetCache) -> Vec<String> {
        let behind = self.behind(fleet).as_secs();
        let note = |problem| format!("database: unavailable ({problem}); the history is {behind} s behind");
        self.problem().map(note).into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, MirrorProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failure_class(error: &StoreError) -> &'static str {
    match error {
        StoreError::Refused { .. } => "the database refuses writes",
        StoreError::Unavailable(_) => "the database does not answer",
        StoreError::Newer { .. } => "the tables in the database are of a newer version",
        StoreError::Folder { .. } => "the folder of the database cannot be made",
        StoreError::Url(_) => "the URL of the database cannot be used",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_goes_on_is_logged_again() {
        let refused = |message: &str| StoreError::Refused { code: "6410".into(), message: message.into() };
        let (state, start) = (MirrorState::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for (second, message, logged) in [
            (0, "disk I/O error", true),
            (5, "disk I/O error", false),
            (599, "disk I/O error", false),
            (600, "disk I/O error", true),
            (700, "disk I/O error", false),
            (710, "database or disk is full", true),
            (720, "database or disk is full", false),
            (1309, "database or disk is full", false),
            (1310, "database or disk is full", true),
        ] {
            assert_eq!(state.record_failure(&refused(message), at(second)), logged, "{second} {message}");
        }
        assert_eq!(state.problem(), Some("the database refuses writes"));
        assert!(state.record_recovery() && state.problem().is_none());
        assert!(state.record_failure(&refused("disk I/O error"), at(1320)), "it worked meanwhile");
        assert_eq!(refused("disk I/O error").to_string(), "the database refused: disk I/O error (code 6410)");
    }
}
