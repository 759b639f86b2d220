//! Backs off exponentially from an object that another operator writes too.
//!
//! Each operator takes the other's settings for a change and would revert it at once. So an object that another operator wrote
//! last is left alone for a while, for longer each time the other one writes again after a write of this operator. What the driver
//! does meanwhile is in `other_operator.rs`.

use std::time::Duration;

/// Time for which another operator is remembered: two operators may meet rarely, only when an outside change wakes both.
const RETENTION: Duration = Duration::from_secs(600);

/// Time for which `Ready` goes on naming the other operator after the pause is over.
pub(super) const CONTENTION_REPORTED_FOR: Duration = Duration::from_secs(60);

/// Back-off from another operator that writes the same object.
///
/// Invariant: `until` changes only with a new history entry of the other operator, and grows with `rounds`.
#[derive(Debug, Clone)]
pub(super) struct OperatorContention {
    /// Identity of the other operator: namespace and name of its lease.
    other: String,
    /// Number of the last history entry that it wrote.
    seq: i64,
    /// Number of its writes that followed a write of this operator. Its first write counts one, or two if it came while this
    /// operator was running.
    rounds: u32,
    until: Duration,
    /// True if this operator wrote the object since.
    wrote_since: bool,
}

impl OperatorContention {
    /// Records the first write of another operator that is seen. `alive`: it was made after this operator became the leader, so
    /// both are running; otherwise the other one may be gone.
    pub(super) fn new(other: &str, seq: i64, alive: bool, now: Duration) -> Self {
        let rounds = 1 + u32::from(alive);
        let mut truce = Self { other: other.to_owned(), seq, rounds, until: now, wrote_since: false };
        truce.until = now + truce.pause();
        truce
    }

    /// Records that the other operator wrote this history entry last, and returns how long to leave the object alone.
    pub(super) fn observe_write(&mut self, other: &str, seq: i64, now: Duration) -> Duration {
        if self.seq != seq {
            other.clone_into(&mut self.other);
            self.seq = seq;
            self.rounds = self.rounds.saturating_add(u32::from(self.wrote_since));
            self.wrote_since = false;
            self.until = now + self.pause();
        }
        self.remaining(now)
    }

    /// Returns how long the object is still to be left alone.
    pub(super) fn remaining(&self, now: Duration) -> Duration {
        self.until.saturating_sub(now)
    }

    /// Records a write of this operator.
    pub(super) fn record_own_write(&mut self) {
        self.wrote_since = true;
    }

    /// Returns the other operator if it wrote while this one was running and that is not long ago.
    pub(super) fn contending_operator(&self, now: Duration) -> Option<&str> {
        (self.rounds > 1 && now.saturating_sub(self.until) <= CONTENTION_REPORTED_FOR).then_some(self.other.as_str())
    }

    /// Reports whether the other operator has been quiet for so long that it can be forgotten.
    pub(super) fn is_expired(&self, now: Duration) -> bool {
        now.saturating_sub(self.until) > RETENTION.max(self.pause() * 2)
    }

    /// Returns the back-off of this round: 2 s … 5 min, doubling.
    fn pause(&self) -> Duration {
        Duration::from_secs(1 << self.rounds.min(9)).min(Duration::from_secs(300))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_that_writes_while_we_are_at_work_is_named_at_once() {
        let mut truce = OperatorContention::new("ns/b", 7, true, Duration::ZERO);
        assert_eq!(truce.contending_operator(Duration::ZERO), Some("ns/b"));
        assert_eq!(truce.observe_write("ns/b", 7, Duration::ZERO), SECOND * 4);
        assert_eq!(truce.observe_write("ns/b", 8, SECOND), SECOND * 4, "we did not write in between");
    }

    #[test]
    fn one_that_is_gone_is_waited_for_once() {
        let mut truce = OperatorContention::new("ns/b", 7, false, Duration::ZERO);
        assert_eq!(truce.observe_write("ns/b", 7, SECOND), SECOND);
        assert_eq!(truce.observe_write("ns/b", 7, SECOND * 2), Duration::ZERO);
        assert_eq!(truce.contending_operator(SECOND), None);
    }

    #[test]
    fn one_that_comes_back_is_left_alone_ever_longer_up_to_five_minutes() {
        let (mut now, mut truce) = (Duration::ZERO, OperatorContention::new("ns/b", 0, false, Duration::ZERO));
        let mut pauses = Vec::new();
        for seq in 1..12 {
            truce.record_own_write();
            pauses.push(truce.observe_write("ns/b", seq, now).as_secs());
            now += truce.observe_write("ns/b", seq, now);
        }
        assert_eq!(pauses, [4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]);
        assert_eq!(truce.contending_operator(now), Some("ns/b"));
        assert_eq!(truce.contending_operator(now + CONTENTION_REPORTED_FOR + SECOND), None, "it does not come back");
        assert!(!truce.is_expired(now) && truce.is_expired(now + SECOND * 620));
    }

    #[test]
    fn one_at_work_is_waited_for_until_it_rests() {
        let mut truce = OperatorContention::new("ns/b", 1, false, Duration::ZERO);
        assert_eq!(truce.observe_write("ns/b", 2, SECOND), SECOND * 2);
        assert_eq!(truce.observe_write("ns/b", 3, SECOND * 2), SECOND * 2);
        assert_eq!(truce.contending_operator(SECOND), None, "we did not write");
    }
}
