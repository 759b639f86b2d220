//! Entries of the retry state.

use std::{borrow::Borrow, collections::HashMap, hash::Hash, time::Duration};

use jiff::Timestamp;
use meta::Key;

use super::{contention::OperatorContention, move_backoff::MoveBackoff};

/// Entries of a kind.
#[derive(Debug, Default)]
pub(super) struct RetryEntries {
    pub(super) entries: HashMap<Key, RetryEntry>,
    /// Time of the last sweep of expired entries.
    pub(super) swept: Duration,
}

/// Retry state of one object.
#[derive(Debug, Default)]
pub(super) struct RetryEntry {
    pub(super) uid: String,
    /// Phase in which the object waits, and the start of the wait.
    pub(super) waiting: Option<(String, Duration)>,
    /// Failed requests in a row.
    pub(super) refusals: i32,
    /// Earliest time of the next step, from the API server's `Retry-After`.
    pub(super) not_before: Option<Duration>,
    /// Back-off of hot loops.
    pub(super) move_backoff: Option<MoveBackoff>,
    /// Back-off from another operator that writes the object.
    pub(super) contention: Option<OperatorContention>,
    /// Version that was the newest when this process wrote or read the object.
    pub(super) confirmed: Option<u64>,
    /// Version that the API server rejected as stale.
    pub(super) stale: Option<StaleVersion>,
    /// Observed states: name, start by the wall clock, age when first seen, and monotonic time when first seen.
    pub(super) observed_since: Vec<(&'static str, Timestamp, Duration, Duration)>,
}

/// Version that the API server rejected, most likely because it has a newer one, with its back-off.
#[derive(Debug, Clone, Copy)]
pub(super) struct StaleVersion {
    pub(super) version: u64,
    pub(super) refusals: i32,
    pub(super) not_before: Duration,
}

impl RetryEntry {
    /// Reports whether nothing is kept.
    pub(super) fn is_empty(&self) -> bool {
        let quiet = self.waiting.is_none() && self.refusals == 0 && self.observed_since.is_empty();
        let quiet = quiet && self.confirmed.is_none() && self.stale.is_none() && self.not_before.is_none();
        quiet && self.move_backoff.is_none() && self.contention.is_none()
    }
}

/// Removes an entry, and shrinks the map when it was the last one, to give back the memory of a busy period.
pub fn remove_and_shrink<K: Borrow<Q> + Eq + Hash, Q: Eq + Hash + ?Sized, V>(map: &mut HashMap<K, V>, key: &Q) {
    map.remove(key);
    if map.is_empty() {
        map.shrink_to_fit();
    }
}

/// Returns the entry of this object, and replaces the entry of an earlier object of the same name.
pub(super) fn entry_of<'a>(objects: &'a mut HashMap<Key, RetryEntry>, key: &Key, uid: &str) -> &'a mut RetryEntry {
    let known = objects.entry(key.clone()).or_default();
    if known.uid != uid {
        *known = RetryEntry { uid: uid.to_owned(), ..RetryEntry::default() };
    }
    known
}
