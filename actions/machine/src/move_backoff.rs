//! Detects hot loops (an object that changes phase again and again without an outside change) and slows them down by exponential
//! back-off.
//!
//! Such a loop is a defect of this program or of the cluster it is installed in, and would run at the speed of the API server.
//! This module does not know the cause: it counts transitions, and forgets them when something outside changes or when the object
//! is quiet. The plan of a step (`plan.rs`) asks it, and tells the user.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::backoff::{LONGEST_BACKOFF, backoff};

/// More own transitions than this within [`WINDOW`] are a hot loop. From create to Running there are four.
const MAX_MOVES: u32 = 20;
/// Time for which transitions are counted.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// Digests of the state that other clients may change: of the object itself, and of its dependencies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ExternalState {
    /// Digest of the spec, labels and annotations; cheap to compute.
    pub(super) object: u64,
    /// Digest of the references and children.
    pub(super) dependencies: u64,
}

/// Returns a digest of the parts of the object itself that other clients may change.
pub fn external_digest(meta: &ObjectMeta) -> u64 {
    let ours = meta.annotations.iter().flatten().filter(|(name, _)| name.starts_with(meta::ANNOTATION_PREFIX));
    let mut digest = DefaultHasher::new();
    (meta.generation, &meta.labels, ours.collect::<Vec<_>>(), meta.deletion_timestamp.is_some()).hash(&mut digest);
    digest.finish()
}

/// Counter of the transitions of one object since the last outside change, and its back-off.
///
/// Invariant: `begun <= last`, and the object is paused exactly while the clock is before `until`.
#[derive(Debug, Clone)]
pub(super) struct MoveBackoff {
    external: ExternalState,
    moves: u32,
    /// Times of the first and of the last counted transition.
    begun: Duration,
    last: Duration,
    /// Number of pauses in a row, and the end of the last one.
    pauses: i32,
    until: Duration,
    /// True if the pauses are caused by writes that the API server did not keep, not by too many transitions.
    write_lost: bool,
}

impl MoveBackoff {
    /// Starts to count at `now`.
    pub(super) fn new(outside: ExternalState, now: Duration) -> Self {
        Self { external: outside, moves: 0, begun: now, last: now, pauses: 0, until: now, write_lost: false }
    }

    /// Reports whether the transition that is about to be made is one too many. `dependency_digest`, the digest of the dependencies, is
    /// computed only if it decides.
    pub(super) fn exceeds_limit(&mut self, object: u64, dependency_digest: impl Fn() -> u64, now: Duration) -> bool {
        let counted = self.pauses > 0 || now.saturating_sub(self.begun) <= WINDOW;
        if self.external.object != object || !counted || self.is_expired(now) {
            *self = Self::new(ExternalState { object, dependencies: dependency_digest() }, now);
        }
        let due = self.moves >= MAX_MOVES || self.write_lost;
        if due && self.external.dependencies != dependency_digest() {
            *self = Self::new(ExternalState { object, dependencies: dependency_digest() }, now);
            return false;
        }
        due
    }

    /// Counts a transition that was made, and returns the pause after it, if any.
    pub(super) fn record_move(&mut self, now: Duration, uid: &str) -> Option<Duration> {
        self.moves = self.moves.saturating_add(1);
        self.last = now;
        (self.moves > MAX_MOVES || self.write_lost).then(|| self.pause(now, uid))
    }

    /// Starts a pause, each longer than the one before: exponential back-off from 1 s to 5 min.
    pub(super) fn pause(&mut self, now: Duration, uid: &str) -> Duration {
        self.pauses = self.pauses.saturating_add(1);
        self.last = now;
        let pause = backoff(self.pauses, uid, LONGEST_BACKOFF);
        self.until = now + pause;
        pause
    }

    /// Starts a pause because the API server did not keep what was written.
    pub(super) fn pause_for_lost_write(&mut self, now: Duration, uid: &str) -> Duration {
        self.write_lost = true;
        self.pause(now, uid)
    }

    /// Reports whether the pauses are caused by writes that the API server did not keep.
    pub(super) fn has_lost_write(&self) -> bool {
        self.write_lost
    }

    /// Returns the rest of the pause; `None` if there is none or something outside changed.
    pub(super) fn left(
        &mut self,
        object: u64,
        dependency_digest: impl FnOnce() -> u64,
        now: Duration,
    ) -> Option<Duration> {
        let left = self.until.saturating_sub(now);
        if left.is_zero() {
            return None;
        }
        let same = self.external.object == object && self.external.dependencies == dependency_digest();
        if !same {
            // The outside change starts a new count with the next transition.
            *self = Self { begun: Duration::ZERO, pauses: 0, until: Duration::ZERO, ..self.clone() };
        }
        same.then_some(left)
    }

    /// Reports whether the object has been quiet for so long that the counter can be dropped.
    pub(super) fn is_expired(&self, now: Duration) -> bool {
        let pause = self.until.saturating_sub(self.last);
        now.saturating_sub(self.last) > WINDOW.max(pause * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the pauses after this many transitions in a row, each made as soon as it is allowed.
    fn pauses(moves: u32, dependency_digest: impl Fn(u32) -> u64, object: impl Fn(u32) -> u64) -> Vec<u64> {
        let mut now = 100 * SECOND;
        let mut brake = MoveBackoff::new(ExternalState { object: object(0), dependencies: dependency_digest(0) }, now);
        let mut found = Vec::new();
        for n in 0..moves {
            let due = brake.exceeds_limit(object(n), || dependency_digest(n), now);
            let pause = brake.record_move(now, "u");
            assert_eq!(due, pause.is_some());
            found.extend(pause.map(|pause| pause.as_secs()));
            now += pause.unwrap_or(Duration::from_millis(20));
        }
        found
    }

    #[test]
    fn the_twenty_first_move_pauses_and_each_later_one_longer_up_to_five_minutes() {
        assert_eq!(pauses(20, |_| 0, |_| 0), Vec::<u64>::new());
        let found = pauses(35, |_| 0, |_| 0);
        assert_eq!(found.len(), 15);
        assert!(found[0] <= 1 && found[1] > found[0] && found[4] > found[3], "{found:?}");
        assert!(found.iter().all(|pause| *pause <= 360) && found[14] >= 240, "{found:?}");
    }

    #[test]
    fn what_changes_outside_is_never_paused() {
        assert_eq!(pauses(1000, |_| 0, |n| u64::from(n / 5)), Vec::<u64>::new(), "200 edits, 5 moves each");
        assert_eq!(pauses(120, |n| u64::from(n / 4), |_| 0), Vec::<u64>::new(), "30 tools, 4 moves each");
    }

    #[test]
    fn a_change_outside_ends_a_pause() {
        let now = 100 * SECOND;
        let mut brake = MoveBackoff::new(ExternalState::default(), now);
        brake.pause(now, "u");
        assert!(brake.left(0, || 0, now).is_some());
        assert_eq!(brake.left(0, || 1, now), None);
        assert!(!brake.exceeds_limit(0, || 1, now));
        assert_eq!(brake.record_move(now, "u"), None);
    }

    #[test]
    fn moves_that_are_minutes_apart_are_not_counted_together() {
        let mut brake = MoveBackoff::new(ExternalState::default(), Duration::ZERO);
        for n in 0..100 {
            assert!(!brake.exceeds_limit(0, || 0, SECOND * 6 * n), "{n}: ten in a minute");
            brake.record_move(SECOND * 6 * n, "u");
        }
    }
}
