//! Metrics of the scaler, by workload. They are encoded at a scrape from what the last evaluation of each workload left here.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use meta::Key;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::{
        MetricType,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::time::Instant;

use super::{Direction, WorkloadId};

/// Time for which the counters of a deleted workload stay.
const KEPT: Duration = Duration::from_secs(600);

/// Result of the last evaluation of a workload.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ScaleGauges {
    /// Pods that the scaler asks for.
    pub desired: i32,
    /// Pods that the load asks for, in fractions, whatever the limits.
    pub demand: f64,
    /// Fewest Pods.
    pub min: i32,
    /// Most Pods.
    pub max: i32,
    /// Pods that do not report their load.
    pub unreachable: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct ScaledWorkload {
    /// `None` while the number of Pods does not follow the load.
    gauges: Option<ScaleGauges>,
    ups: u64,
    downs: u64,
    /// Time at which it was deleted; `None` while there is one.
    deleted: Option<Instant>,
}

/// Metrics of the scaler.
#[derive(Debug, Clone)]
pub struct ScalerMetrics {
    tick: Histogram,
    by_workload: bool,
    /// By workload. Without names the changes are under an empty name per kind, which is never deleted, so that their sums never fall.
    workloads: Arc<Mutex<BTreeMap<WorkloadId, ScaledWorkload>>>,
}

