//! Sliding window of one limit: how many requests the gateways admitted in the last minute, counted in slots of ten seconds.
//!
//! A gateway counts its own admissions, and knows those of the others as it last read them. What it admitted and another one has
//! not read yet counts for it once up to a slack, and beyond that as often as there are gateways: each of the others may have
//! admitted as much unread. So gateways that cannot read one another share the limit between them.

use crds::usage::day_of;
use serde::{Deserialize, Serialize};

/// Milliseconds of a day.
const DAY_MILLIS: u64 = 86_400_000;
/// Length of a slot, in milliseconds.
const SLOT_MILLIS: u64 = 10_000;
/// Slots of a window: any minute lies in them, the current slot included.
pub(super) const SLOTS: usize = 7;
/// Slots that the clock of another gateway may be ahead.
const MAX_AHEAD: u32 = 6;
/// Longest time for which admissions beyond the slack may stay unread before they count against the others, in milliseconds.
const GRACE_MILLIS: u64 = 50;
/// Wait that is recommended while other gateways have to read first, in milliseconds.
const UNREAD_WAIT_MILLIS: u64 = 1000;

/// Time of a decision, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitTime {
    /// Since 1970, by which the slots of all gateways are the same.
    pub(crate) unix: u64,
    /// Since the start of this process, by a clock that never jumps.
    pub(crate) up: u64,
}

impl LimitTime {
    fn slot(self) -> u32 {
        u32::try_from(self.unix / SLOT_MILLIS).unwrap_or(u32::MAX)
    }

    /// Returns the day (UTC), in days since 1970.
    pub(crate) fn day(self) -> i64 {
        i64::try_from(self.unix / 1000).map_or(i64::MAX, day_of)
    }

    /// Returns the time until the next day, in milliseconds.
    pub(super) fn until_next_day(self) -> u64 {
        DAY_MILLIS - self.unix % DAY_MILLIS
    }
}

/// Counts of the newest [`SLOTS`] slots, of one gateway.
///
/// Invariant: the count of slot `s` is at `s % SLOTS`, for the slots up to `newest`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SlotCounts {
    newest: u32,
    counts: [u32; SLOTS],
}

impl SlotCounts {
    /// Returns each slot with its count.
    fn slots(&self) -> impl Iterator<Item = (u32, u32)> {
        let oldest = self.newest.saturating_sub(SLOTS as u32 - 1);
        (oldest..=self.newest).map(|slot| (slot, self.counts[slot as usize % SLOTS]))
    }

    fn advance(&mut self, slot: u32) {
        if slot <= self.newest {
            return;
        }
        let steps = (slot - self.newest).min(SLOTS as u32);
        for passed in slot - steps + 1..=slot {
            self.counts[passed as usize % SLOTS] = 0;
        }
        self.newest = slot;
    }

    /// Counts one more. With a clock that went back, it counts in the newest slot.
    fn add(&mut self, slot: u32) {
        self.advance(slot);
        let count = &mut self.counts[self.newest as usize % SLOTS];
        *count = count.saturating_add(1);
    }

    /// Takes the larger count of each slot. Returns true if one was raised.
    fn merge(&mut self, other: &Self) -> bool {
        self.advance(other.newest);
        let mut raised = false;
        for (slot, theirs) in other.slots() {
            let is_kept = slot.saturating_add(SLOTS as u32) > self.newest;
            let ours = &mut self.counts[slot as usize % SLOTS];
            if is_kept && theirs > *ours {
                *ours = theirs;
                raised = true;
            }
        }
        raised
    }

    /// Adds the counts to `ages`, by the age of their slots: 0 is the current one.
    fn add_to(&self, now: u32, ages: &mut [u32; SLOTS]) {
        for (slot, count) in self.slots() {
            let age = now.saturating_sub(slot) as usize;
            if age < SLOTS && slot <= now.saturating_add(MAX_AHEAD) {
                ages[age] = ages[age].saturating_add(count);
            }
        }
    }

    fn sum(&self, now: u32) -> u32 {
        let mut ages = [0; SLOTS];
        self.add_to(now, &mut ages);
        sum(&ages)
    }
}

