//! What the driver remembers of an object between steps: since when it waits, how often it was refused or moved, and how long
//! something lasts that an action asked about.
//!
//! All of it only delays; losing it in a restart changes no decision.

use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use meta::Key;

use super::{
    Wait,
    contention::OperatorContention,
    move_backoff::{ExternalState, MoveBackoff, WINDOW},
    status::short_backoff,
};

/// By object.
#[derive(Debug, Default)]
pub(super) struct RetryState(Mutex<RetryEntries>);

#[derive(Debug, Default)]
struct RetryEntries {
    entries: HashMap<Key, RetryEntry>,
    /// When what is over was last forgotten.
    swept: Duration,
}

#[derive(Debug, Default)]
struct RetryEntry {
    uid: String,
    /// The phase in which it waits, and since when.
    waiting: Option<(String, Duration)>,
    /// Failed requests in a row.
    refusals: i32,
    /// When the API server wants to be asked again (`Retry-After`).
    not_before: Option<Duration>,
    /// Its own moves of late.
    move_backoff: Option<MoveBackoff>,
    /// Another operator that writes it.
    contention: Option<OperatorContention>,
    /// The version that was the newest when this process wrote or asked for it.
    confirmed: Option<u64>,
    /// A version that the API server refused.
    stale: Option<StaleVersion>,
    /// What lasts, since when by the wall clock, how long it had lasted when it was first seen, and when that was.
    observed_since: Vec<(&'static str, Timestamp, Duration, Duration)>,
}

/// A version that the API server refused, most likely because it has a newer one.
#[derive(Debug, Clone, Copy)]
struct StaleVersion {
    version: u64,
    refusals: i32,
    not_before: Duration,
}

/// What lasts longer than this is asked about no more.
const MAX_OBSERVED_TIME: Duration = Duration::from_secs(900);

impl RetryEntry {
    fn is_empty(&self) -> bool {
        let quiet = self.waiting.is_none() && self.refusals == 0 && self.observed_since.is_empty();
        let quiet = quiet && self.confirmed.is_none() && self.stale.is_none() && self.not_before.is_none();
        quiet && self.move_backoff.is_none() && self.contention.is_none()
    }
}

impl RetryState {
    /// How long the wait is still to be kept quiet.
    pub(super) fn quiet_left(&self, key: &Key, uid: &str, phase: &str, wait: &Wait, now: Duration) -> Duration {
        let mut objects = self.lock();
        let known = entry_of(&mut objects.entries, key, uid);
        // The same wait may change its words (one of three tools came) without starting anew.
        let since = match &known.waiting {
            Some((waited, since)) if waited == phase => *since,
            _ => {
                known.waiting = Some((phase.to_owned(), now));
                now
            }
        };
        if wait.needs_user { Duration::ZERO } else { wait.quiet_period.saturating_sub(now.saturating_sub(since)) }
    }

    /// The object waits no longer.
    pub(super) fn done_waiting(&self, key: &Key) {
        self.change(key, |known| known.waiting = None);
    }

    /// One more refused request; how many in a row.
    pub(super) fn count_refusal(&self, key: &Key, uid: &str) -> i32 {
        let mut objects = self.lock();
        let known = entry_of(&mut objects.entries, key, uid);
        known.refusals = known.refusals.saturating_add(1);
        known.refusals
    }

    /// Trusts no version any more: others may have written since.
    pub(super) fn unconfirm_all(&self) {
        self.lock().entries.values_mut().for_each(|known| known.confirmed = None);
    }

    /// Forgets which version was the newest: the API server refused a step that was based on it.
    pub(super) fn unconfirm(&self, key: &Key) {
        self.change(key, |known| known.confirmed = None);
    }

    /// The API server refused this version as stale: it is tried again ever more rarely, for a watch will bring the newer one.
    pub(super) fn mark_stale(&self, key: &Key, uid: &str, version: Option<u64>, now: Duration) {
        let Some(version) = version else { return };
        let mut objects = self.lock();
        let stale = &mut entry_of(&mut objects.entries, key, uid).stale;
        let refusals = stale.filter(|stale| stale.version == version).map_or(0, |stale| stale.refusals) + 1;
        *stale = Some(StaleVersion { version, refusals, not_before: now + short_backoff(refusals) });
    }

    /// The API server has named the time after which it wants to be asked again.
    pub(super) fn retry_after(&self, key: &Key, uid: &str, time: Duration) {
        let mut objects = self.lock();
        let not_before = &mut entry_of(&mut objects.entries, key, uid).not_before;
        *not_before = (*not_before).max(Some(time));
    }

