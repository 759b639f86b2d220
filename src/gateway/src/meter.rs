//! Counters of one workload, which hang on its [`Route`](super::routes::Route): a request that has its route counts with a few
//! atomic additions, and looks nothing up.
//!
//! A workload has at most [`MAX_SERIES`] series. Status codes and reasons beyond its slots are counted by the meter of its
//! kind, which has no name, so that no sum misses a request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::local_response::LocalResponse;

/// Upper bounds of the latency buckets, in seconds. The tenth bucket has none.
pub(super) const BUCKETS: [f64; 9] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];
/// Status codes that a workload counts under its name.
const CODES: usize = 6;
/// Reasons of refusals that a workload counts under its name.
const REASON_SLOTS: usize = 7;
/// Most series of one workload: buckets with sum and count, the two gauges, the outcomes of cold starts, codes and reasons.
#[cfg(test)]
pub(super) const MAX_SERIES: usize = BUCKETS.len() + 3 + 2 + ColdStart::ALL.len() + CODES + REASON_SLOTS;

/// Reasons of refusals. One that is missing here counts as `other`.
pub(super) const REASONS: [&str; 18] = [
    "auth-unavailable",
    "bad-path",
    "bad-request",
    "connect",
    "forbidden",
    "no-capacity",
    "not-ready",
    "other",
    "queue-full",
    "session",
    "starting",
    "timeout",
    "too-many-requests",
    "too-many-unknown-tokens",
    "unauthenticated",
    "unavailable",
    "unknown",
    "upstream",
];

/// End of a request's wait for a workload without ready Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColdStart {
    /// The request got a Pod.
    Served,
    /// No Pod became ready in time.
    Timeout,
    /// The client closed its connection, or the workload failed or was deleted.
    Left,
}

impl ColdStart {
    const ALL: [Self; 3] = [Self::Served, Self::Timeout, Self::Left];

    /// Returns the value of the label `outcome`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Timeout => "timeout",
            Self::Left => "left",
        }
    }
}

/// Counters by a number that is not known before: each of the first ones gets a slot. Zero marks a free slot.
#[derive(Debug)]
struct Slots(Box<[(AtomicU16, AtomicU64)]>);

impl Slots {
    fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| Default::default()).collect())
    }

    /// Counts; returns false if every slot has another number.
    fn count(&self, number: u16) -> bool {
        for (owner, count) in &self.0 {
            let found = match owner.load(Relaxed) {
                0 => owner.compare_exchange(0, number, Relaxed, Relaxed).map_or_else(|other| other, |_| number),
                found => found,
            };
            if found == number {
                count.fetch_add(1, Relaxed);
                return true;
            }
        }
        false
    }

    fn read(&self) -> impl Iterator<Item = (u16, u64)> {
        let read = self.0.iter().map(|(owner, count)| (owner.load(Relaxed), count.load(Relaxed)));
        read.filter(|(_, count)| *count > 0)
    }
}

/// Counters of one workload, or of all workloads of a kind that are not counted by name.
#[derive(Debug)]
pub(super) struct Meter {
    /// Kind of the workload, or `none` for requests that lead to none.
    pub(super) kind: &'static str,
    /// Namespace; empty for a meter of a kind.
    pub(super) namespace: Box<str>,
    /// Name; empty for a meter of a kind.
    pub(super) name: Box<str>,
    codes: Slots,
    /// By place in [`REASONS`], from 1 on.
    reasons: Slots,
    durations: [AtomicU64; BUCKETS.len() + 1],
    /// Sum of the durations, in microseconds.
    micros: AtomicU64,
    queued: AtomicI64,
    active: AtomicI64,
    cold_starts: [AtomicU64; ColdStart::ALL.len()],
    /// Meter of the kind, for what finds no slot.
    of_kind: Option<Arc<Meter>>,
}

impl Meter {
    /// Creates the meter of a kind, which has room for every code and reason.
    pub(super) fn of_kind(kind: &'static str) -> Arc<Self> {
        Arc::new(Self::new(kind, "", "", (500, REASONS.len()), None))
    }

