//! Rows that are newer than the cluster: is another process ahead, or was the cluster restored from a backup?
//!
//! Only a process that surely follows the cluster may tell. One whose watches are refused or silent sees a past that looks
//! like a backup, and so would undo what the others write.

use std::time::{Duration, Instant};

use cluster::Hearing;
use store::Doubts;

/// How long another process may be ahead of this one.
const AHEAD: Duration = Duration::from_secs(3);

/// What of a kind was newer than the cluster when it was compared.
#[derive(Debug)]
pub(super) struct Doubted {
    doubts: Doubts,
    /// When it was found first.
    since: Instant,
    /// What had been heard of the kind's watches by then.
    heard: Vec<Hearing>,
}

impl Doubted {
    /// Whether another look can tell: there was time, and meanwhile every watch has given a sign of life and is well.
    pub(super) fn can_tell(&self, heard: &[Hearing], now: Instant) -> bool {
        let lives = |(before, after): (&Hearing, &Hearing)| after.is_well && after.count > before.count;
        now.saturating_duration_since(self.since) >= AHEAD
            && !heard.is_empty()
            && heard.len() == self.heard.len()
            && self.heard.iter().zip(heard).all(lives)
    }

    /// What a look confirms that finds it again.
    pub(super) fn confirmed_by(&self, heard: &[Hearing], now: Instant) -> Doubts {
        if self.can_tell(heard, now) { self.doubts.clone() } else { Doubts::default() }
    }

    /// What is in doubt after a look that could confirm `confirmed` and found `found`. What could not be confirmed keeps its
    /// time as long as it is found.
    pub(super) fn after(before: Option<Self>, confirmed: &Doubts, found: Doubts, heard: Vec<Hearing>) -> Option<Self> {
        if let Some(mut before) = before.filter(|_| confirmed.is_empty()) {
            before.doubts.retain_common(&found);
            if !before.doubts.is_empty() {
                return Some(before);
            }
        }
        (!found.is_empty()).then(|| Self { doubts: found, since: Instant::now(), heard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(counts: &[(u64, bool)]) -> Vec<Hearing> {
        counts.iter().map(|(count, is_well)| Hearing { count: *count, is_well: *is_well }).collect()
    }

    #[test]
    fn only_who_hears_of_every_watch_can_tell() {
        let doubted =
            Doubted { doubts: Doubts::default(), since: Instant::now(), heard: heard(&[(5, true), (7, false)]) };
        let later = doubted.since + AHEAD;
        assert!(doubted.can_tell(&heard(&[(6, true), (8, true)]), later));
        for (counts, why) in [
            (&[(6, true), (7, true)][..], "one is silent"),
            (&[(6, true), (8, false)], "one is refused"),
            (&[(6, true)], "one is no more"),
            (&[], "there is none"),
        ] {
            assert!(!doubted.can_tell(&heard(counts), later), "{why}");
        }
        assert!(!doubted.can_tell(&heard(&[(6, true), (8, true)]), doubted.since), "another one may be ahead");
    }
}
