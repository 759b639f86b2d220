//! Prometheus metrics. Labels have low cardinality: kinds, codes and reasons, never the name of an object.

use std::fmt;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::{Duration, Instant};

use super::{local_response::LocalResponse, object::RoutedKind};

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

/// Upper bounds of the cold-start buckets, in seconds.
const COLD_START_BUCKETS: [f64; 10] = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    kind: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkloadKindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Metrics of one process.
pub(super) struct GatewayMetrics {
    registry: Registry,
    requests: Family<ResponseLabels, Counter>,
    refused: Family<ReasonLabel, Counter>,
    retries: Family<ReasonLabel, Counter>,
    connections_refused: Counter,
    kinds: [KindMetrics; RoutedKind::ALL.len()],
}

struct KindMetrics {
    duration: Histogram,
    ttfb: Histogram,
    cold_start: Histogram,
    queued: Gauge,
    active: Gauge,
}

impl fmt::Debug for GatewayMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayMetrics").finish_non_exhaustive()
    }
}

/// Guard of a request in flight. Dropping it records the duration.
pub(super) struct InFlightGuard<'a> {
    of: &'a KindMetrics,
    began: Instant,
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.of.active.dec();
        self.of.duration.observe(self.began.elapsed().as_secs_f64());
    }
}

/// Guard of a queued request. Dropping it ends the wait.
pub(super) struct QueuedGuard<'a>(&'a Gauge);

impl Drop for QueuedGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl GatewayMetrics {
    /// Creates the metrics at zero. `more` registers further metrics in the same registry.
    pub(super) fn new(more: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry::default();
        more(&mut registry);
        let ours = registry.sub_registry_with_prefix("recif_gateway");
        let requests = Family::<ResponseLabels, Counter>::default();
        let (refused, retries) = (Family::<ReasonLabel, Counter>::default(), Family::<ReasonLabel, Counter>::default());
        let connections_refused = Counter::default();
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let (duration, ttfb) = (Family::new_with_constructor(histogram), Family::new_with_constructor(histogram));
        let cold_start = Family::<WorkloadKindLabel, _, _>::new_with_constructor(
            (|| Histogram::new(COLD_START_BUCKETS)) as fn() -> Histogram,
        );
        let (queued, active) =
            (Family::<WorkloadKindLabel, Gauge>::default(), Family::<WorkloadKindLabel, Gauge>::default());
        ours.register("requests", "Requests answered, by status code", requests.clone());
        ours.register("refused", "Requests that the gateway itself refused", refused.clone());
        ours.register("retries", "Requests sent again", retries.clone());
        let text = "Connections closed because their address had as many as it may";
        ours.register("connections_refused", text, connections_refused.clone());
        ours.register("duration_seconds", "Time from a request's head to the end of its answer", duration.clone());
        ours.register("ttfb_seconds", "Time from a request's head to the head of its answer", ttfb.clone());
        let text = "Time for which a request waited for a workload without ready Pods until it got one";
        ours.register("cold_start_seconds", text, cold_start.clone());
        ours.register("queue_depth", "Requests that wait for room in a Pod", queued.clone());
        ours.register("active_streams", "Requests under way", active.clone());
        let kinds = RoutedKind::ALL.map(|kind| {
            let label = WorkloadKindLabel { kind: kind.name() };
            KindMetrics {
                duration: duration.get_or_create_owned(&label),
                ttfb: ttfb.get_or_create_owned(&label),
                cold_start: cold_start.get_or_create_owned(&label),
                queued: queued.get_or_create_owned(&label),
                active: active.get_or_create_owned(&label),
            }
        });
        Self { registry, requests, refused, retries, connections_refused, kinds }
    }

    /// Counts a request in flight that arrived at `began`.
    pub(super) fn begin_request(&self, kind: RoutedKind, began: Instant) -> InFlightGuard<'_> {
        let of = self.of(kind);
        of.active.inc();
        InFlightGuard { of, began }
    }

    /// Counts a queued request.
    pub(super) fn begin_wait(&self, kind: RoutedKind) -> QueuedGuard<'_> {
        let gauge = &self.of(kind).queued;
        gauge.inc();
        QueuedGuard(gauge)
    }

    /// Records that a request which found no ready Pod got a slot.
    pub(super) fn record_cold_start(&self, kind: RoutedKind, after: Duration) {
        self.of(kind).cold_start.observe(after.as_secs_f64());
    }

    /// Records that the response of a workload has begun.
    pub(super) fn answered(&self, kind: RoutedKind, code: u16, after: Duration) {
        self.requests.get_or_create(&ResponseLabels { kind: kind.name(), code }).inc();
        self.of(kind).ttfb.observe(after.as_secs_f64());
    }

    /// Records a refusal by the gateway. `kind` is that of the addressed workload, if it is known.
    pub(super) fn refused(&self, kind: Option<RoutedKind>, answer: &LocalResponse) {
        let kind = kind.map_or("none", RoutedKind::name);
        self.requests.get_or_create(&ResponseLabels { kind, code: answer.status }).inc();
        self.refused.get_or_create(&ReasonLabel { reason: answer.reason }).inc();
    }

    /// Records a connection that was closed because its address is at its connection limit.
    pub(super) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// Records that a request is sent again.
    pub(super) fn retried(&self, reason: &'static str) {
        self.retries.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Encodes all metrics as OpenMetrics text.
    ///
    /// # Errors
    /// None in practice: it writes to memory.
    pub(super) fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn of(&self, kind: RoutedKind) -> &KindMetrics {
        match (kind, &self.kinds) {
            (RoutedKind::Agent, [of, ..])
            | (RoutedKind::Flow, [_, of, ..])
            | (RoutedKind::FlowSet, [_, _, of, _])
            | (RoutedKind::McpServer, [.., of]) => of,
        }
    }
}