    /// Creates the meter of a workload.
    pub(super) fn of_workload(of_kind: &Arc<Self>, namespace: &str, name: &str) -> Arc<Self> {
        Arc::new(Self::new(of_kind.kind, namespace, name, (CODES, REASON_SLOTS), Some(of_kind.clone())))
    }

    fn new(
        kind: &'static str,
        namespace: &str,
        name: &str,
        (codes, reasons): (usize, usize),
        of_kind: Option<Arc<Self>>,
    ) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            codes: Slots::new(codes),
            reasons: Slots::new(reasons),
            durations: Default::default(),
            micros: AtomicU64::new(0),
            queued: AtomicI64::new(0),
            active: AtomicI64::new(0),
            cold_starts: Default::default(),
            of_kind,
        }
    }

    /// Counts a response with this status.
    pub(super) fn answered(&self, code: u16) {
        if !self.codes.count(code)
            && let Some(of_kind) = &self.of_kind
        {
            of_kind.answered(code);
        }
    }

    /// Counts a refusal by the gateway.
    pub(super) fn refused(&self, answer: &LocalResponse) {
        self.answered(answer.status);
        let place = |reason: &str| REASONS.iter().position(|known| *known == reason);
        let place = place(answer.reason).or_else(|| place("other")).unwrap_or_default();
        self.count_reason(u16::try_from(place + 1).unwrap_or(u16::MAX));
    }

    fn count_reason(&self, place: u16) {
        if !self.reasons.count(place)
            && let Some(of_kind) = &self.of_kind
        {
            of_kind.count_reason(place);
        }
    }

    /// Counts a request as active, from `began` on, until the guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>, began: Instant) -> InFlightGuard {
        self.active.fetch_add(1, Relaxed);
        InFlightGuard { meter: self.clone(), began }
    }

    /// Counts a request as queued until the guard is dropped.
    pub(super) fn begin_wait(self: &Arc<Self>) -> QueuedGuard {
        self.queued.fetch_add(1, Relaxed);
        QueuedGuard { meter: self.clone(), cold_start: None }
    }

    /// Reports whether there was any event, so that the workload has series.
    pub(super) fn has_series(&self) -> bool {
        self.has_requests() || self.codes.read().next().is_some()
    }

    /// Reports whether a request was relayed or is to be.
    pub(super) fn has_requests(&self) -> bool {
        self.active.load(Relaxed) > 0 || self.durations.iter().any(|bucket| bucket.load(Relaxed) > 0)
    }

    /// Returns how many responses there were by status.
    pub(super) fn codes(&self) -> impl Iterator<Item = (u16, u64)> {
        self.codes.read()
    }

    /// Returns how many refusals there were by reason.
    pub(super) fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.reasons.read().filter_map(|(place, count)| Some((*REASONS.get(usize::from(place) - 1)?, count)))
    }

    /// Returns how many cold starts there were by outcome.
    pub(super) fn cold_starts(&self) -> impl Iterator<Item = (ColdStart, u64)> {
        let read = ColdStart::ALL.into_iter().zip(&self.cold_starts).map(|(end, count)| (end, count.load(Relaxed)));
        read.filter(|(_, count)| *count > 0)
    }

    /// Returns the sum of the durations in seconds, and how many fell into each bucket, by its upper bound.
    pub(super) fn durations(&self) -> (f64, [(f64, u64); BUCKETS.len() + 1]) {
        let mut buckets = [(f64::INFINITY, 0); BUCKETS.len() + 1];
        for (at, (bucket, count)) in buckets.iter_mut().zip(&self.durations).enumerate() {
            *bucket = (BUCKETS.get(at).copied().unwrap_or(f64::INFINITY), count.load(Relaxed));
        }
        (self.micros.load(Relaxed) as f64 / 1e6, buckets)
    }

    /// Returns the number of requests that wait for room in a Pod.
    pub(super) fn queued(&self) -> i64 {
        self.queued.load(Relaxed)
    }

    /// Returns the number of requests under way.
    pub(super) fn active(&self) -> i64 {
        self.active.load(Relaxed)
    }

    fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        if let Some(bucket) = self.durations.get(at) {
            bucket.fetch_add(1, Relaxed);
        }
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }
}

