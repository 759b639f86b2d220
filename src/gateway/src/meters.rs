//! The meters of all workloads, and their encoding at a scrape.
//!
//! Watches enter a workload when its object appears, so labels name objects of this process's cache alone, however many names
//! clients try. The series of a deleted object stay for [`KEPT`], so that the last events before its end are scraped too.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};
use tokio::time::Instant;

use super::{meter::Meter, object::RoutedKind};

/// Time for which the series of a deleted object stay.
const KEPT: Duration = Duration::from_secs(600);

/// Meters of all workloads, by the keys of their routes.
#[derive(Debug)]
pub(super) struct Meters {
    /// Meters of workloads that are not counted by name: one per kind in the order of [`RoutedKind::ALL`].
    kinds: [Arc<Meter>; RoutedKind::ALL.len()],
    /// Meter of requests that lead to no workload.
    none: Arc<Meter>,
    by_workload: bool,
    workloads: Mutex<HashMap<Box<[u8]>, WorkloadEntry>>,
}

#[derive(Debug)]
struct WorkloadEntry {
    meter: Arc<Meter>,
    /// Time at which the object was deleted; `None` while there is one.
    deleted: Option<Instant>,
}

impl Meters {
    /// Creates the meters without workloads. Without `by_workload` all workloads of a kind share one, which has no name.
    pub(super) fn new(by_workload: bool) -> Self {
        let kinds = RoutedKind::ALL.map(|kind| Meter::of_kind(kind.name()));
        Self { kinds, none: Meter::of_kind("none"), by_workload, workloads: Mutex::default() }
    }

    /// Returns the meter of requests that lead to no workload.
    pub(super) fn none(&self) -> &Meter {
        &self.none
    }

    /// Returns the meter of a workload whose object exists. One that was deleted lately goes on with its counters.
    pub(super) fn enter(&self, kind: RoutedKind, key: &[u8], namespace: &str, name: &str) -> Arc<Meter> {
        if !self.by_workload {
            return self.of_kind(kind).clone();
        }
        let mut workloads = self.workloads();
        if let Some(entry) = workloads.get_mut(key) {
            entry.deleted = None;
            return entry.meter.clone();
        }
        let meter = Meter::of_workload(kind.name(), namespace, name);
        workloads.insert(key.into(), WorkloadEntry { meter: meter.clone(), deleted: None });
        meter
    }

    /// Notes that the object of a workload was deleted.
    pub(super) fn leave(&self, key: &[u8]) {
        if let Some(entry) = self.workloads().get_mut(key) {
            entry.deleted.get_or_insert_with(Instant::now);
        }
    }

    /// Forgets the workloads whose objects were deleted long enough ago.
    pub(super) fn sweep(&self) {
        self.workloads().retain(|_, entry| entry.deleted.is_none_or(|deleted| deleted.elapsed() < KEPT));
    }

    fn of_kind(&self, kind: RoutedKind) -> &Arc<Meter> {
        let [agent, flow, flow_set, mcp_server] = &self.kinds;
        match kind {
            RoutedKind::Agent => agent,
            RoutedKind::Flow => flow,
            RoutedKind::FlowSet => flow_set,
            RoutedKind::McpServer => mcp_server,
        }
    }

    /// Returns every meter that has series.
    fn with_series(&self) -> Vec<Arc<Meter>> {
        self.sweep();
        let workloads = self.workloads();
        let all = self.kinds.iter().chain([&self.none]).chain(workloads.values().map(|entry| &entry.meter));
        all.filter(|meter| meter.has_series()).cloned().collect()
    }

