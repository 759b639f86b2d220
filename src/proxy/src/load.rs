//! Admission by concurrency cap, and load counters from which the scaler and the gateways derive the load.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;
use tokio::{sync::Notify, time::Instant};

/// Number of whole seconds for which peaks are kept.
const PEAKS: usize = 10;

const SECOND: Duration = Duration::from_secs(1);

/// Slots and load counters of the process.
#[derive(Debug)]
pub(super) struct LoadTracker {
    cap: u32,
    /// End of [`Self::text`]: a slash and the cap.
    slash_cap: String,
    started: Instant,
    instance: String,
    inner: Mutex<LoadCounters>,
    emptied: Notify,
}

/// Counters behind the lock.
///
/// Invariant: `in_flight` is the number of slots that have neither ended nor become listeners, and never exceeds a
/// nonzero cap. `listen_streams` is the number of listening slots.
#[derive(Debug)]
struct LoadCounters {
    in_flight: u32,
    /// Streams that only listen. They count as no work.
    listen_streams: u32,
    /// Time integral of `in_flight` up to `since`, in request-microseconds.
    busy: u64,
    since: Instant,
    completed: u64,
    refused: u64,
    /// Ring buffer of the highest offered concurrency per second, indexed by second modulo its length.
    peaks: [u32; PEAKS + 1],
    /// Current second since the start.
    second: u64,
    /// End of the current second.
    second_ends: Instant,
    last_activity: Option<Instant>,
}

/// Body of the response at `/_recif/inflight`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InflightReport {
    instance: String,
    uptime_ms: u64,
    pub(super) inflight: u32,
    streams: u32,
    concurrency: u32,
    pub(super) busy_ms: u64,
    completed: u64,
    refused: u64,
    peaks: Vec<u32>,
    /// Milliseconds since the last request began or ended; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_activity: Option<u64>,
}

/// Permit of one request in flight. Dropping it releases it.
#[derive(Debug)]
pub(super) struct InflightSlot {
    load: Arc<LoadTracker>,
    listens: bool,
    has_ended: bool,
}

impl InflightSlot {
    /// Releases the permit. Further calls do nothing.
    pub(super) fn end(&mut self, now: Instant) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let mut inner = self.load.lock();
        inner.advance_to(now);
        inner.last_activity = Some(inner.since);
        if self.listens {
            inner.listen_streams -= 1;
        } else {
            inner.completed += 1;
            self.load.release(&mut inner);
        }
    }

    /// Marks the request as a stream that only listens: it is counted apart, and releases its place under the cap.
    pub(super) fn mark_listening(&mut self) {
        if !std::mem::replace(&mut self.listens, true) {
            let mut inner = self.load.lock();
            inner.advance_to(Instant::now());
            inner.listen_streams += 1;
            self.load.release(&mut inner);
        }
    }
}

impl LoadTracker {
    /// Creates the counters, with a cap (0 for none) and an instance id that is new after each start.
    pub(super) fn new(cap: u32, instance: String) -> Arc<Self> {
        let now = Instant::now();
        let inner = LoadCounters {
            in_flight: 0,
            listen_streams: 0,
            busy: 0,
            since: now,
            completed: 0,
            refused: 0,
            peaks: [0; PEAKS + 1],
            second: 0,
            second_ends: now + SECOND,
            last_activity: None,
        };
        Arc::new(Self {
            cap,
            slash_cap: format!("/{cap}"),
            started: now,
            instance,
            inner: Mutex::new(inner),
            emptied: Notify::new(),
        })
    }

    /// Acquires a slot, or returns `None` at the cap. `counted_elsewhere` says that a gateway counts the refusal.
    pub(super) fn acquire(self: &Arc<Self>, counted_elsewhere: bool, now: Instant) -> Option<InflightSlot> {
        let mut inner = self.lock();
        inner.advance_to(now);
        let offered = inner.in_flight + 1;
        inner.record_offered(offered);
        if self.cap != 0 && inner.in_flight >= self.cap {
            inner.refused += u64::from(!counted_elsewhere);
            return None;
        }
        inner.in_flight = offered;
        Some(InflightSlot { load: self.clone(), listens: false, has_ended: false })
    }

