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
    brake::{Brake, Outside, WINDOW},
    step::short_backoff,
    truce::Truce,
};

/// By object.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Objects>);

#[derive(Debug, Default)]
struct Objects {
    known: HashMap<Key, Known>,
    /// When what is over was last forgotten.
    swept: Duration,
}

#[derive(Debug, Default)]
struct Known {
    uid: String,
    /// The phase in which it waits, and since when.
    waiting: Option<(String, Duration)>,
    /// Failed requests in a row.
    refusals: i32,
    /// When the API server wants to be asked again (`Retry-After`).
    not_before: Option<Duration>,
    /// Its own moves of late.
    brake: Option<Brake>,
    /// Another operator that writes it.
    truce: Option<Truce>,
    /// The version that was the newest when this process wrote or asked for it.
    confirmed: Option<u64>,
    /// A version that the API server refused.
    stale: Option<Stale>,
    /// What lasts, since when by the wall clock, how long it had lasted when it was first seen, and when that was.
    lasting: Vec<(&'static str, Timestamp, Duration, Duration)>,
}

/// A version that the API server refused, most likely because it has a newer one.
#[derive(Debug, Clone, Copy)]
struct Stale {
    version: u64,
    refusals: i32,
    not_before: Duration,
}

/// What lasts longer than this is asked about no more.
const LASTS: Duration = Duration::from_secs(900);

impl Known {
    fn is_empty(&self) -> bool {
        let quiet = self.waiting.is_none() && self.refusals == 0 && self.lasting.is_empty();
        let quiet = quiet && self.confirmed.is_none() && self.stale.is_none() && self.not_before.is_none();
        quiet && self.brake.is_none() && self.truce.is_none()
    }
}

impl Memory {
    /// How long the wait is still to be kept quiet.
    pub(super) fn patience_left(&self, key: &Key, uid: &str, phase: &str, wait: &Wait, now: Duration) -> Duration {
        let mut objects = self.lock();
        let known = of(&mut objects.known, key, uid);
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
        let known = of(&mut objects.known, key, uid);
        known.refusals = known.refusals.saturating_add(1);
        known.refusals
    }

    /// Trusts no version any more: others may have written since.
    pub(super) fn doubt_all(&self) {
        self.lock().known.values_mut().for_each(|known| known.confirmed = None);
    }

    /// Forgets which version was the newest: the API server refused a step that was based on it.
    pub(super) fn doubt(&self, key: &Key) {
        self.change(key, |known| known.confirmed = None);
    }

    /// The API server refused this version as stale: it is tried again ever more rarely, for a watch will bring the newer one.
    pub(super) fn outdated(&self, key: &Key, uid: &str, version: Option<u64>, now: Duration) {
        let Some(version) = version else { return };
        let mut objects = self.lock();
        let stale = &mut of(&mut objects.known, key, uid).stale;
        let refusals = stale.filter(|stale| stale.version == version).map_or(0, |stale| stale.refusals) + 1;
        *stale = Some(Stale { version, refusals, not_before: now + short_backoff(refusals) });
    }

    /// The API server has named the time after which it wants to be asked again.
    pub(super) fn retry_after(&self, key: &Key, uid: &str, time: Duration) {
        let mut objects = self.lock();
        let not_before = &mut of(&mut objects.known, key, uid).not_before;
        *not_before = (*not_before).max(Some(time));
    }

