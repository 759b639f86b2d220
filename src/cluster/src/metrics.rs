//! Metrics of this crate. No label ever holds the name of an object.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Labels of one kind of request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    verb: &'static str,
    kind: &'static str,
    code: u16,
}

/// Label of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    kind: &'static str,
}

/// Labels of a watch that the API server refuses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    kind: &'static str,
    code: u16,
}

/// Counters and gauges of this crate.
#[derive(Debug, Clone, Default)]
pub struct ApiMetrics {
    requests: Family<RequestLabels, Counter>,
    watch_restarts: Family<KindLabel, Counter>,
    watches_refused: Family<RefusalLabels, Gauge>,
    malformed: Family<KindLabel, Counter>,
    events_dropped: Counter,
}

impl ApiMetrics {
    /// Adds the metrics to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("recif_api_requests", "Requests to the API server; code 0: no answer", self.requests.clone());
        registry.register("recif_watch_restarts", "Watches that ended in an error", self.watch_restarts.clone());
        let refused =
            "Watches that the API server refuses now: 403, the right is missing; 404, the kind is not defined";
        registry.register("recif_watches_refused", refused, self.watches_refused.clone());
        registry.register("recif_malformed_objects", "Objects that could not be decoded", self.malformed.clone());
        registry.register("recif_events_dropped", "Events given up under overload", self.events_dropped.clone());
    }

    /// Records each event once, so that every series is there for the documentation.
    pub fn record_examples(&self) {
        self.request("get", "Agent", 200);
        self.watch_restart("Agent");
        self.watch_refused("Agent", 403, 1);
        self.malformed("Agent");
        self.event_dropped();
    }

    /// Counts a request; `code` 0: no response came.
    pub fn request(&self, verb: &'static str, kind: &'static str, code: u16) {
        self.requests.get_or_create(&RequestLabels { verb, kind, code }).inc();
    }

    /// Counts a watch that ended in an error.
    pub fn watch_restart(&self, kind: &'static str) {
        self.watch_restarts.get_or_create(&KindLabel { kind }).inc();
    }

    /// Changes the number of watches that are refused with this code (`by` 1 or -1).
    pub fn watch_refused(&self, kind: &'static str, code: u16, by: i64) {
        self.watches_refused.get_or_create(&RefusalLabels { kind, code }).inc_by(by);
    }

    /// Counts an object that could not be decoded.
    pub fn malformed(&self, kind: &'static str) {
        self.malformed.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts an Event that was dropped.
    pub fn event_dropped(&self) {
        self.events_dropped.inc();
    }
}
