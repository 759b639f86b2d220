//! Metrics of the scaler. No label ever holds the name of an object.

use std::time::Duration;

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

use super::Direction;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// Metrics of the scaler.
#[derive(Debug, Clone)]
pub struct ScalerMetrics {
    desired: Gauge,
    decisions: Family<DirectionLabel, Counter>,
    tick: Histogram,
    unreachable: Gauge,
}

impl ScalerMetrics {
    /// Creates the metrics in this registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            desired: Gauge::default(),
            decisions: Family::default(),
            tick: Histogram::new(exponential_buckets(0.001, 2.0, 12)),
            unreachable: Gauge::default(),
        };
        registry.register(
            "recif_scaler_desired_replicas",
            "Pods that the scaler asks for, of all workloads",
            metrics.desired.clone(),
        );
        registry.register("recif_scaler_decisions", "Changes of a number of Pods", metrics.decisions.clone());
        registry.register("recif_scaler_tick_seconds", "Duration of a poll of all Pods", metrics.tick.clone());
        registry.register(
            "recif_scaler_unreachable_pods",
            "Pods that have not reported their load for 10 s",
            metrics.unreachable.clone(),
        );
        metrics
    }

    /// Counts a change of the number of Pods.
    pub(super) fn decided(&self, direction: Direction) {
        let direction = match direction {
            Direction::Up => "up",
            Direction::Down => "down",
            Direction::Hold => return,
        };
        self.decisions.get_or_create(&DirectionLabel { direction }).inc();
    }

    /// Records the end of a round.
    pub(super) fn ended(&self, took: Duration, desired: i64, unreachable: usize) {
        self.tick.observe(took.as_secs_f64());
        self.desired.set(desired);
        self.unreachable.set(i64::try_from(unreachable).unwrap_or(i64::MAX));
    }

    /// Resets the gauges, because this replica no longer scales.
    pub(super) fn reset(&self) {
        self.desired.set(0);
        self.unreachable.set(0);
    }
}
