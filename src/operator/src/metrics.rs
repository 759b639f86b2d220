//! Metrics of the steps, and all metrics of the operator together.

use std::{sync::Arc, time::Duration};

use cluster::{cache::KindCaches, metrics::ApiMetrics};
use machine::{Sink, StepOutcome, StepRecord};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use telemetry::SpanCounters;

use crate::{
    controller::Controller, object_metrics::ObjectCollector, scaler::ScalerMetrics, time_to_running::TimeToRunning,
};

/// Metrics of the operator's parts, which count into one registry.
#[derive(Debug)]
pub struct OperatorMetrics {
    /// Those of the steps.
    pub steps: StepMetrics,
    /// Those of the scaler.
    pub scaler: ScalerMetrics,
    /// Those of the Kubernetes client.
    pub api: ApiMetrics,
    /// Those of the spans.
    pub spans: SpanCounters,
}

impl OperatorMetrics {
    /// Creates all metrics in this registry; those of the objects follow these caches. Must be called before the watches start.
    pub fn new(registry: &mut Registry, kinds: &KindCaches, by_workload: bool) -> Self {
        daemon::process::register(registry, "operator");
        let steps = StepMetrics::new(registry);
        let (scaler, api) = (ScalerMetrics::new(registry, by_workload), ApiMetrics::default());
        api.register(registry);
        let spans = SpanCounters::default();
        spans.register(registry);
        registry.register_collector(Box::new(ObjectCollector::new(kinds.clone(), by_workload)));
        TimeToRunning::new(registry, steps.leading.clone()).subscribe(kinds);
        Self { steps, scaler, api, spans }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    kind: &'static str,
    phase: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// Metrics of the steps: counts, durations, queue depths and leadership.
#[derive(Debug, Clone)]
pub struct StepMetrics {
    steps: Family<StepLabels, Counter>,
    seconds: Family<KindLabel, Histogram, fn() -> Histogram>,
    queued: Family<KindLabel, Gauge>,
    leading: Gauge,
    crd_outdated: Family<KindLabel, Gauge>,
}

impl StepMetrics {
    /// Creates the metrics in this registry.
    pub fn new(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(exponential_buckets(0.001, 4.0, 8));
        let metrics = Self {
            steps: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            queued: Family::default(),
            leading: Gauge::default(),
            crd_outdated: Family::default(),
        };
        registry.register("recif_steps", "Steps by the phase they began in", metrics.steps.clone());
        registry.register("recif_step_duration_seconds", "How long steps took", metrics.seconds.clone());
        registry.register("recif_queue_depth", "Objects that could be stepped now", metrics.queued.clone());
        registry.register("recif_leading", "1 while this replica holds the lease", metrics.leading.clone());
        registry.register(
            "recif_crd_outdated",
            "1 on the leader while the CRD of the kind drops fields that it writes, seen within the last half hour",
            metrics.crd_outdated.clone(),
        );
        metrics
    }

    /// Counts a step that began in `phase`.
    pub(crate) fn stepped(&self, kind: &'static str, phase: &str, outcome: StepOutcome, took: Duration) {
        let labels = StepLabels { kind, phase: phase.to_owned(), outcome: outcome.as_str() };
        self.steps.get_or_create(&labels).inc();
        self.seconds.get_or_create(&KindLabel { kind }).observe(took.as_secs_f64());
    }

    /// Sets the number of objects of a kind that wait for a worker.
    pub fn queued(&self, kind: &'static str, depth: usize) {
        self.queued.get_or_create(&KindLabel { kind }).set(i64::try_from(depth).unwrap_or(i64::MAX));
    }

    /// Updates the queue depths of these controllers, and whether their CRDs are outdated.
    pub(crate) fn refresh(&self, controllers: &[Arc<dyn Controller>]) {
        let leads = self.is_leading();
        for found in controllers {
            self.queued(found.kind(), found.depth());
            self.crd_outdated(found.kind(), leads && found.outdated_crd().is_some());
        }
    }

    /// Returns what the CRDs of these controllers drop, a sentence each. Only the leader reports it: what another replica knows is from
    /// a former term, and its writes show nothing more.
    pub(crate) fn outdated_crds(&self, controllers: &[Arc<dyn Controller>]) -> Vec<String> {
        if !self.is_leading() {
            return Vec::new();
        }
        controllers.iter().filter_map(|found| found.outdated_crd()).collect()
    }

    /// Sets whether the CRD of a kind is older than this build, as far as the writes of this leader have shown.
    pub fn crd_outdated(&self, kind: &'static str, outdated: bool) {
        self.crd_outdated.get_or_create(&KindLabel { kind }).set(outdated.into());
    }

    /// Sets whether this replica leads.
    pub fn leading(&self, leading: bool) {
        self.leading.set(leading.into());
    }

    fn is_leading(&self) -> bool {
        self.leading.get() == 1
    }
}

impl Sink for StepMetrics {
    fn record(&self, step: &StepRecord) {
        self.stepped(step.kind, &step.from, step.outcome, step.took);
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::*;

    struct Outdated;

    impl Controller for Outdated {
        fn kind(&self) -> &'static str {
            "Agent"
        }

        fn depth(&self) -> usize {
            0
        }

        fn outdated_crd(&self) -> Option<String> {
            Some("the CRD drops status.x".to_owned())
        }

        fn run(&self, _workers: usize) -> BoxFuture<'_, ()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn only_the_leader_tells_of_an_outdated_crd() {
        let steps = StepMetrics::new(&mut Registry::default());
        let controllers: [Arc<dyn Controller>; 1] = [Arc::new(Outdated)];
        for leads in [false, true, false] {
            steps.leading(leads);
            steps.refresh(&controllers);
            let gauge = steps.crd_outdated.get_or_create(&KindLabel { kind: "Agent" }).get();
            let told = steps.outdated_crds(&controllers).len();
            assert_eq!((gauge, told), (i64::from(leads), usize::from(leads)));
        }
    }
}
