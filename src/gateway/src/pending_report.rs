//! Calls of an agent that wait for a person, as its responses report them.

use std::sync::{Mutex, PoisonError};

use crds::pending_calls::PendingCalls;

/// Newest report of one agent to this gateway.
#[derive(Debug, Default)]
pub(super) struct PendingReport(Mutex<Option<PendingCalls>>);

impl PendingReport {
    /// Takes a report over, unless a newer one is known: Pods that share a database count the same calls at different times. One from
    /// after `now`, in milliseconds since 1970, is of now, so that a clock that is ahead hides no later report.
    pub(super) fn take(&self, report: &[u8], now: u64) {
        if let Some(read) = PendingCalls::read(report) {
            let pending = PendingCalls { at: read.at.min(i64::try_from(now).unwrap_or(i64::MAX)), ..read };
            let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *latest = Some(latest.map_or(pending, |known| known.newer(pending)));
        }
    }

    /// Returns the newest report; `None`: there was none.
    pub(super) fn latest(&self) -> Option<PendingCalls> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_report_counts_and_what_is_none_changes_nothing() {
        let report = PendingReport::default();
        assert_eq!(report.latest(), None);
        for (text, calls) in [
            ("at=5, calls=2, since=1, until=9", 2),
            ("at=4, calls=0", 2),
            ("at=6, calls=x", 2),
            ("at=6, calls=1, since=1, until=9", 1),
            ("at=999999999999999, calls=3, since=1, until=9", 3),
            ("at=6, calls=1, since=1, until=9", 3),
            ("at=7, calls=0", 0),
        ] {
            report.take(text.as_bytes(), 7);
            assert_eq!(report.latest().map(|pending| pending.calls), Some(calls), "{text}");
        }
    }
}