    fn workloads(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, WorkloadEntry>> {
        self.workloads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encodes the meters.
#[derive(Debug)]
pub(super) struct MeterCollector(pub(super) Arc<Meters>);

/// Label of a series besides those of the workload.
type Label<'a> = Option<(&'a str, &'a str)>;

/// Returns the labels of a series.
fn labels<'a>(meter: &'a Meter, more: Label<'a>) -> Vec<(&'a str, &'a str)> {
    let own = [("kind", meter.kind), ("namespace", &*meter.namespace), ("name", &*meter.name)];
    own.into_iter().chain(more).collect()
}

fn counter(encoder: &mut MetricEncoder<'_>, meter: &Meter, label: (&str, &str), count: u64) -> fmt::Result {
    encoder.encode_family(&labels(meter, Some(label)))?.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

impl Collector for MeterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let meters = self.0.with_series();
        let relayed = || meters.iter().filter(|meter| meter.has_requests());
        let help = "Requests answered, by status code.";
        let mut requests = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
        for meter in &meters {
            for (code, count) in meter.codes() {
                counter(&mut requests, meter, ("code", &code), count)?;
            }
        }
        let help = "Requests that the gateway itself refused, by reason.";
        let mut refused = encoder.encode_descriptor("refused", help, None, MetricType::Counter)?;
        for meter in &meters {
            for (reason, count) in meter.reasons() {
                counter(&mut refused, meter, ("reason", reason), count)?;
            }
        }
        let help =
            "Requests that were refused because a limit of the workload was reached, by whose requests it counts.";
        let mut limited = encoder.encode_descriptor("limited", help, None, MetricType::Counter)?;
        for meter in &meters {
            let by_rate = meter.limited().map(|(per, count)| (per, "rate", count));
            for (per, reason, count) in by_rate.chain(meter.over_budget().map(|(per, count)| (per, "budget", count))) {
                let mut labels = labels(meter, Some(("per", per.as_str())));
                labels.push(("reason", reason));
                limited.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let help = "Smaller part of today's tokens and cost that is left of the budgets of all callers, from 0 to 1.";
        let mut left = encoder.encode_descriptor("budget_left_ratio", help, None, MetricType::Gauge)?;
        for meter in &meters {
            // Workloads without names share a meter.
            if let Some(part) = meter.budget_left().filter(|_| !meter.name.is_empty()) {
                left.encode_family(&labels(meter, None))?.encode_gauge(&part)?;
            }
        }
        let help = "Requests that waited for a workload without ready Pods, by outcome: served, timeout (no Pod became ready in \
                    time), left (the client left, or the workload failed).";
        let mut cold_starts = encoder.encode_descriptor("cold_starts", help, None, MetricType::Counter)?;
        for meter in &meters {
            for (outcome, count) in meter.cold_starts() {
                counter(&mut cold_starts, meter, ("outcome", outcome.as_str()), count)?;
            }
        }
        let help = "Tokens that models used for answers, as these report: cache_read and cache_write are parts of input, and reasoning is \
                    one of output.";
        let mut tokens = encoder.encode_descriptor("tokens", help, None, MetricType::Counter)?;
        for meter in &meters {
            for (model, direction, count) in meter.tokens.read() {
                let mut labels = labels(meter, Some(("model", &*model)));
                labels.push(("direction", direction.as_str()));
                tokens.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let help = "Cost of these tokens by the prices of the models, of workloads that have costPerDay, by currency.";
        let mut costs = encoder.encode_descriptor("cost", help, None, MetricType::Counter)?;
        for meter in &meters {
            for (currency, cost) in meter.tokens.costs() {
                let labels = labels(meter, Some(("currency", &*currency)));
                costs.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&cost, None)?;
            }
        }
        let help = "Time from a request's head to the end of its answer.";
        let mut durations = encoder.encode_descriptor("duration_seconds", help, None, MetricType::Histogram)?;
        for meter in relayed() {
            let (sum, buckets) = meter.durations();
            let count = buckets.iter().map(|(_, count)| count).sum();
            durations
                .encode_family(&labels(meter, None))?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        let help = "Requests that wait for room in a Pod.";
        let mut queued = encoder.encode_descriptor("queue_depth", help, None, MetricType::Gauge)?;
        for meter in relayed() {
            queued.encode_family(&labels(meter, None))?.encode_gauge(&meter.queued())?;
        }
        let help = "Requests under way.";
        let mut active = encoder.encode_descriptor("active_streams", help, None, MetricType::Gauge)?;
        for meter in relayed() {
            active.encode_family(&labels(meter, None))?.encode_gauge(&meter.active())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;
    use crate::meter::MAX_SERIES;

    fn text(meters: &Arc<Meters>) -> Vec<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(MeterCollector(meters.clone())));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    fn busy(meter: &Arc<Meter>) {
        drop(meter.begin_request(Instant::now()));
        meter.answered(200);
    }

    #[tokio::test(start_paused = true)]
    async fn series_begin_with_the_first_event_and_end_ten_minutes_after_the_object() {
        let meters = Arc::new(Meters::new(true));
        let meter = meters.enter(RoutedKind::Flow, b"flows/ns/f", "ns", "f");
        assert_eq!(text(&meters), [""; 0]);
        busy(&meter);
        let line = "requests_total{kind=\"Flow\",namespace=\"ns\",name=\"f\",code=\"200\"}";
        assert!(text(&meters).contains(&format!("{line} 1")), "{:?}", text(&meters));
        meters.leave(b"flows/ns/f");
        tokio::time::advance(KEPT / 2).await;
        busy(&meters.enter(RoutedKind::Flow, b"flows/ns/f", "ns", "f"));
        tokio::time::advance(KEPT).await;
        assert!(text(&meters).contains(&format!("{line} 2")), "created again: {:?}", text(&meters));
        meters.leave(b"flows/ns/f");
        tokio::time::advance(KEPT - Duration::from_secs(1)).await;
        assert!(!text(&meters).is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(text(&meters), [""; 0]);
    }

    #[tokio::test]
    async fn without_names_the_workloads_of_a_kind_share_their_series() {
        let meters = Arc::new(Meters::new(false));
        for name in ["a", "b"] {
            busy(&meters.enter(RoutedKind::Agent, name.as_bytes(), "ns", name));
        }
        let line = "requests_total{kind=\"Agent\",namespace=\"\",name=\"\",code=\"200\"} 2".to_owned();
        assert!(text(&meters).contains(&line), "{:?}", text(&meters));
    }

    #[tokio::test]
    async fn a_workload_has_35_series_at_most_and_a_thousand_take_a_megabyte() {
        let meters = Arc::new(Meters::new(true));
        for at in 0..1000 {
            let name = format!("agent-{at}");
            let meter = meters.enter(RoutedKind::Agent, name.as_bytes(), "namespace", &name);
            busy(&meter);
            (101..600).for_each(|code| meter.answered(code));
            for reason in crate::meter::REASONS {
                meter.refused(&crate::local_response::LocalResponse::new(503, reason, "x"));
            }
            for per in crate::limits::LimitPer::ALL {
                meter.count_limited(per);
                meter.count_over_budget(per);
            }
            meter.set_budget_left(Some(0.5));
            for end in
                [crate::meter::ColdStart::Served, crate::meter::ColdStart::Timeout, crate::meter::ColdStart::Left]
            {
                let mut wait = meter.begin_wait();
                wait.begin_cold_start();
                wait.end_cold_start(end);
            }
        }
        let text = text(&meters);
        let of_one = || text.iter().filter(|line| line.contains("name=\"agent-7\""));
        assert_eq!(of_one().count(), MAX_SERIES);
        let failed = format!("code=\"5xx\"}} {}", 100 + crate::meter::REASONS.len());
        assert!(of_one().any(|line| line.ends_with(&failed)), "{:?}", of_one().collect::<Vec<_>>());
        // A meter with its slots, its names, its place in the table, and 16 bytes for each of the six allocations.
        let slots = 8 * size_of::<(std::sync::atomic::AtomicU16, std::sync::atomic::AtomicU64)>();
        let names = 2 * "namespace/agent-999".len() + "agents/".len();
        let each = size_of::<Meter>() + slots + names + 2 * size_of::<(Box<[u8]>, WorkloadEntry)>() + 6 * 16;
        assert!(each <= 1024, "{each} bytes");
    }
}
