//! Metrics of the mirror.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{
        counter::Counter,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// Metrics of the mirror.
#[derive(Debug, Clone)]
pub struct MirrorMetrics {
    pub(super) lag: Histogram,
    pub(super) written: Counter,
    pub(super) failures: Counter,
    behind: Gauge<f64, AtomicU64>,
    failing: Gauge,
}

impl MirrorMetrics {
    /// Registers the metrics.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            lag: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            written: Counter::default(),
            failures: Counter::default(),
            behind: Gauge::default(),
            failing: Gauge::default(),
        };
        let lag = "From the moment a change was seen until it was stored";
        registry.register("recif_mirror_lag_seconds", lag, metrics.lag.clone());
        registry.register("recif_mirror_written", "Changes of objects that were stored", metrics.written.clone());
        registry.register("recif_mirror_failures", "Times that the database failed", metrics.failures.clone());
        let behind = "How long the oldest change that is not stored has been waiting";
        registry.register("recif_mirror_behind_seconds", behind, metrics.behind.clone());
        registry.register("recif_mirror_failing", "1 while the database fails", metrics.failing.clone());
        metrics
    }

    /// Updates the gauges, which are computed at each scrape.
    pub fn refresh(&self, state: &super::MirrorState, fleet: &crate::fleet::FleetCache) {
        self.behind.set(state.behind(fleet).as_secs_f64());
        self.failing.set(i64::from(state.is_failing()));
    }
}
