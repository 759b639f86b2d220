//! Load counters: what is in flight, its integral over time, and the peak of each second.

use std::time::Duration;

use tokio::time::Instant;

/// Number of whole seconds for which peaks are kept.
pub(super) const PEAKS: usize = 10;

/// Length of the time that a peak is of.
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Counters behind the lock.
///
/// Invariant: `in_flight` is the number of slots that have neither ended nor become listeners, and never exceeds a
/// nonzero cap. `listen_streams` is the number of listening slots.
#[derive(Debug)]
pub(super) struct LoadCounters {
    pub(super) in_flight: u32,
    /// Streams that only listen. They count as no work.
    pub(super) listen_streams: u32,
    /// Time integral of `in_flight` up to `since`, in request-microseconds.
    pub(super) busy: u64,
    pub(super) since: Instant,
    pub(super) completed: u64,
    pub(super) refused: u64,
    /// Ring buffer of the highest offered concurrency per second, indexed by second modulo its length.
    pub(super) peaks: [u32; PEAKS + 1],
    /// Current second since the start.
    pub(super) second: u64,
    /// End of the current second.
    pub(super) second_ends: Instant,
    pub(super) last_activity: Option<Instant>,
}

impl LoadCounters {
    /// Advances the time integral and the peaks to now.
    pub(super) fn advance_to(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        self.busy += u64::from(self.in_flight) * (passed.as_secs() * 1_000_000 + u64::from(passed.subsec_micros()));
        self.since = now.max(self.since);
        if now < self.second_ends {
            return;
        }
        let passed = (now - self.second_ends).as_secs() + 1;
        // The peak of a second without events is the number in flight.
        for second in (self.second + 1..=self.second + passed).rev().take(PEAKS + 1) {
            self.peaks[second as usize % (PEAKS + 1)] = self.in_flight;
        }
        self.second += passed;
        self.second_ends += SECOND * u32::try_from(passed).unwrap_or(u32::MAX);
    }

    /// Records the concurrency that was offered in the current second.
    pub(super) fn record_offered(&mut self, offered: u32) {
        let peak = &mut self.peaks[self.second as usize % (PEAKS + 1)];
        *peak = offered.max(*peak);
        self.last_activity = Some(self.since);
    }
}