/// Guard of a request in flight. Dropping it records the duration.
#[derive(Debug)]
pub(super) struct InFlightGuard {
    meter: Arc<Meter>,
    began: Instant,
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.meter.observe(self.began.elapsed());
        self.meter.active.fetch_sub(1, Relaxed);
    }
}

/// Guard of a queued request. Dropping it ends the wait, and the cold start if it was one.
#[derive(Debug)]
pub(super) struct QueuedGuard {
    meter: Arc<Meter>,
    cold_start: Option<ColdStart>,
}

impl QueuedGuard {
    /// Marks the wait as a cold start.
    pub(super) fn begin_cold_start(&mut self) {
        self.cold_start.get_or_insert(ColdStart::Left);
    }

    /// Sets how the cold start ended, if it was one. Without this the request has left.
    pub(super) fn end_cold_start(&mut self, end: ColdStart) {
        if let Some(found) = &mut self.cold_start {
            *found = end;
        }
    }
}

impl Drop for QueuedGuard {
    fn drop(&mut self) {
        self.meter.queued.fetch_sub(1, Relaxed);
        if let Some(count) = self.cold_start.and_then(|end| self.meter.cold_starts.get(end as usize)) {
            count.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_slot_counts_for_the_kind() {
        let kind = Meter::of_kind("Agent");
        let meter = Meter::of_workload(&kind, "ns", "a");
        (200..220).for_each(|code| meter.answered(code));
        assert_eq!(meter.codes().collect::<Vec<_>>(), (200..206).map(|code| (code, 1)).collect::<Vec<_>>());
        assert_eq!(kind.codes().collect::<Vec<_>>(), (206..220).map(|code| (code, 1)).collect::<Vec<_>>());
        for reason in REASONS {
            meter.refused(&LocalResponse::new(200, reason, "x"));
        }
        let named: u64 = meter.reasons().map(|(_, count)| count).sum();
        let rest: u64 = kind.reasons().map(|(_, count)| count).sum();
        assert_eq!((named, rest), (7, REASONS.len() as u64 - 7));
        assert_eq!(MAX_SERIES, 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_counts_in_the_bucket_of_its_duration() {
        let meter = Meter::of_workload(&Meter::of_kind("Agent"), "ns", "a");
        for millis in [10, 11, 400_000] {
            let guard = meter.begin_request(Instant::now());
            tokio::time::advance(Duration::from_millis(millis)).await;
            drop(guard);
        }
        let (sum, buckets) = meter.durations();
        assert_eq!((sum, buckets[0], buckets[1], buckets[9]), (400.021, (0.01, 1), (0.05, 1), (f64::INFINITY, 1)));
    }

    #[test]
    fn each_reason_of_the_sources_has_a_place() {
        fn sources(folder: &std::path::Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                match entry.is_dir() {
                    true => sources(&entry, found),
                    false => found.push(std::fs::read_to_string(&entry).unwrap()),
                }
            }
        }
        let (mut texts, mut seen) = (Vec::new(), 0);
        sources(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut texts);
        let calls = ["Response::new(", "Refusal::new(", "refused(5"]
            .map(|call| texts.iter().flat_map(move |text| text.split(call).skip(1)));
        for call in calls.into_iter().flatten() {
            let Some(reason) = call.split([';', '}']).next().and_then(|call| call.split('"').nth(1)) else { continue };
            if reason.len() > 2 && reason.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-') {
                assert!(REASONS.contains(&reason), "{reason}");
                seen += 1;
            }
        }
        assert!(seen > 10, "{seen}");
    }
}
