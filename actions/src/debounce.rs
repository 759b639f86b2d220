//! Objects whose missing references have come: they wait for more of them, as a debounce.
//!
//! What is applied together comes one by one. An object that waited for some of it would be rendered with the first that is
//! enough, and once more with the next. So it goes on when nothing it refers to has changed for [`QUIET`], [`LONGEST`] after all
//! was there at the latest. Only what was missing is waited for: an edit of what runs goes on at once.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use machine::remove_and_shrink;

use crate::references::inputs::Inputs;

/// Nothing has come for so long.
const QUIET_PERIOD: Duration = Duration::from_millis(300);
/// The longest that is waited.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// By uid: the references as they were last seen. A restart begins anew.
#[derive(Debug, Default)]
pub struct Debounce(Mutex<HashMap<String, DebounceEntry>>);

#[derive(Debug)]
struct DebounceEntry {
    inputs: Inputs,
    /// When they became so, and when all was there first.
    since: Duration,
    begin: Duration,
}

impl Debounce {
    /// How much longer to wait for more, given the references as they are now; nothing when that is over.
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
