//! What the driver remembers of an object between steps: since when it waits and how often it was refused.
//!
//! Both only delay; losing them in a restart changes no decision.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Key, Wait};

/// By object.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<Key, Known>>);

#[derive(Debug, Default)]
struct Known {
    uid: String,
    /// The phase in which it waits, and since when.
    waiting: Option<(String, Duration)>,
    /// Failed requests in a row.
    refusals: i32,
}

impl Memory {
    /// How long the wait is still to be kept quiet.
    pub(super) fn patience_left(&self, key: &Key, uid: &str, phase: &str, wait: &Wait, now: Duration) -> Duration {
        let mut objects = self.lock();
        let known = of(&mut objects, key, uid);
        // The same wait may change its words (one of three tools came) without starting anew.
        let since = match &known.waiting {
            Some((waited, since)) if waited == phase => *since,
            _ => {
                known.waiting = Some((phase.to_owned(), now));
                now
            }
        };
        if wait.missing { Duration::ZERO } else { wait.patience.saturating_sub(now.saturating_sub(since)) }
    }

    /// The object waits no longer.
    pub(super) fn done_waiting(&self, key: &Key) {
        self.change(key, |known| known.waiting = None);
    }

    /// One more refused request; how many in a row.
    pub(super) fn refused(&self, key: &Key, uid: &str) -> i32 {
        let mut objects = self.lock();
        let known = of(&mut objects, key, uid);
        known.refusals = known.refusals.saturating_add(1);
        known.refusals
    }

    /// The requests of a step went through.
    pub(super) fn not_refused(&self, key: &Key) {
        self.change(key, |known| known.refusals = 0);
    }

    /// The object is gone.
    pub(super) fn forget(&self, key: &Key) {
        remove_and_shrink(&mut self.lock(), key);
    }

    /// What says nothing is not kept: a converged object takes no memory here.
    fn change(&self, key: &Key, change: impl FnOnce(&mut Known)) {
        let mut objects = self.lock();
        let Some(known) = objects.get_mut(key) else { return };
        change(known);
        if known.waiting.is_none() && known.refusals == 0 {
            remove_and_shrink(&mut objects, key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes an entry, and with the last one gives back what a busy time took.
pub(crate) fn remove_and_shrink<K: Borrow<Q> + Eq + Hash, Q: Eq + Hash + ?Sized, V>(map: &mut HashMap<K, V>, key: &Q) {
    map.remove(key);
    if map.is_empty() {
        map.shrink_to_fit();
    }
}

/// What is known of this object; an earlier one of the same name does not count.
fn of<'a>(objects: &'a mut HashMap<Key, Known>, key: &Key, uid: &str) -> &'a mut Known {
    let known = objects.entry(key.clone()).or_default();
    if known.uid != uid {
        *known = Known { uid: uid.to_owned(), ..Known::default() };
    }
    known
}
