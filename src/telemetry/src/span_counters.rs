//! Counters of spans by what became of them.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Counters of the spans that were recorded. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SpanCounters(Family<SpanLabels, Counter>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SpanLabels {
    outcome: &'static str,
}

impl SpanCounters {
    /// Registers the counters, as `recif_spans_total`.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Spans by outcome: sent, dropped because the queue was full, failed to be sent";
        registry.register("recif_spans", help, self.0.clone());
    }

    /// Counts spans that a collector took.
    pub fn sent(&self, spans: u64) {
        self.add("sent", spans);
    }

    /// Counts spans for which there was no room.
    pub fn dropped(&self, spans: u64) {
        self.add("dropped", spans);
    }

    /// Counts spans that no collector took.
    pub(crate) fn failed(&self, spans: u64) {
        self.add("failed", spans);
    }

    fn add(&self, outcome: &'static str, spans: u64) {
        if spans > 0 {
            self.0.get_or_create(&SpanLabels { outcome }).inc_by(spans);
        }
    }

    #[cfg(test)]
    pub(crate) fn of(&self, outcome: &'static str) -> u64 {
        self.0.get_or_create(&SpanLabels { outcome }).get()
    }
}
