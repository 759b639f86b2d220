//! Prometheus metrics. No label has an unbounded number of values.

use std::{fmt, sync::OnceLock, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::load::LoadTracker;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusCodeLabel {
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabel {
    reason: &'static str,
}

/// Metrics of one process.
pub(super) struct ProxyMetrics {
    registry: Registry,
    requests: Family<StatusCodeLabel, Counter>,
    /// Counters of `requests` in use, by status code from 100 on: a lookup in the family takes a lock and a hash.
    codes: Vec<OnceLock<Counter>>,
    rejected: Family<RejectionLabel, Counter>,
    inflight: Gauge,
    duration: Histogram,
    ttfb: Histogram,
}

impl fmt::Debug for ProxyMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyMetrics").finish_non_exhaustive()
    }
}

impl ProxyMetrics {
    /// Creates the metrics at zero.
    pub(super) fn new() -> Self {
        let mut all = Registry::default();
        daemon::process::register(&mut all, "proxy");
        let registry = all.sub_registry_with_prefix("recif_proxy");
        let (requests, rejected) = (Family::default(), Family::default());
        let (inflight, duration, ttfb) = (Gauge::default(), Histogram::new(BUCKETS), Histogram::new(BUCKETS));
        registry.register("requests", "Requests answered, by status code", requests.clone());
        registry.register("rejected", "Requests that did not reach the workload", rejected.clone());
        registry.register("inflight", "Requests in flight", inflight.clone());
        registry.register("duration_seconds", "Time from a request's head to the end of its answer", duration.clone());
        registry.register("ttfb_seconds", "Time from a request's head to the head of its answer", ttfb.clone());
        let codes = (100..600).map(|_| OnceLock::new()).collect();
        Self { registry: all, requests, codes, rejected, inflight, duration, ttfb }
    }

    /// Records that the workload's response has begun.
    pub(super) fn answered(&self, code: u16, after: Duration) {
        self.count(code);
        self.ttfb.observe(after.as_secs_f64());
    }

    fn count(&self, code: u16) {
        if let Some(counter) = self.codes.get(usize::from(code).wrapping_sub(100)) {
            counter.get_or_init(|| self.requests.get_or_create(&StatusCodeLabel { code }).clone()).inc();
        }
    }

    /// Records that an exchange has ended.
    pub(super) fn ended(&self, after: Duration) {
        self.duration.observe(after.as_secs_f64());
    }

    /// Records that the proxy refused a request with this status.
    pub(super) fn rejected(&self, code: u16, reason: &'static str) {
        self.count(code);
        self.rejected.get_or_create(&RejectionLabel { reason }).inc();
    }

    /// Encodes all metrics as OpenMetrics text.
    ///
    /// # Errors
    /// None in practice: it writes to memory.
    pub(super) fn encode(&self, load: &LoadTracker) -> Result<String, fmt::Error> {
        self.inflight.set(load.in_flight().into());
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Returns the metrics of a sidecar in which each event has happened, as OpenMetrics text, for the documentation.
///
/// # Errors
/// None in practice: it writes to memory.
pub fn example_metrics() -> Result<String, fmt::Error> {
    let metrics = ProxyMetrics::new();
    metrics.answered(200, Duration::ZERO);
    metrics.rejected(503, "over-capacity");
    metrics.ended(Duration::ZERO);
    metrics.encode(&LoadTracker::new(1, String::new()))
}
