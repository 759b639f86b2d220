//! Counters of one workload, which hang on its [`Route`](super::routes::Route): a request that has its route counts with a few
//! atomic additions, and looks nothing up.
//!
//! A workload has at most `MAX_SERIES` series. What finds no slot stays with the workload, so that no sum over its name misses
//! a request: a status code counts by its class, and the reason of a refusal as `other`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{counter_slots::Slots, limits::LimitPer, local_response::LocalResponse, model_tokens::ModelTokens};

/// Upper bounds of the latency buckets, in seconds. The tenth bucket has none.
pub(super) const BUCKETS: [f64; 9] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0];
/// Status codes that a workload counts one by one; the sidecars of its Pods count each.
const CODES: usize = 3;
/// Classes of the other status codes. The pattern `5..` of the alerts matches a class too.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// Reason of a refusal that has no place or no slot.
const OTHER: &str = "other";
/// Reasons that have a slot in each workload: those of the alert RecifRefusing, and that of the overflow.
const RESERVED: [&str; 3] = ["no-capacity", "queue-full", OTHER];
/// Further reasons that a workload counts one by one.
const FREE_REASONS: usize = 2;
/// Most series of one workload, 35: 12 of the durations (9 buckets, the one without a bound, sum and count), 3 gauges,
/// 3 outcomes of cold starts, 3 codes and 5 classes, 5 reasons, of which 3 are reserved, 2 limits and 2 budgets.
#[cfg(test)]
pub(super) const MAX_SERIES: usize =
    BUCKETS.len() + 3 + 3 + 2 + 2 + ColdStart::ALL.len() + CODES + CLASSES.len() + RESERVED.len() + FREE_REASONS;

