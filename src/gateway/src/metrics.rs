//! Prometheus metrics of the process. Those by workload are counted by its [`Meter`]; what is here has labels of
//! few values.

use std::{fmt, sync::Arc};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Duration;

use super::{
    local_response::LocalResponse,
    meter::Meter,
    meters::{MeterCollector, Meters},
    object::RoutedKind,
};

/// Upper bounds of the buckets until the head of an answer, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];

/// Upper bounds of the cold-start buckets, in seconds.
const COLD_START_BUCKETS: [f64; 10] = [0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0];

/// Reason to send a request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryReason {
    /// The Pod took no connection.
    Connect,
    /// The Pod belongs to another workload.
    Misdirected,
    /// The Pod had no room.
    OverCapacity,
    /// The Pod closed an idle connection at the moment of its reuse.
    Stale,
}

impl RetryReason {
    const ALL: [Self; 4] = [Self::Connect, Self::Misdirected, Self::OverCapacity, Self::Stale];

    fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Misdirected => "misdirected",
            Self::OverCapacity => "over-capacity",
            Self::Stale => "stale",
        }
    }
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
    meters: Arc<Meters>,
    retries: [Counter; RetryReason::ALL.len()],
    connections_refused: Counter,
    /// Lines of the audit that were lost.
    pub(super) audit_dropped: Counter,
    kinds: [KindMetrics; RoutedKind::ALL.len()],
}

struct KindMetrics {
    ttfb: Histogram,
    cold_start: Histogram,
}

impl fmt::Debug for GatewayMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayMetrics").finish_non_exhaustive()
    }
}

impl GatewayMetrics {
    /// Creates the metrics at zero, beside those of the workloads. `more` registers further metrics in the same registry.
    pub(super) fn new(meters: Arc<Meters>, more: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry::default();
        daemon::process::register(&mut registry, "gateway");
        more(&mut registry);
        let ours = registry.sub_registry_with_prefix("recif_gateway");
        ours.register_collector(Box::new(MeterCollector(meters.clone())));
        let retries = Family::<ReasonLabel, Counter>::default();
        let connections_refused = Counter::default();
        let ttfb = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let cold_start = Family::<WorkloadKindLabel, _, _>::new_with_constructor(
            (|| Histogram::new(COLD_START_BUCKETS)) as fn() -> Histogram,
        );
        ours.register("retries", "Requests sent again, by reason", retries.clone());
        let text = "Connections closed because their address had as many as it may";
        ours.register("connections_refused", text, connections_refused.clone());
        let audit_dropped = Counter::default();
        let text = "Lines of the audit that were dropped because stdout did not take them";
        ours.register("audit_dropped", text, audit_dropped.clone());
        ours.register("ttfb_seconds", "Time from a request's head to the head of its answer", ttfb.clone());
        let text = "Time for which a request waited for a workload without ready Pods until it got one";
        ours.register("cold_start_seconds", text, cold_start.clone());
        let kinds = RoutedKind::ALL.map(|kind| {
            let label = WorkloadKindLabel { kind: kind.name() };
            KindMetrics { ttfb: ttfb.get_or_create_owned(&label), cold_start: cold_start.get_or_create_owned(&label) }
        });
        let retries =
            RetryReason::ALL.map(|reason| retries.get_or_create_owned(&ReasonLabel { reason: reason.as_str() }));
        Self { registry, meters, retries, connections_refused, audit_dropped, kinds }
    }

    /// Records that a request which found no ready Pod got a slot.
    pub(super) fn record_cold_start(&self, kind: RoutedKind, after: Duration) {
        self.of(kind).cold_start.observe(after.as_secs_f64());
    }

    /// Records that the response of a workload has begun.
    pub(super) fn answered(&self, kind: RoutedKind, meter: &Meter, code: u16, after: Duration) {
        meter.answered(code);
        self.of(kind).ttfb.observe(after.as_secs_f64());
    }

    /// Records a refusal by the gateway. `meter` is that of the addressed workload, if there is one.
    pub(super) fn refused(&self, meter: Option<&Meter>, answer: &LocalResponse) {
        meter.unwrap_or(self.meters.none()).refused(answer);
    }

    /// Records a connection that was closed because its address is at its connection limit.
    pub(super) fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    /// Records that a request is sent again.
    pub(super) fn retried(&self, reason: RetryReason) {
        if let Some(counter) = self.retries.get(reason as usize) {
            counter.inc();
        }
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
