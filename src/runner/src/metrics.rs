//! Metrics of the runtime, in OpenMetrics text.
//!
//! Labels are status codes, tool types, outcomes and the names of configured flows and models, all of low cardinality: never the
//! name of a tool or a conversation, or any content of a request, which could grow without bound.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use crds::usage::{UsageKey, UsageTotals};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use telemetry::{SpanCounters, TelemetryConfig, Tracing};

use super::{
    Lookup,
    approval_metrics::{ApprovalMetrics, ApprovalOutcome},
    secret_values::SecretValues,
    usage::UsageLedger,
};

/// Upper bounds of the duration's buckets, in seconds: from an echo to a long chain of tool calls.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// Outcome of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolCallOutcome {
    /// The tool returned a result.
    Ok,
    /// The tool returned an error.
    Error,
    /// The tool did not respond in time.
    Timeout,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowStatusLabels {
    flow: Arc<String>,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolCallLabels {
    r#type: &'static str,
    outcome: &'static str,
}

/// All metrics; clones share them.
#[derive(Clone)]
pub(super) struct RunnerMetrics {
    registry: Arc<Registry>,
    requests: Family<StatusLabels, Counter>,
    in_flight: Gauge,
    duration: Histogram,
    tool_calls: Family<ToolCallLabels, Counter>,
    flow_requests: Family<FlowStatusLabels, Counter>,
    /// Calls that wait for a person.
    pub(super) approvals: ApprovalMetrics,
    /// Counter of what the models use.
    pub(super) usage: UsageLedger,
    spans: SpanCounters,
    /// Handle by which spans are recorded.
    pub(super) tracing: Tracing,
    /// Values that no span may hold, if spans hold content.
    pub(super) secrets: Option<SecretValues>,
}

impl Default for RunnerMetrics {
    fn default() -> Self {
        let mut all = Registry::default();
        daemon::process::register(&mut all, "runner");
        let spans = SpanCounters::default();
        spans.register(&mut all);
        let registry = all.sub_registry_with_prefix("recif_runner");
        let requests = Family::default();
        let in_flight = Gauge::default();
        let duration = Histogram::new(SECONDS);
        let tool_calls = Family::default();
        registry.register("requests", "Requests by status code, probes left out", requests.clone());
        registry.register("requests_in_flight", "Requests being answered", in_flight.clone());
        registry.register(
            "request_duration_seconds",
            "Time from a request's head to the end of its answer",
            duration.clone(),
        );
        registry.register("tool_calls", "Calls of tools by type and outcome", tool_calls.clone());
        let flow_requests = Family::default();
        registry.register("flow_requests", "Requests by flow and status code", flow_requests.clone());
        let approvals = ApprovalMetrics::default();
        approvals.register(registry);
        let usage = UsageLedger::default();
        usage.metrics().register(registry);
        let (registry, tracing, secrets) = (Arc::new(all), Tracing::off(), None);
        Self {
            registry,
            requests,
            in_flight,
            duration,
            tool_calls,
            flow_requests,
            approvals,
            usage,
            spans,
            tracing,
            secrets,
        }
    }
}

impl RunnerMetrics {
    /// Creates the metrics of a process whose spans are exported as configured; `own` are its attributes, and `lookup` reads its
    /// variables. Without the certificates of the collector, which the log says, there are no spans.
    pub(super) fn with_tracing(config: &TelemetryConfig, own: &[(&'static str, String)], lookup: &Lookup) -> Self {
        let metrics = Self::default();
        let started = Tracing::start(config, own, metrics.spans.clone());
        let tracing = started.unwrap_or_else(|error| {
            tracing::error!("no spans are recorded: {error}");
            Tracing::off()
        });
        let captures = config.captures_content && tracing.is_on();
        let secrets = captures.then(|| SecretValues::of_process(config, lookup));
        Self { tracing, secrets, ..metrics }
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(super) fn start_request(&self) -> InFlight {
        self.in_flight.inc();
        InFlight { metrics: self.clone(), start: Instant::now(), code: 499 }
    }

    /// Counts a finished tool call.
    pub(super) fn count_tool_call(&self, type_: &'static str, outcome: ToolCallOutcome) {
        let outcome = match outcome {
            ToolCallOutcome::Ok => "ok",
            ToolCallOutcome::Error => "error",
            ToolCallOutcome::Timeout => "timeout",
        };
        self.tool_calls.get_or_create(&ToolCallLabels { r#type: type_, outcome }).inc();
    }

    /// Counts a response of a flow; a streamed one when it begins.
    pub(super) fn count_flow_response(&self, flow: &Arc<String>, status: StatusCode) {
        let label = FlowStatusLabels { flow: flow.clone(), code: status.as_u16() };
        self.flow_requests.get_or_create(&label).inc();
    }

    /// Encodes all metrics as OpenMetrics text.
    ///
    /// # Errors
    /// A metric that cannot be encoded.
    pub(super) fn encode(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

/// Guard of a request in flight. One that is dropped without a status counts as 499: the client disconnected.
pub(super) struct InFlight {
    metrics: RunnerMetrics,
    start: Instant,
    code: u16,
}

impl InFlight {
    /// Sets the status under which the request is counted.
    pub(super) fn set_status(&mut self, status: StatusCode) {
        self.code = status.as_u16();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        self.metrics.duration.observe(self.start.elapsed().as_secs_f64());
        self.metrics.requests.get_or_create(&StatusLabels { code: self.code }).inc();
    }
}

/// Returns the metrics of a runtime in which each event has happened, as OpenMetrics text, for the documentation.
///
/// # Errors
/// None in practice: it writes to memory.
pub fn example_metrics() -> Result<String, fmt::Error> {
    let metrics = RunnerMetrics::default();
    metrics.start_request().set_status(StatusCode::OK);
    metrics.count_tool_call("http", ToolCallOutcome::Ok);
    metrics.count_flow_response(&Arc::new("support".to_owned()), StatusCode::OK);
    metrics.approvals.count(ApprovalOutcome::Approved, 1);
    metrics.spans.sent(1);
    let totals = UsageTotals {
        calls: 1,
        failed: 1,
        input: 3,
        cache_read: 1,
        cache_write: 1,
        output: 2,
        reasoning: 1,
        ..UsageTotals::default()
    };
    metrics.usage.count("openai/gpt-5", UsageKey::default(), &totals);
    metrics.usage.metrics().observe("openai/gpt-5", Duration::from_secs(1));
    metrics.usage.metrics().count_fallback("openai/gpt-5", "anthropic/claude");
    metrics.encode()
}