/// Reasons of refusals. One that is missing here counts as `other`.
pub(super) const REASONS: [&str; 21] = [
    "auth-unavailable",
    "bad-path",
    "bad-request",
    "budget",
    "connect",
    "forbidden",
    "foreign-origin",
    "no-capacity",
    "not-ready",
    "other",
    "queue-full",
    "rate",
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

/// Returns the place of a reason in [`REASONS`], from 1 on. One that is missing there has the place of [`OTHER`].
fn place_of(reason: &str) -> u16 {
    let find = |reason: &str| REASONS.iter().position(|known| *known == reason);
    let at = find(reason).or_else(|| find(OTHER)).unwrap_or_default();
    u16::try_from(at + 1).unwrap_or(u16::MAX)
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
    /// Status codes that find no slot, by their place in [`CLASSES`].
    classes: [AtomicU64; CLASSES.len()],
    /// By place in [`REASONS`], from 1 on.
    reasons: Slots,
    durations: [AtomicU64; BUCKETS.len() + 1],
    /// Sum of the durations, in microseconds.
    micros: AtomicU64,
    queued: AtomicI64,
    active: AtomicI64,
    cold_starts: [AtomicU64; ColdStart::ALL.len()],
    /// Requests beyond a limit, in the order of [`LimitPer::ALL`].
    limited: [AtomicU64; LimitPer::ALL.len()],
    /// Requests for which no tokens were left, in the same order.
    over_budget: [AtomicU64; LimitPer::ALL.len()],
    /// Part of the workload's budget that is left, as the bits of a float; not a number without a budget.
    budget_left: AtomicU64,
    /// Tokens that responses reported.
    pub(super) tokens: ModelTokens,
}

impl Meter {
    /// Creates the meter of a kind, which has room for every code and reason.
    pub(super) fn of_kind(kind: &'static str) -> Arc<Self> {
        Arc::new(Self::new(kind, "", "", Slots::new([], 500), Slots::new([], REASONS.len())))
    }

    /// Creates the meter of a workload.
    pub(super) fn of_workload(kind: &'static str, namespace: &str, name: &str) -> Arc<Self> {
        let reasons = Slots::new(RESERVED.map(place_of), FREE_REASONS);
        Arc::new(Self::new(kind, namespace, name, Slots::new([], CODES), reasons))
    }

    fn new(kind: &'static str, namespace: &str, name: &str, codes: Slots, reasons: Slots) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            codes,
            classes: Default::default(),
            reasons,
            durations: Default::default(),
            micros: AtomicU64::new(0),
            queued: AtomicI64::new(0),
            active: AtomicI64::new(0),
            cold_starts: Default::default(),
            limited: Default::default(),
            over_budget: Default::default(),
            budget_left: AtomicU64::new(f64::NAN.to_bits()),
            tokens: ModelTokens::default(),
        }
    }

    /// Counts a response with this status.
    pub(super) fn answered(&self, code: u16) {
        let class = usize::from(code / 100).clamp(1, CLASSES.len()) - 1;
        if !self.codes.count(code)
            && let Some(count) = self.classes.get(class)
        {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Counts a refusal by the gateway.
    pub(super) fn refused(&self, answer: &LocalResponse) {
        self.answered(answer.status);
        self.count_reason(answer.reason);
    }

    /// Counts a request beyond a limit, besides its refusal.
    pub(super) fn count_limited(&self, per: LimitPer) {
        if let Some(count) = self.limited.get(per as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Returns how many requests were beyond a limit, by what it counts.
    pub(super) fn limited(&self) -> impl Iterator<Item = (LimitPer, u64)> {
        let read = LimitPer::ALL.into_iter().zip(&self.limited).map(|(per, count)| (per, count.load(Relaxed)));
        read.filter(|(_, count)| *count > 0)
    }

    /// Counts a request for which no tokens were left, besides its refusal.
    pub(super) fn count_over_budget(&self, per: LimitPer) {
        if let Some(count) = self.over_budget.get(per as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Returns for how many requests no tokens were left, by whose budget it was.
    pub(super) fn over_budget(&self) -> impl Iterator<Item = (LimitPer, u64)> {
        let read = LimitPer::ALL.into_iter().zip(&self.over_budget).map(|(per, count)| (per, count.load(Relaxed)));
        read.filter(|(_, count)| *count > 0)
    }

    /// Sets the part of the workload's budget that is left, from 0 to 1; `None`: it has none.
    pub(super) fn set_budget_left(&self, part: Option<f64>) {
        self.budget_left.store(part.unwrap_or(f64::NAN).to_bits(), Relaxed);
    }

    /// Returns the part of the workload's budget that is left.
    pub(super) fn budget_left(&self) -> Option<f64> {
        Some(f64::from_bits(self.budget_left.load(Relaxed))).filter(|part| !part.is_nan())
    }

    fn count_reason(&self, reason: &str) {
        if !self.reasons.count(place_of(reason)) {
            self.reasons.count(place_of(OTHER));
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
        self.has_requests() || self.codes.read().next().is_some() || self.reasons.read().next().is_some()
    }

    /// Reports whether a request was relayed or is to be.
    pub(super) fn has_requests(&self) -> bool {
        self.active.load(Relaxed) > 0 || self.durations.iter().any(|bucket| bucket.load(Relaxed) > 0)
    }

    /// Returns how many responses there were by status, and by class (such as `5xx`) of those that found no slot.
    pub(super) fn codes(&self) -> impl Iterator<Item = (String, u64)> {
        let exact = self.codes.read().map(|(code, count)| (code.to_string(), count));
        let classes =
            CLASSES.iter().zip(&self.classes).map(|(class, count)| ((*class).to_owned(), count.load(Relaxed)));
        exact.chain(classes.filter(|(_, count)| *count > 0))
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
    fn what_finds_no_slot_counts_by_class_and_as_other() {
        let meter = Meter::of_workload("Agent", "ns", "a");
        (101..600).for_each(|code| meter.answered(code));
        let classes = [("1xx", 96), ("2xx", 100), ("3xx", 100), ("4xx", 100), ("5xx", 100)];
        let expected = [("101", 1), ("102", 1), ("103", 1)].into_iter().chain(classes);
        let expected = expected.map(|(code, count): (&str, u64)| (code.to_owned(), count));
        assert_eq!(meter.codes().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        for reason in ["connect", "timeout", "upstream", "queue-full", "forbidden", "no-capacity", "connect", "new"] {
            meter.refused(&LocalResponse::new(503, reason, "x"));
        }
        let expected = [("no-capacity", 1), ("queue-full", 1), ("other", 3), ("connect", 2), ("timeout", 1)];
        assert_eq!(meter.reasons().collect::<Vec<_>>(), expected);
        assert_eq!(MAX_SERIES, 35);
    }

    #[test]
    fn the_meter_of_a_kind_has_room_for_every_code_and_reason() {
        let meter = Meter::of_kind("none");
        (100..600).for_each(|code| meter.answered(code));
        REASONS.iter().for_each(|reason| meter.count_reason(reason));
        let codes = (100..600).map(|code| (code.to_string(), 1));
        assert_eq!(meter.codes().collect::<Vec<_>>(), codes.collect::<Vec<_>>());
        assert_eq!(meter.reasons().collect::<Vec<_>>(), REASONS.map(|reason| (reason, 1)));
    }

    #[test]
    fn a_meter_with_nothing_but_a_reason_has_series() {
        let meter = Meter::of_workload("Agent", "ns", "a");
        assert!(!meter.has_series());
        meter.count_reason("queue-full");
        assert!(meter.has_series());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_counts_in_the_bucket_of_its_duration() {
        let meter = Meter::of_workload("Agent", "ns", "a");
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
