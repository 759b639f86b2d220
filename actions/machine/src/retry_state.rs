//! Keeps the exponential back-off and the other delays of each object between steps: the start of a wait, the number of failed
//! requests in a row, `Retry-After`, hot loops, other operators, and durations that actions observe.
//!
//! All of it only delays; losing it in a restart changes no decision.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use meta::Key;

use super::{
    Wait,
    backoff::short_backoff,
    contention::OperatorContention,
    move_backoff::{ExternalState, MoveBackoff, WINDOW},
    retry_entry::{RetryEntries, RetryEntry, StaleVersion, entry_of, remove_and_shrink},
};

/// Time after which an observed state is forgotten; no action asks about a longer one.
const MAX_OBSERVED_TIME: Duration = Duration::from_secs(900);

/// In-memory retry state of a kind, by object.
///
/// Invariant: an entry belongs to the uid it names. An empty entry is removed, at the latest by [`sweep`](Self::sweep): a
/// converged object takes no memory.
#[derive(Debug, Default)]
pub(super) struct RetryState(Mutex<RetryEntries>);

impl RetryState {
    /// Returns the rest of the quiet period of a wait.
    pub(super) fn quiet_left(&self, key: &Key, uid: &str, phase: &str, wait: &Wait, now: Duration) -> Duration {
        let mut objects = self.lock();
        let known = entry_of(&mut objects.entries, key, uid);
        // A wait that changes its message (one of three tools arrived) does not start again.
        let since = match &known.waiting {
            Some((waited, since)) if waited == phase => *since,
            _ => {
                known.waiting = Some((phase.to_owned(), now));
                now
            }
        };
        if wait.needs_user { Duration::ZERO } else { wait.quiet_period.saturating_sub(now.saturating_sub(since)) }
    }

    /// Records that the object does not wait any more.
    pub(super) fn done_waiting(&self, key: &Key) {
        self.change(key, |known| known.waiting = None);
    }

    /// Counts a failed request, and returns the number of failures in a row.
    pub(super) fn count_refusal(&self, key: &Key, uid: &str) -> i32 {
        let mut objects = self.lock();
        let known = entry_of(&mut objects.entries, key, uid);
        known.refusals = known.refusals.saturating_add(1);
        known.refusals
    }

    /// Forgets all confirmed versions: another operator may have written since.
    pub(super) fn unconfirm_all(&self) {
        self.lock().entries.values_mut().for_each(|known| known.confirmed = None);
    }

    /// Forgets the confirmed version: the API server rejected a step that was based on it.
    pub(super) fn unconfirm(&self, key: &Key) {
        self.change(key, |known| known.confirmed = None);
    }

    /// Records that the API server rejected this version as stale, and returns how often it has. It is retried after an
    /// exponential back-off, because a watch will deliver the newer version.
    pub(super) fn mark_stale(&self, key: &Key, uid: &str, version: Option<u64>, now: Duration) -> i32 {
        let Some(version) = version else { return 1 };
        let mut objects = self.lock();
        let stale = &mut entry_of(&mut objects.entries, key, uid).stale;
        let refusals = stale.filter(|stale| stale.version == version).map_or(0, |stale| stale.refusals) + 1;
        *stale = Some(StaleVersion { version, refusals, not_before: now + short_backoff(refusals) });
        refusals
    }

    /// Records the time before which the API server wants no further request (`Retry-After`).
    pub(super) fn retry_after(&self, key: &Key, uid: &str, time: Duration) {
        let mut objects = self.lock();
        let not_before = &mut entry_of(&mut objects.entries, key, uid).not_before;
        *not_before = (*not_before).max(Some(time));
    }

