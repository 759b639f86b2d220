//! Metrics of a gateway in which each event has happened: what the documentation of the metrics is made from.

use std::{fmt, sync::Arc};

use cluster::metrics::ApiMetrics;
use crds::usage::ReportedUsage;
use telemetry::SpanCounters;
use tokio::time::Instant;

use super::{
    limits::LimitPer, local_response::unknown_workload, meter::ColdStart, meters::Meters, metrics::GatewayMetrics,
    object::RoutedKind,
};

/// Returns the metrics of a gateway in which each event has happened, as OpenMetrics text, for the documentation.
///
/// # Errors
/// None in practice: it writes to memory.
pub fn example_metrics() -> Result<String, fmt::Error> {
    let (meters, api) = (Arc::new(Meters::new(true)), ApiMetrics::default());
    let spans = SpanCounters::default();
    let metrics = GatewayMetrics::new(meters.clone(), |registry| {
        api.register(registry);
        spans.register(registry);
    });
    api.record_examples();
    spans.sent(1);
    let meter = meters.enter(RoutedKind::Agent, b"agents/default/weather", "default", "weather");
    let mut wait = meter.begin_wait();
    wait.begin_cold_start();
    wait.end_cold_start(ColdStart::Served);
    drop(wait);
    drop(meter.begin_request(Instant::now()));
    metrics.refused(Some(&meter), &unknown_workload());
    meter.count_limited(LimitPer::Caller);
    meter.set_budget_left(Some(0.5));
    let model = Some("openai/gpt-5".into());
    meter.tokens.count(&ReportedUsage { tokens: [1; 5], model, ..ReportedUsage::default() });
    meter.tokens.count_cost("EUR", 1_000_000_000);
    metrics.encode()
}