fn sum(ages: &[u32; SLOTS]) -> u32 {
    ages.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

/// Knowledge of the other gateways at the time of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerView {
    /// Number of the others.
    pub(super) others: u32,
    /// Version of the own counts that each of them has read; 0: one of them has read nothing.
    pub(super) read: u64,
    /// Time of that version, in milliseconds since the start.
    pub(super) read_at: u64,
}

/// Window of one limit.
#[derive(Debug, Default)]
pub(super) struct RateWindow {
    own: SlotCounts,
    /// Counts of other gateways, and of earlier processes, by instance.
    others: Vec<(u64, SlotCounts)>,
    /// Version of the last change of a count.
    pub(super) changed: u64,
    /// Version of the last own admission.
    own_changed: u64,
    /// Own admissions up to version `boundary` that may be unread, and those after it.
    unread: (u32, u32),
    boundary: u64,
    /// Time at which the unread ones exceeded the slack, in milliseconds since the start; 0 while they do not.
    exceeded_at: u64,
}

impl RateWindow {
    /// Decides on one request more. Returns true if the others should read at once.
    ///
    /// # Errors
    /// The limit is reached: the time until a request fits, in milliseconds.
    pub(super) fn check(&mut self, limit: u32, view: PeerView, now: LimitTime) -> Result<bool, u64> {
        let slot = now.slot();
        let mut ages = [0; SLOTS];
        self.own.add_to(slot, &mut ages);
        let own = sum(&ages);
        self.others.iter().for_each(|(_, counts)| counts.add_to(slot, &mut ages));
        let total = sum(&ages);
        if total >= limit {
            return Err(until_fits(&ages, total - limit + 1, now));
        }
        let slack = (limit / (4 * view.others.saturating_add(1))).max(1);
        let over = self.unread(view, own).saturating_add(1).saturating_sub(slack);
        if over == 0 {
            self.exceeded_at = 0;
            return Ok(false);
        }
        if self.exceeded_at == 0 {
            self.exceeded_at = now.up.max(1);
        }
        let is_in_time = now.up <= self.exceeded_at.max(view.read_at).saturating_add(GRACE_MILLIS);
        let reserved = if is_in_time { 0 } else { view.others.saturating_mul(over) };
        if total.saturating_add(reserved) >= limit {
            return Err(UNREAD_WAIT_MILLIS);
        }
        Ok(true)
    }

    /// Counts an admission, which is this version of the own counts.
    pub(super) fn count(&mut self, now: LimitTime, version: u64) {
        self.own.add(now.slot());
        self.unread.1 = self.unread.1.saturating_add(1);
        (self.changed, self.own_changed) = (version, version);
    }

    /// Returns a number that is not below that of the own admissions which some other gateway has not read.
    fn unread(&mut self, view: PeerView, own: u32) -> u32 {
        if view.read >= self.own_changed {
            self.unread = (0, 0);
        } else if view.read >= self.boundary {
            self.unread = (self.unread.1, 0);
            self.boundary = self.own_changed;
        }
        if view.read == 0 { own } else { self.unread.0.saturating_add(self.unread.1).min(own) }
    }

    /// Takes over the counts of another gateway. `version` is called if they were not known.
    pub(super) fn merge(&mut self, instance: u64, counts: &SlotCounts, version: impl FnOnce() -> u64) {
        let raised = match self.others.iter_mut().find(|(known, _)| *known == instance) {
            Some((_, known)) => known.merge(counts),
            None => {
                self.others.push((instance, *counts));
                true
            }
        };
        if raised {
            self.changed = version();
        }
    }

    /// Returns the counts of every gateway that are not all zero; `own` is the instance of this one.
    pub(super) fn counts(&self, own: u64, now: LimitTime) -> impl Iterator<Item = (u64, SlotCounts)> {
        let all = std::iter::once((own, self.own)).chain(self.others.iter().copied());
        all.filter(move |(_, counts)| counts.sum(now.slot()) > 0)
    }

    /// Forgets counts that no minute has any more. Returns false if nothing is left.
    pub(super) fn sweep(&mut self, now: LimitTime) -> bool {
        self.others.retain(|(_, counts)| counts.sum(now.slot()) > 0);
        !self.others.is_empty() || self.own.sum(now.slot()) > 0
    }
}

