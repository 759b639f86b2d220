//! Debounces the arrival of missing references.
//!
//! Objects that are applied together arrive one by one. An object that waited for several of them would be rendered with the
//! first that suffice, and again with the next. So it goes on when none of its references has changed for [`QUIET_PERIOD`], at
//! the latest [`MAX_WAIT`] after all of them existed. Only missing references are debounced: an edit of a running object takes
//! effect at once.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use machine::remove_and_shrink;

use crate::references::inputs::Inputs;

/// Time without a change after which the object goes on.
const QUIET_PERIOD: Duration = Duration::from_millis(300);
/// Longest wait.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// References as last seen, by uid; lost in a restart, which starts the wait again.
///
/// Invariant: `begin <= since`, and an entry is removed when the wait of its object is over.
#[derive(Debug, Default)]
pub struct Debounce(Mutex<HashMap<String, DebounceEntry>>);

#[derive(Debug)]
struct DebounceEntry {
    inputs: Inputs,
    /// Time of the last change, and the time when all references first existed.
    since: Duration,
    begin: Duration,
}

impl Debounce {
    /// Returns how much longer to wait for more references, given those that exist; zero when the wait is over.
    pub(super) fn remaining(&self, uid: &str, inputs: &Inputs, now: Duration) -> Duration {
        let mut all = self.lock();
        let seen = all.entry(uid.to_owned()).or_insert_with(|| DebounceEntry {
            inputs: inputs.clone(),
            since: now,
            begin: now,
        });
        if seen.inputs != *inputs {
            (seen.inputs, seen.since) = (inputs.clone(), now);
        }
        let left = (seen.since + QUIET_PERIOD).min(seen.begin + MAX_WAIT).saturating_sub(now);
        if left.is_zero() {
            remove_and_shrink(&mut all, uid);
        }
        left
    }

    /// Forgets an object that does not wait any more.
    pub(super) fn forget(&self, uid: &str) {
        let mut all = self.lock();
        if all.contains_key(uid) {
            remove_and_shrink(&mut all, uid);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, DebounceEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::references::Resolution;

    /// Looks at a reference with these digests at these times in milliseconds, and returns the waits that are left.
    fn waits(seen: &[(u64, &str)]) -> Vec<u64> {
        let debounce = Debounce::default();
        let left = |(now, digest): &(u64, &str)| {
            let inputs = Inputs(vec![("Tool/t".to_owned(), Resolution::Resolved((*digest).to_owned()))]);
            u64::try_from(debounce.remaining("u", &inputs, Duration::from_millis(*now)).as_millis()).unwrap()
        };
        seen.iter().map(left).collect()
    }

    #[test]
    fn steps_that_see_the_same_references_do_not_prolong_the_wait() {
        assert_eq!(waits(&[(0, "1"), (100, "1"), (250, "1"), (300, "1")]), [300, 200, 50, 0]);
        assert_eq!(waits(&[(0, "1"), (1_887, "1")]), [300, 0], "a step that comes late goes on");
    }

    #[test]
    fn each_change_begins_the_quiet_period_anew_up_to_the_longest_wait() {
        assert_eq!(waits(&[(0, "1"), (200, "2"), (400, "2"), (500, "2")]), [300, 300, 100, 0]);
        let digests: Vec<String> = (0..=10).map(|n| n.to_string()).collect();
        let changing: Vec<(u64, &str)> = (0..).step_by(200).zip(digests.iter().map(String::as_str)).collect();
        assert_eq!(waits(&changing), [300, 300, 300, 300, 300, 300, 300, 300, 300, 200, 0]);
    }
}