    /// How long no step of this version of the object is taken yet: until the API server wants to be asked again, or because it
    /// refused the version as stale a moment ago.
    pub(super) fn delay_left(&self, key: &Key, uid: &str, version: Option<u64>, now: Duration) -> Option<Duration> {
        let objects = self.lock();
        let known = objects.entries.get(key).filter(|known| known.uid == uid)?;
        let stale = known.stale.filter(|stale| version == Some(stale.version)).map(|stale| stale.not_before);
        known.not_before.max(stale)?.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// The requests of a step went through.
    pub(super) fn clear_refusals(&self, key: &Key) {
        self.change(key, |known| {
            known.refusals = 0;
            known.not_before = None;
        });
    }

    /// Whether the move of its own that the object is about to make is one too many.
    pub(super) fn exceeds_move_limit(
        &self,
        (key, uid): (&Key, &str),
        object: u64,
        world: impl Fn() -> u64,
        now: Duration,
    ) -> bool {
        let mut objects = self.lock();
        let brake = &mut entry_of(&mut objects.entries, key, uid).move_backoff;
        brake
            .get_or_insert_with(|| MoveBackoff::new(ExternalState { object, dependencies: world() }, now))
            .exceeds_limit(object, world, now)
    }

    /// The object made that move; how long to pause after it.
    pub(super) fn record_move(&self, key: &Key, uid: &str, now: Duration) -> Option<Duration> {
        self.lock().entries.get_mut(key)?.move_backoff.as_mut()?.record_move(now, uid)
    }

    /// What the object wrote does not hold; how long to pause.
    pub(super) fn record_lost_write(
        &self,
        (key, uid): (&Key, &str),
        object: u64,
        world: impl FnOnce() -> u64,
        now: Duration,
    ) -> Duration {
        let mut objects = self.lock();
        let brake = &mut entry_of(&mut objects.entries, key, uid).move_backoff;
        brake
            .get_or_insert_with(|| MoveBackoff::new(ExternalState { object, dependencies: world() }, now))
            .pause_for_lost_write(now, uid)
    }

    /// What the object writes holds again.
    pub(super) fn record_kept_write(&self, key: &Key) {
        self.change(key, |known| {
            known.move_backoff = known.move_backoff.take().filter(|brake| !brake.has_lost_write())
        });
    }

    /// How long the object is still to pause.
    pub(super) fn pause_left(
        &self,
        (key, uid): (&Key, &str),
        object: u64,
        world: impl FnOnce() -> u64,
        now: Duration,
    ) -> Option<Duration> {
        let mut objects = self.lock();
        let known = objects.entries.get_mut(key).filter(|known| known.uid == uid)?;
        known.move_backoff.as_mut()?.left(object, world, now)
    }

    /// Another operator wrote this entry of the object's history last, `alive` since this one began or not; how long to leave it
    /// alone.
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

    /// How long an object that we wrote last is still to be left to the other operator.
    pub(super) fn contention_left(&self, (key, uid): (&Key, &str), now: Duration) -> Duration {
        let objects = self.lock();
        let truce =
            objects.entries.get(key).filter(|known| known.uid == uid).and_then(|known| known.contention.as_ref());
        truce.map_or(Duration::ZERO, |truce| truce.remaining(now))
    }

    /// The object was written, and is in this version now.
    pub(super) fn record_write(&self, (key, uid): (&Key, &str), version: Option<u64>) {
        let mut objects = self.lock();
        let known = entry_of(&mut objects.entries, key, uid);
        (known.confirmed, known.stale) = (version, None);
        known.contention.iter_mut().for_each(OperatorContention::record_own_write);
    }

    /// The other operator that writes the object too.
    pub(super) fn contending_operator(&self, key: &Key, now: Duration) -> Option<String> {
        self.lock().entries.get(key)?.contention.as_ref()?.contending_operator(now).map(str::to_owned)
    }

    /// Forgets what is over, now and then.
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

    /// The object is gone.
    pub(super) fn forget(&self, key: &Key) {
        remove_and_shrink(&mut self.lock().entries, key);
    }

    /// What says nothing is not kept: a converged object takes no memory here.
    fn change(&self, key: &Key, change: impl FnOnce(&mut RetryEntry)) {
        let mut objects = self.lock();
        let Some(known) = objects.entries.get_mut(key) else { return };
        change(known);
        if known.is_empty() {
            remove_and_shrink(&mut objects.entries, key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, RetryEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long things last, of one object.
#[derive(Debug)]
pub(super) struct ObjectRetryState {
    pub(super) retry_state: Arc<RetryState>,
    pub(super) key: Key,
    pub(super) uid: String,
}

impl ObjectRetryState {
    /// Whether this version is known to have been the newest one.
    pub(super) fn is_confirmed(&self, version: Option<u64>) -> bool {
        let objects = self.retry_state.lock();
        let known = objects.entries.get(&self.key).filter(|known| known.uid == self.uid);
        version.is_some() && known.is_some_and(|known| known.confirmed == version)
    }

    /// Takes note that this version is not the newest one.
    pub(super) fn mark_stale(&self, version: Option<u64>, now: Duration) {
        self.retry_state.mark_stale(&self.key, &self.uid, version, now);
    }

    /// Takes note that it is.
    pub(super) fn confirm(&self, version: Option<u64>) {
        entry_of(&mut self.retry_state.lock().entries, &self.key, &self.uid).confirmed = version;
    }

    /// How long this has lasted that began at `since`, and had lasted for `age` if it is seen for the first time.
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

/// Removes an entry, and with the last one gives back what a busy time took.
pub fn remove_and_shrink<K: Borrow<Q> + Eq + Hash, Q: Eq + Hash + ?Sized, V>(map: &mut HashMap<K, V>, key: &Q) {
    map.remove(key);
    if map.is_empty() {
        map.shrink_to_fit();
    }
}

/// What is known of this object; an earlier one of the same name does not count.
fn entry_of<'a>(objects: &'a mut HashMap<Key, RetryEntry>, key: &Key, uid: &str) -> &'a mut RetryEntry {
    let known = objects.entry(key.clone()).or_default();
    if known.uid != uid {
        *known = RetryEntry { uid: uid.to_owned(), ..RetryEntry::default() };
    }
    known
}