/// Returns the time until `surplus` requests have left the window, in milliseconds.
fn until_fits(ages: &[u32; SLOTS], surplus: u32, now: LimitTime) -> u64 {
    let mut leaving = 0_u32;
    for (age, count) in ages.iter().enumerate().rev() {
        leaving = leaving.saturating_add(*count);
        if leaving >= surplus {
            let leaves = now.unix / SLOT_MILLIS + (SLOTS - age) as u64;
            return (leaves * SLOT_MILLIS).saturating_sub(now.unix);
        }
    }
    SLOT_MILLIS
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: PeerView = PeerView { others: 0, read: u64::MAX, read_at: u64::MAX };

    fn at(millis: u64) -> LimitTime {
        LimitTime { unix: 1_000_000_000_000 + millis, up: 1 + millis }
    }

    /// Admits as many requests as fit at once, up to 100, from this version on.
    fn burst(window: &mut RateWindow, limit: u32, view: PeerView, now: LimitTime, from: u64) -> u64 {
        (0..100).take_while(|at| window.check(limit, view, now).map(|_| window.count(now, from + at)).is_ok()).count()
            as u64
    }

    #[test]
    fn a_gateway_alone_is_exact_and_says_when_the_next_one_fits() {
        let mut window = RateWindow::default();
        assert_eq!(burst(&mut window, 10, ALONE, at(0), 2), 10);
        assert_eq!(window.check(10, ALONE, at(1)), Err(69_999), "the slot of the ten leaves then");
        assert_eq!(window.check(10, ALONE, at(60_000)), Err(10_000));
        assert_eq!(burst(&mut window, 10, ALONE, at(70_000), 12), 10);
    }

    #[test]
    fn the_wait_is_for_as_many_slots_as_must_leave() {
        let mut ages = [0; SLOTS];
        (ages[6], ages[4], ages[0]) = (3, 4, 3);
        for (surplus, wait) in [(1, 5_000), (3, 5_000), (4, 25_000), (7, 25_000), (8, 65_000)] {
            assert_eq!(until_fits(&ages, surplus, at(5_000)), wait, "{surplus}");
        }
    }

    #[test]
    fn what_others_admitted_counts_and_is_never_forgotten_early() {
        let mut other = SlotCounts::default();
        (0..6).for_each(|_| other.add(at(5000).slot()));
        let mut window = RateWindow::default();
        window.merge(7, &other, || 2);
        window.merge(7, &SlotCounts::default(), || 3);
        assert_eq!(window.changed, 2, "a report of before changes nothing");
        assert_eq!(burst(&mut window, 10, ALONE, at(6000), 4), 4);
        assert_eq!(burst(&mut window, 10, ALONE, at(69_999), 8), 0);
    }

    #[test]
    fn unread_admissions_share_the_limit_with_the_others() {
        for (others, share) in [(1, 33), (2, 23), (4, 14)] {
            let cut_off = PeerView { others, read: 0, read_at: 0 };
            let mut window = RateWindow::default();
            let admitted =
                (0..60).filter(|tenth| burst_of_one(&mut window, cut_off, at(tenth * 100), tenth + 2)).count();
            assert_eq!(admitted, share, "with {others} others");
            assert!(admitted >= 60 / (others as usize + 1), "each has its share");
        }
    }

    fn burst_of_one(window: &mut RateWindow, view: PeerView, now: LimitTime, version: u64) -> bool {
        window.check(60, view, now).map(|_| window.count(now, version)).is_ok()
    }

    #[test]
    fn a_burst_is_admitted_while_the_others_have_time_to_read() {
        let view = PeerView { others: 1, read: 1, read_at: 1000 };
        let mut window = RateWindow::default();
        assert_eq!(burst(&mut window, 10, view, at(1040), 2), 10);
        let mut late = RateWindow::default();
        late.count(at(1040), 2);
        late.exceeded_at = 1000;
        assert_eq!(burst(&mut late, 10, view, at(1060), 3), 4, "five in all, and five are left for the other");
        let read = PeerView { read: 6, read_at: 1050, ..view };
        assert_eq!(burst(&mut late, 10, read, at(1070), 7), 5, "all of it was read");
    }
}