    /// Returns the number of requests in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.lock().in_flight
    }

    /// Waits until no request is in flight.
    pub(super) async fn wait_until_empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.in_flight() == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Returns `in flight/cap` in decimal digits, the value of `x-recif-load`.
    pub(super) fn text(&self) -> LoadText {
        let mut text = LoadText::default();
        text.push(self.in_flight());
        text.append(&self.slash_cap);
        text
    }

    fn release(&self, inner: &mut LoadCounters) {
        inner.in_flight -= 1;
        if inner.in_flight == 0 {
            self.emptied.notify_waiters();
        }
    }

    /// Returns all counters. Reading changes none of them.
    pub(super) fn report(&self) -> InflightReport {
        let mut inner = self.lock();
        inner.advance_to(Instant::now());
        let second = inner.second;
        let peaks = (second.saturating_sub(PEAKS as u64)..second).map(|at| inner.peaks[at as usize % (PEAKS + 1)]);
        InflightReport {
            instance: self.instance.clone(),
            uptime_ms: millis(inner.since - self.started),
            inflight: inner.in_flight,
            streams: inner.listen_streams,
            concurrency: self.cap,
            busy_ms: inner.busy / 1000,
            completed: inner.completed,
            refused: inner.refused,
            peaks: peaks.collect(),
            last_activity: inner.last_activity.map(|at| millis(inner.since - at)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LoadCounters> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadCounters {
    /// Advances the time integral and the peaks to now.
    fn advance_to(&mut self, now: Instant) {
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

    fn record_offered(&mut self, offered: u32) {
        let peak = &mut self.peaks[self.second as usize % (PEAKS + 1)];
        *peak = offered.max(*peak);
        self.last_activity = Some(self.since);
    }
}

impl Drop for InflightSlot {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Instant::now());
        }
    }
}

/// Text of two numbers and a slash on the stack, without an allocation.
#[derive(Debug, Default)]
pub(super) struct LoadText {
    bytes: [u8; 21],
    length: usize,
}

impl LoadText {
    fn push(&mut self, number: u32) {
        let digits = number.checked_ilog10().map_or(1, |log| log as usize + 1);
        let mut rest = number;
        for at in (self.length..self.length + digits).rev() {
            self.bytes[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.length += digits;
    }

    fn append(&mut self, text: &str) {
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
    }
}

impl AsRef<[u8]> for LoadText {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_slots_than_the_cap_and_each_is_given_back() {
        let load = LoadTracker::new(2, "i".into());
        let (a, b) = (load.acquire(false, Instant::now()).unwrap(), load.acquire(false, Instant::now()).unwrap());
        assert!(load.acquire(false, Instant::now()).is_none());
        assert!(load.acquire(true, Instant::now()).is_none());
        assert_eq!((load.text().as_ref(), load.report().refused), (&b"2/2"[..], 1));
        drop(a);
        drop(load.acquire(false, Instant::now()).unwrap());
        drop(b);
        assert_eq!((load.in_flight(), load.report().completed), (0, 3));
    }

    #[test]
    fn numbers_are_written_in_full() {
        for (number, expected) in [(0, "0"), (9, "9"), (10, "10"), (4_294_967_295, "4294967295")] {
            let mut text = LoadText::default();
            text.push(number);
            assert_eq!(text.as_ref(), expected.as_bytes());
        }
        let load = LoadTracker::new(u32::MAX, "i".into());
        assert_eq!(load.text().as_ref(), b"0/4294967295");
    }

    #[tokio::test(start_paused = true)]
    async fn who_only_listens_takes_no_place_and_does_no_work() {
        let load = LoadTracker::new(1, "i".into());
        let mut slot = load.acquire(false, Instant::now()).unwrap();
        advance(Duration::from_millis(10)).await;
        slot.mark_listening();
        slot.mark_listening();
        advance(Duration::from_secs(60)).await;
        let report = load.report();
        assert_eq!((report.inflight, report.streams, report.busy_ms, report.completed), (0, 1, 10, 0));
        let other = load.acquire(false, Instant::now()).unwrap();
        drop(slot);
        assert_eq!((load.report().inflight, load.report().streams), (1, 0));
        drop(other);
        assert_eq!((load.in_flight(), load.report().completed), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn busy_time_is_what_was_in_flight_for_how_long() {
        let load = LoadTracker::new(0, "i".into());
        let a = load.acquire(false, Instant::now()).unwrap();
        advance(Duration::from_millis(300)).await;
        let b = load.acquire(false, Instant::now()).unwrap();
        advance(Duration::from_millis(100)).await;
        assert_eq!(load.report().busy_ms, 500);
        drop((a, b));
        advance(Duration::from_secs(5)).await;
        let report = load.report();
        assert_eq!((report.busy_ms, report.uptime_ms, report.last_activity), (500, 5400, Some(5000)));
    }

    #[tokio::test(start_paused = true)]
    async fn peaks_are_of_the_last_ten_whole_seconds() {
        let load = LoadTracker::new(1, "i".into());
        let held = load.acquire(false, Instant::now()).unwrap();
        assert!(load.acquire(false, Instant::now()).is_none());
        advance(Duration::from_secs(2)).await;
        drop(held);
        advance(Duration::from_secs(2)).await;
        assert_eq!(load.report().peaks, [2, 1, 1, 0]);
        advance(Duration::from_secs(60)).await;
        assert_eq!(load.report().peaks, [0; 10]);
    }
}