    /// How long no step of this version of the object is taken yet: until the API server wants to be asked again, or because it
    /// refused the version as stale a moment ago.
    pub(super) fn held_back(&self, key: &Key, uid: &str, version: Option<u64>, now: Duration) -> Option<Duration> {
        let objects = self.lock();
        let known = objects.known.get(key).filter(|known| known.uid == uid)?;
        let stale = known.stale.filter(|stale| version == Some(stale.version)).map(|stale| stale.not_before);
        known.not_before.max(stale)?.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// The requests of a step went through.
    pub(super) fn not_refused(&self, key: &Key) {
        self.change(key, |known| {
            known.refusals = 0;
            known.not_before = None;
        });
    }

    /// Whether the move of its own that the object is about to make is one too many.
    pub(super) fn is_braked(
        &self,
        (key, uid): (&Key, &str),
        object: u64,
        world: impl Fn() -> u64,
        now: Duration,
    ) -> bool {
        let mut objects = self.lock();
        let brake = &mut of(&mut objects.known, key, uid).brake;
        brake.get_or_insert_with(|| Brake::new(Outside { object, world: world() }, now)).is_due(object, world, now)
    }

    /// The object made that move; how long to pause after it.
    pub(super) fn moved(&self, key: &Key, uid: &str, now: Duration) -> Option<Duration> {
        self.lock().known.get_mut(key)?.brake.as_mut()?.moved(now, uid)
    }

    /// What the object wrote does not hold; how long to pause.
    pub(super) fn not_held(
        &self,
        (key, uid): (&Key, &str),
        object: u64,
        world: impl FnOnce() -> u64,
        now: Duration,
    ) -> Duration {
        let mut objects = self.lock();
        let brake = &mut of(&mut objects.known, key, uid).brake;
        brake.get_or_insert_with(|| Brake::new(Outside { object, world: world() }, now)).refuse(now, uid)
    }

    /// What the object writes holds again.
    pub(super) fn held(&self, key: &Key) {
        self.change(key, |known| known.brake = known.brake.take().filter(|brake| !brake.is_refused()));
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
        let known = objects.known.get_mut(key).filter(|known| known.uid == uid)?;
        known.brake.as_mut()?.left(object, world, now)
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
        let truce = &mut of(&mut objects.known, key, uid).truce;
        truce.get_or_insert_with(|| Truce::new(other, seq, alive, now)).left(other, seq, now)
    }

    /// How long an object that we wrote last is still to be left to the other operator.
    pub(super) fn truce_left(&self, (key, uid): (&Key, &str), now: Duration) -> Duration {
        let objects = self.lock();
        let truce = objects.known.get(key).filter(|known| known.uid == uid).and_then(|known| known.truce.as_ref());
        truce.map_or(Duration::ZERO, |truce| truce.rest(now))
    }

    /// The object was written, and is in this version now.
    pub(super) fn wrote(&self, (key, uid): (&Key, &str), version: Option<u64>) {
        let mut objects = self.lock();
        let known = of(&mut objects.known, key, uid);
        (known.confirmed, known.stale) = (version, None);
        known.truce.iter_mut().for_each(Truce::wrote);
    }

    /// The other operator that writes the object too.
    pub(super) fn contest(&self, key: &Key, now: Duration) -> Option<String> {
        self.lock().known.get(key)?.truce.as_ref()?.contest(now).map(str::to_owned)
    }

    /// Forgets what is over, now and then.
    pub(super) fn sweep(&self, now: Duration) {
        let mut objects = self.lock();
        if now.saturating_sub(objects.swept) < WINDOW {
            return;
        }
        objects.swept = now;
        objects.known.retain(|_, known| {
            known.brake = known.brake.take().filter(|brake| !brake.is_over(now));
            known.truce = known.truce.take().filter(|truce| !truce.is_over(now));
            known.confirmed = None;
            known.stale = known.stale.filter(|stale| stale.not_before > now);
            known.lasting.retain(|(_, _, _, seen)| now.saturating_sub(*seen) < LASTS);
            !known.is_empty()
        });
        if objects.known.is_empty() {
            objects.known.shrink_to_fit();
        }
    }

    /// The object is gone.
    pub(super) fn forget(&self, key: &Key) {
        remove_and_shrink(&mut self.lock().known, key);
    }

    /// What says nothing is not kept: a converged object takes no memory here.
    fn change(&self, key: &Key, change: impl FnOnce(&mut Known)) {
        let mut objects = self.lock();
        let Some(known) = objects.known.get_mut(key) else { return };
        change(known);
        if known.is_empty() {
            remove_and_shrink(&mut objects.known, key);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long things last, of one object.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) memory: Arc<Memory>,
    pub(super) key: Key,
    pub(super) uid: String,
}

impl Observed {
    /// Whether this version is known to have been the newest one.
    pub(super) fn is_confirmed(&self, version: Option<u64>) -> bool {
        let objects = self.memory.lock();
        let known = objects.known.get(&self.key).filter(|known| known.uid == self.uid);
        version.is_some() && known.is_some_and(|known| known.confirmed == version)
    }

    /// Takes note that this version is not the newest one.
    pub(super) fn outdated(&self, version: Option<u64>, now: Duration) {
        self.memory.outdated(&self.key, &self.uid, version, now);
    }

    /// Takes note that it is.
    pub(super) fn confirm(&self, version: Option<u64>) {
        of(&mut self.memory.lock().known, &self.key, &self.uid).confirmed = version;
    }

    /// How long this has lasted that began at `since`, and had lasted for `age` if it is seen for the first time.
    pub(super) fn lasted(&self, what: &'static str, since: Timestamp, age: Duration, now: Duration) -> Duration {
        let mut objects = self.memory.lock();
        let known = of(&mut objects.known, &self.key, &self.uid);
        let (_, _, age, seen) = match known.lasting.iter().find(|(known, began, ..)| *known == what && *began == since)
        {
            Some(found) => *found,
            None => {
                known.lasting.retain(|(known, ..)| *known != what);
                known.lasting.push((what, since, age, now));
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
fn of<'a>(objects: &'a mut HashMap<Key, Known>, key: &Key, uid: &str) -> &'a mut Known {
    let known = objects.entry(key.clone()).or_default();
    if known.uid != uid {
        *known = Known { uid: uid.to_owned(), ..Known::default() };
    }
    known
}
