//! Admission by concurrency cap, and load counters from which the scaler and the gateways derive the load.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;
use tokio::{sync::Notify, time::Instant};

use super::{
    load_counters::{LoadCounters, PEAKS, SECOND},
    load_text::LoadText,
};

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

impl Drop for InflightSlot {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Instant::now());
        }
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
    fn the_largest_cap_is_written_in_full() {
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