    /// Returns how long no step of this version may run: until the end of `Retry-After`, or of the back-off of a version that was
    /// rejected as stale.
    pub(super) fn delay_left(&self, key: &Key, uid: &str, version: Option<u64>, now: Duration) -> Option<Duration> {
        let objects = self.lock();
        let known = objects.entries.get(key).filter(|known| known.uid == uid)?;
        let stale = known.stale.filter(|stale| version == Some(stale.version)).map(|stale| stale.not_before);
        known.not_before.max(stale)?.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// Resets the back-off after the requests of a step succeeded.
    pub(super) fn clear_refusals(&self, key: &Key) {
        self.change(key, |known| {
            known.refusals = 0;
            known.not_before = None;
        });
    }

    /// Reports whether the object's next own transition is one too many.
    pub(super) fn exceeds_move_limit(
        &self,
        (key, uid): (&Key, &str),
        object: u64,
        dependency_digest: impl Fn() -> u64,
        now: Duration,
    ) -> bool {
        let mut objects = self.lock();
        let brake = &mut entry_of(&mut objects.entries, key, uid).move_backoff;
        brake
            .get_or_insert_with(|| MoveBackoff::new(ExternalState { object, dependencies: dependency_digest() }, now))
            .exceeds_limit(object, dependency_digest, now)
    }

    /// Counts the object's transition, and returns the pause after it, if any.
    pub(super) fn record_move(&self, key: &Key, uid: &str, now: Duration) -> Option<Duration> {
        self.lock().entries.get_mut(key)?.move_backoff.as_mut()?.record_move(now, uid)
    }

    /// Records a write that the API server did not keep, and returns the pause.
    pub(super) fn record_lost_write(
        &self,
        (key, uid): (&Key, &str),
        object: u64,
        dependency_digest: impl FnOnce() -> u64,
        now: Duration,
    ) -> Duration {
        let mut objects = self.lock();
        let brake = &mut entry_of(&mut objects.entries, key, uid).move_backoff;
        brake
            .get_or_insert_with(|| MoveBackoff::new(ExternalState { object, dependencies: dependency_digest() }, now))
            .pause_for_lost_write(now, uid)
    }

    /// Records that the API server keeps the object's writes again.
    pub(super) fn record_kept_write(&self, key: &Key) {
        self.change(key, |known| {
            known.move_backoff = known.move_backoff.take().filter(|brake| !brake.has_lost_write())
        });
    }

    /// Returns the rest of the object's pause, if it has one.
    pub(super) fn pause_left(
        &self,
        (key, uid): (&Key, &str),
        object: u64,
        dependency_digest: impl FnOnce() -> u64,
        now: Duration,
    ) -> Option<Duration> {
        let mut objects = self.lock();
        let known = objects.entries.get_mut(key).filter(|known| known.uid == uid)?;
        known.move_backoff.as_mut()?.left(object, dependency_digest, now)
    }

    /// Records that another operator wrote this history entry last, `alive` after this one became the leader or not, and returns
    /// how long to leave the object alone.
    pub(super) fn written_by_other(
        &self,
        (key, uid): (&Key, &str),
        (other, seq, alive): (&str, i64, bool),
        now: Duration,
    ) -> Duration {
        let mut objects = self.lock();
        let truce = &mut entry_of(&mut objects.entries, key, uid).contention;
        truce.get_or_insert_with(|| OperatorContention::new(other, seq, alive, now)).observe_write(other, seq, now)
    }

    /// Returns how long an object that this operator wrote last is still to be left to the other operator.
    pub(super) fn contention_left(&self, (key, uid): (&Key, &str), now: Duration) -> Duration {
        let objects = self.lock();
        let truce =
            objects.entries.get(key).filter(|known| known.uid == uid).and_then(|known| known.contention.as_ref());
        truce.map_or(Duration::ZERO, |truce| truce.remaining(now))
    }

    /// Records a write of the object and the version it returned.
    pub(super) fn record_write(&self, (key, uid): (&Key, &str), version: Option<u64>) {
        let mut objects = self.lock();
        let known = entry_of(&mut objects.entries, key, uid);
        (known.confirmed, known.stale) = (version, None);
        known.contention.iter_mut().for_each(OperatorContention::record_own_write);
    }

    /// Returns the other operator that writes the object too, if there is one.
    pub(super) fn contending_operator(&self, key: &Key, now: Duration) -> Option<String> {
        self.lock().entries.get(key)?.contention.as_ref()?.contending_operator(now).map(str::to_owned)
    }

    /// Drops expired state, at most once per [`WINDOW`].
    pub(super) fn sweep(&self, now: Duration) {
        let mut objects = self.lock();
        if now.saturating_sub(objects.swept) < WINDOW {
            return;
        }
        objects.swept = now;
        objects.entries.retain(|_, known| {
            known.move_backoff = known.move_backoff.take().filter(|brake| !brake.is_expired(now));
            known.contention = known.contention.take().filter(|truce| !truce.is_expired(now));
            known.confirmed = None;
            known.stale = known.stale.filter(|stale| stale.not_before > now);
            known.observed_since.retain(|(_, _, _, seen)| now.saturating_sub(*seen) < MAX_OBSERVED_TIME);
            !known.is_empty()
        });
        if objects.entries.is_empty() {
            objects.entries.shrink_to_fit();
        }
    }

    /// Drops the state of an object that is gone.
    pub(super) fn forget(&self, key: &Key) {
        remove_and_shrink(&mut self.lock().entries, key);
    }

    /// Changes an entry, and removes it if it is empty: a converged object takes no memory.
    fn change(&self, key: &Key, change: impl FnOnce(&mut RetryEntry)) {
        let mut objects = self.lock();
        let Some(known) = objects.entries.get_mut(key) else { return };
        change(known);
        if known.is_empty() {
            remove_and_shrink(&mut objects.entries, key);
        }
    }

    /// Locks the entries.
    pub(super) fn lock(&self) -> MutexGuard<'_, RetryEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
