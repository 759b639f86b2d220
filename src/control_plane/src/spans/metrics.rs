//! Metrics of what receives and keeps spans.

use prometheus_client::{metrics::counter::Counter, registry::Registry};

/// Counters of spans.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpanMetrics {
    /// Spans that were stored.
    pub(super) stored: Counter,
    /// Spans that came from no known workload, or have no ids.
    pub(super) refused: Counter,
    /// Spans that the database refused.
    pub(super) lost: Counter,
}

impl SpanMetrics {
    /// Registers the counters.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("recif_run_spans_stored", "Received spans that were stored", self.stored.clone());
        let refused = "Received spans without ids, or of no known workload";
        registry.register("recif_run_spans_refused", refused, self.refused.clone());
        registry.register("recif_run_spans_lost", "Received spans that the database refused", self.lost.clone());
    }
}
