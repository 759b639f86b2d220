//! Metrics of the process.

use std::fmt;

use cluster::metrics::ApiMetrics;
use prometheus_client::{encoding::text::encode, metrics::gauge::Gauge, registry::Registry};

use super::{mirror::MirrorMetrics, spans::SpanMetrics};

/// Metrics of the parts, which count into one registry.
#[derive(Debug)]
pub(super) struct ControlPlaneMetrics {
    /// Those of the Kubernetes client.
    pub(super) api: ApiMetrics,
    /// Those of the mirror.
    pub(super) mirror: MirrorMetrics,
    /// Those of spans.
    pub(super) spans: SpanMetrics,
    /// Objects in the read model; set at a scrape.
    pub(super) objects: Gauge,
    /// Clients that follow the changes; set at a scrape.
    pub(super) followers: Gauge,
}

impl ControlPlaneMetrics {
    /// Creates all metrics in this registry.
    pub(super) fn new(registry: &mut Registry) -> Self {
        daemon::process::register(registry, "control-plane");
        let (api, objects, followers) = (ApiMetrics::default(), Gauge::default(), Gauge::default());
        api.register(registry);
        registry.register("recif_control_plane_objects", "Objects in the read model", objects.clone());
        registry.register("recif_control_plane_followers", "Clients that follow the changes", followers.clone());
        let spans = SpanMetrics::default();
        spans.register(registry);
        Self { api, mirror: MirrorMetrics::new(registry), spans, objects, followers }
    }
}

/// Returns the metrics of a control plane in which each event has happened, as OpenMetrics text, for the documentation.
///
/// # Errors
/// None in practice: it writes to memory.
pub fn example_metrics() -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    ControlPlaneMetrics::new(&mut registry).api.record_examples();
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}
