//! The part of the retry state that the action of a step reads and writes.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use meta::Key;

use super::{retry_entry::entry_of, retry_state::RetryState};

/// Access to the retry state of one object.
#[derive(Debug)]
pub(super) struct ObjectRetryState {
    pub(super) retry_state: Arc<RetryState>,
    pub(super) key: Key,
    pub(super) uid: String,
}

impl ObjectRetryState {
    /// Reports whether this version is known to have been the newest one.
    pub(super) fn is_confirmed(&self, version: Option<u64>) -> bool {
        let objects = self.retry_state.lock();
        let known = objects.entries.get(&self.key).filter(|known| known.uid == self.uid);
        version.is_some() && known.is_some_and(|known| known.confirmed == version)
    }

    /// Records that this version is not the newest one.
    pub(super) fn mark_stale(&self, version: Option<u64>, now: Duration) {
        self.retry_state.mark_stale(&self.key, &self.uid, version, now);
    }

    /// Records that this version is the newest one.
    pub(super) fn confirm(&self, version: Option<u64>) {
        entry_of(&mut self.retry_state.lock().entries, &self.key, &self.uid).confirmed = version;
    }

    /// Returns how long the state named `what` that began at `since` has lasted. `age` is its age if it is seen for the first
    /// time.
    pub(super) fn observed_for(&self, what: &'static str, since: Timestamp, age: Duration, now: Duration) -> Duration {
        let mut objects = self.retry_state.lock();
        let known = entry_of(&mut objects.entries, &self.key, &self.uid);
        let (_, _, age, seen) =
            match known.observed_since.iter().find(|(known, began, ..)| *known == what && *began == since) {
                Some(found) => *found,
                None => {
                    known.observed_since.retain(|(known, ..)| *known != what);
                    known.observed_since.push((what, since, age, now));
                    (what, since, age, now)
                }
            };
        age + now.saturating_sub(seen)
    }
}
