//! Rows that are newer than the cluster: is another process ahead, or was the cluster restored from a backup?
//!
//! Only a process that surely follows the cluster may tell. One whose watches are refused or silent sees a past that looks
//! like a backup, and so would undo what the others write.

use std::time::{Duration, Instant};

use cluster::WatchActivity;
use store::Unconfirmed;

/// How long another process may be ahead of this one.
const CONFIRM_DELAY: Duration = Duration::from_secs(3);

/// What of a kind was newer than the cluster when it was compared.
#[derive(Debug)]
pub(super) struct UnconfirmedRows {
    rows: Unconfirmed,
    /// When it was found first.
    since: Instant,
    /// What had been heard of the kind's watches by then.
    activity: Vec<WatchActivity>,
}

impl UnconfirmedRows {
    /// Whether another look can tell: there was time, and meanwhile every watch has given a sign of life and is well.
    pub(super) fn can_confirm(&self, heard: &[WatchActivity], now: Instant) -> bool {
        let lives = |(before, after): (&WatchActivity, &WatchActivity)| after.healthy && after.count > before.count;
        now.saturating_duration_since(self.since) >= CONFIRM_DELAY
            && !heard.is_empty()
            && heard.len() == self.activity.len()
            && self.activity.iter().zip(heard).all(lives)
    }

    /// What a look confirms that finds it again.
    pub(super) fn confirmed_by(&self, heard: &[WatchActivity], now: Instant) -> Unconfirmed {
        if self.can_confirm(heard, now) { self.rows.clone() } else { Unconfirmed::default() }
    }

    /// What is in doubt after a look that could confirm `confirmed` and found `found`. What could not be confirmed keeps its
    /// time as long as it is found.
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
