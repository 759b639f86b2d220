//! Rows that are newer than the cluster: either another process is ahead, or the cluster was restored from a backup.
//!
//! Only a process that certainly follows the cluster may decide. If its watches are refused or silent, its own view is old,
//! which looks like a backup, and it would undo the writes of the other processes.

use std::time::{Duration, Instant};

use cluster::WatchActivity;
use store::Unconfirmed;

/// Longest lead of another process over this one.
const CONFIRM_DELAY: Duration = Duration::from_secs(3);

/// Rows of a kind that were newer than the cluster in a comparison.
#[derive(Debug)]
pub(super) struct UnconfirmedRows {
    rows: Unconfirmed,
    /// Time of the comparison that found them.
    since: Instant,
    /// Activity of the kind's watches at that time.
    activity: Vec<WatchActivity>,
}

impl UnconfirmedRows {
    /// Reports whether another comparison can confirm the rows: [`CONFIRM_DELAY`] has passed, and every watch is healthy and
    /// was active since.
    pub(super) fn can_confirm(&self, heard: &[WatchActivity], now: Instant) -> bool {
        let lives = |(before, after): (&WatchActivity, &WatchActivity)| after.healthy && after.count > before.count;
        now.saturating_duration_since(self.since) >= CONFIRM_DELAY
            && !heard.is_empty()
            && heard.len() == self.activity.len()
            && self.activity.iter().zip(heard).all(lives)
    }

    /// Returns the rows that a comparison confirms if it finds them again.
    pub(super) fn confirmed_by(&self, heard: &[WatchActivity], now: Instant) -> Unconfirmed {
        if self.can_confirm(heard, now) { self.rows.clone() } else { Unconfirmed::default() }
    }

    /// Returns the unconfirmed rows after a comparison that could confirm `confirmed` and found `found`. Rows that could not be
    /// confirmed keep their time as long as they are found.
    pub(super) fn after(
        before: Option<Self>,
        confirmed: &Unconfirmed,
        found: Unconfirmed,
        heard: Vec<WatchActivity>,
    ) -> Option<Self> {
        if let Some(mut before) = before.filter(|_| confirmed.is_empty()) {
            before.rows.retain_common(&found);
            if !before.rows.is_empty() {
                return Some(before);
            }
        }
        (!found.is_empty()).then(|| Self { rows: found, since: Instant::now(), activity: heard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(counts: &[(u64, bool)]) -> Vec<WatchActivity> {
        counts.iter().map(|(count, is_well)| WatchActivity { count: *count, healthy: *is_well }).collect()
    }

    #[test]
    fn only_who_hears_of_every_watch_can_tell() {
        let doubted = UnconfirmedRows {
            rows: Unconfirmed::default(),
            since: Instant::now(),
            activity: heard(&[(5, true), (7, false)]),
        };
        let later = doubted.since + CONFIRM_DELAY;
        assert!(doubted.can_confirm(&heard(&[(6, true), (8, true)]), later));
        for (counts, why) in [
            (&[(6, true), (7, true)][..], "one is silent"),
            (&[(6, true), (8, false)], "one is refused"),
            (&[(6, true)], "one is no more"),
            (&[], "there is none"),
        ] {
            assert!(!doubted.can_confirm(&heard(counts), later), "{why}");
        }
        assert!(!doubted.can_confirm(&heard(&[(6, true), (8, true)]), doubted.since), "another one may be ahead");
    }
}