impl ScalerMetrics {
    /// Creates the metrics in this registry. Without `by_workload` they are sums by kind, and name no workload.
    pub fn new(registry: &mut Registry, by_workload: bool) -> Self {
        let tick = Histogram::new(exponential_buckets(0.001, 2.0, 12));
        let metrics = Self { tick, by_workload, workloads: Arc::default() };
        let registry = registry.sub_registry_with_prefix("recif_scaler");
        registry.register("tick_seconds", "Duration of a poll of all Pods", metrics.tick.clone());
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Records the evaluation of a workload; `None`: its number of Pods does not follow the load.
    pub fn evaluated(&self, id: &WorkloadId, gauges: Option<ScaleGauges>) {
        let mut workloads = self.workloads();
        if gauges.is_some() || workloads.contains_key(id) {
            let workload = workloads.entry(id.clone()).or_default();
            (workload.gauges, workload.deleted) = (gauges, None);
        }
    }

    /// Counts a change of the number of Pods.
    pub fn decided(&self, id: &WorkloadId, direction: Direction) {
        let key = if self.by_workload { id.key.clone() } else { Key::new("", "") };
        let mut workloads = self.workloads();
        let workload = workloads.entry(WorkloadId { kind: id.kind, key }).or_default();
        match direction {
            Direction::Up => workload.ups += 1,
            Direction::Down => workload.downs += 1,
            Direction::Hold => {}
        }
    }

    /// Records that a workload was deleted: its counters stay for a while.
    pub fn deleted(&self, id: &WorkloadId) {
        if let Some(workload) = self.workloads().get_mut(id) {
            workload.gauges = None;
            workload.deleted.get_or_insert_with(Instant::now);
        }
    }

    /// Records the end of a round.
    pub(super) fn ended(&self, took: Duration) {
        self.tick.observe(took.as_secs_f64());
    }

    /// Forgets all workloads, because this replica no longer scales.
    pub(super) fn reset(&self) {
        self.workloads().clear();
    }

    fn workloads(&self) -> MutexGuard<'_, BTreeMap<WorkloadId, ScaledWorkload>> {
        self.workloads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the workloads by their labels: kind, namespace and name.
    fn by_labels(&self) -> BTreeMap<[(&'static str, String); 3], ScaledWorkload> {
        let mut workloads = self.workloads();
        workloads.retain(|_, workload| workload.deleted.is_none_or(|deleted| deleted.elapsed() < KEPT));
        let mut found = BTreeMap::new();
        for (id, workload) in &*workloads {
            let name = |name: &String| if self.by_workload { name.clone() } else { String::new() };
            let labels =
                [("kind", id.kind.to_owned()), ("namespace", name(&id.key.namespace)), ("name", name(&id.key.name))];
            found.entry(labels).or_insert_with(ScaledWorkload::default).add(workload);
        }
        found
    }
}

impl ScaledWorkload {
    fn add(&mut self, other: &Self) {
        self.ups += other.ups;
        self.downs += other.downs;
        if let Some(more) = other.gauges {
            let sum = self.gauges.get_or_insert_default();
            sum.desired += more.desired;
            sum.demand += more.demand;
            sum.min += more.min;
            sum.max += more.max;
            sum.unreachable += more.unreachable;
        }
    }
}

impl Collector for ScalerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let workloads = self.by_labels();
        let with = |labels: &[(&'static str, String); 3], more: Option<(&'static str, &str)>| {
            let more = more.map(|(label, value)| (label, value.to_owned()));
            labels.iter().cloned().chain(more).collect::<Vec<_>>()
        };
        let gauges = || workloads.iter().filter_map(|(labels, workload)| Some((labels, workload.gauges?)));
        let help = "Pods that the scaler asks for.";
        let mut desired = encoder.encode_descriptor("desired_replicas", help, None, MetricType::Gauge)?;
        for (labels, gauges) in gauges() {
            desired.encode_family(&with(labels, None))?.encode_gauge(&gauges.desired)?;
        }
        let help = "Pods that the load asks for, in fractions, whatever the limits.";
        let mut demand = encoder.encode_descriptor("demand", help, None, MetricType::Gauge)?;
        for (labels, gauges) in gauges() {
            demand.encode_family(&with(labels, None))?.encode_gauge(&gauges.demand)?;
        }
        let help = "Limits of the number of Pods: spec.scaling.minReplicas and maxReplicas.";
        let mut limits = encoder.encode_descriptor("limit_replicas", help, None, MetricType::Gauge)?;
        for (labels, gauges) in gauges() {
            limits.encode_family(&with(labels, Some(("bound", "min"))))?.encode_gauge(&gauges.min)?;
            limits.encode_family(&with(labels, Some(("bound", "max"))))?.encode_gauge(&gauges.max)?;
        }
        let help = "Pods that have not reported their load for 10 s.";
        let mut unreachable = encoder.encode_descriptor("unreachable_pods", help, None, MetricType::Gauge)?;
        for (labels, gauges) in gauges() {
            unreachable.encode_family(&with(labels, None))?.encode_gauge(&gauges.unreachable)?;
        }
        let help = "Changes of a number of Pods, by direction: up or down.";
        let mut decisions = encoder.encode_descriptor("decisions", help, None, MetricType::Counter)?;
        for (labels, workload) in &workloads {
            for (direction, count) in [("up", workload.ups), ("down", workload.downs)] {
                if count > 0 {
                    let labels = with(labels, Some(("direction", direction)));
                    decisions.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn id(name: &str) -> WorkloadId {
        WorkloadId { kind: "Agent", key: Key::new("ns", name) }
    }

    fn lines(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text.lines().filter(|line| line.contains('{') && !line.contains("tick")).map(str::to_owned).collect()
    }

    const GAUGES: ScaleGauges = ScaleGauges { desired: 2, demand: 1.5, min: 1, max: 4, unreachable: 1 };

    #[tokio::test(start_paused = true)]
    async fn series_begin_with_an_evaluation_and_counters_end_ten_minutes_after_the_object() {
        let mut registry = Registry::default();
        let metrics = ScalerMetrics::new(&mut registry, true);
        metrics.evaluated(&id("fixed"), None);
        metrics.deleted(&id("unknown"));
        assert_eq!(lines(&registry), [""; 0]);
        metrics.evaluated(&id("a"), Some(GAUGES));
        metrics.decided(&id("a"), Direction::Up);
        let label = "{kind=\"Agent\",namespace=\"ns\",name=\"a\"";
        let expected = [
            format!("recif_scaler_desired_replicas{label}}} 2"),
            format!("recif_scaler_demand{label}}} 1.5"),
            format!("recif_scaler_limit_replicas{label},bound=\"min\"}} 1"),
            format!("recif_scaler_limit_replicas{label},bound=\"max\"}} 4"),
            format!("recif_scaler_unreachable_pods{label}}} 1"),
            format!("recif_scaler_decisions_total{label},direction=\"up\"}} 1"),
        ];
        assert_eq!(lines(&registry), expected);
        metrics.deleted(&id("a"));
        tokio::time::advance(KEPT - Duration::from_secs(1)).await;
        assert_eq!(lines(&registry), expected[5..]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(lines(&registry), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn without_names_there_are_sums_by_kind_and_counters_never_fall() {
        let mut registry = Registry::default();
        let metrics = ScalerMetrics::new(&mut registry, false);
        for name in ["a", "b"] {
            metrics.evaluated(&id(name), Some(GAUGES));
            metrics.decided(&id(name), Direction::Down);
        }
        let found = lines(&registry);
        let label = "{kind=\"Agent\",namespace=\"\",name=\"\"";
        assert!(found.contains(&format!("recif_scaler_demand{label}}} 3.0")), "{found:?}");
        let decisions = format!("recif_scaler_decisions_total{label},direction=\"down\"}} 2");
        assert!(found.contains(&decisions), "{found:?}");
        assert_eq!(found.len(), 6);
        metrics.deleted(&id("a"));
        tokio::time::advance(KEPT).await;
        let found = lines(&registry);
        assert!(found.contains(&format!("recif_scaler_demand{label}}} 1.5")), "{found:?}");
        assert!(found.contains(&decisions), "{found:?}");
        metrics.reset();
        assert_eq!(lines(&registry), [""; 0]);
    }
}
