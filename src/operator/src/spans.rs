//! Sink that records a span of each history entry: those of a convergence are one trace, which tells what an object went through from a
//! change until it was settled again.
//!
//! The trace follows from the entry, so that no further request is needed and a restart of the operator goes on with it. Texts for people are
//! left out: they may quote what a user or a server wrote.

use std::{borrow::Cow, time::Duration};

use machine::{Sink, StepOutcome, StepRecord, StepSpan};
use meta::HistoryEntry;
use telemetry::{
    AttributeValue, FinishedSpan, SpanCounters, SpanKind, TelemetryConfig, TraceContext, Tracing,
    semconv::{
        ERROR_TYPE, K8S_NAMESPACE_NAME, RECIF_ACTION, RECIF_FROM, RECIF_GENERATION, RECIF_KIND, RECIF_NAME, RECIF_TO,
    },
};

/// Starts to send the spans of this process, if a collector is configured. Called in a runtime of tokio.
///
/// # Errors
/// The certificates that the configuration names cannot be used.
pub(super) fn start_tracing(
    config: &TelemetryConfig,
    instance: &str,
    namespace: &str,
    counters: SpanCounters,
) -> Result<Tracing, String> {
    let own = config.platform_attributes("operator", instance, namespace);
    Tracing::start(config, &own, counters).map_err(|error| error.to_string())
}

/// Sink that records spans.
pub(super) struct StepSpanSink(pub(super) Tracing);

impl Sink for StepSpanSink {
    fn record(&self, step: &StepRecord) {
        if !self.0.is_on() {
            return;
        }
        for entry in &step.entries {
            if let Some(span) = StepSpan::of(&step.uid, entry) {
                self.0.record(finished(step, entry, span, self.0.samples(&span.trace_id)));
            }
        }
    }
}

/// Returns the span of an entry that a step wrote.
fn finished(step: &StepRecord, entry: &HistoryEntry, span: StepSpan, is_sampled: bool) -> FinishedSpan {
    let HistoryEntry { from, to, action, .. } = entry;
    let StepSpan { trace_id, span_id, parent } = span;
    let name =
        if from.is_empty() || from == to { format!("{action} {to}") } else { format!("{action} {from} → {to}") };
    // The admission, whose entry stands before the step's own, did not fail.
    let error = if entry.seq == step.seq { failure(step) } else { None };
    let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
        (RECIF_KIND, step.kind.into()),
        (K8S_NAMESPACE_NAME, step.namespace.clone().into()),
        (RECIF_NAME, step.name.clone().into()),
        (RECIF_GENERATION, step.generation.into()),
        (RECIF_ACTION, action.clone().into()),
        (RECIF_FROM, from.clone().into()),
        (RECIF_TO, to.clone().into()),
    ];
    attributes.extend(error.clone().map(|kind| (ERROR_TYPE, AttributeValue::Text(kind))));
    let end = u64::try_from(entry.at.0.as_nanosecond()).unwrap_or_default();
    let took = Duration::from_millis(u64::try_from(entry.took_ms).unwrap_or_default());
    FinishedSpan {
        context: TraceContext { trace_id, span_id, is_sampled, state: None },
        parent,
        name: name.into(),
        kind: SpanKind::Internal,
        start: end.saturating_sub(u64::try_from(took.as_nanos()).unwrap_or_default()),
        end,
        attributes,
        events: Vec::new(),
        links: Vec::new(),
        error,
    }
}

/// Returns the kind of the failure of a step: the reason of the condition, or else the outcome.
fn failure(step: &StepRecord) -> Option<Cow<'static, str>> {
    let reason = step.event.as_ref().filter(|event| event.warning).map(|event| Cow::from(event.reason.clone()));
    match step.outcome {
        StepOutcome::Failed | StepOutcome::Retry | StepOutcome::Defect => {
            Some(reason.unwrap_or(Cow::from(step.outcome.as_str())))
        }
        // That of every step that moves once too often, whether it failed or not.
        StepOutcome::Oscillating => reason,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::{Router, body::Bytes, extract::State, routing::post};
    use machine::{
        Driver, Registry, SystemClock,
        example::{Lamp, OneLamp, PowerSupply, Switch, TABLE},
    };
    use meta::PhasedObject as _;
    use telemetry::otlp::{Span, decode_traces, status, text_attribute};
    use tokio::net::TcpListener;

    use super::*;

    type KeptSpans = Arc<Mutex<Vec<Span>>>;

    async fn keep(State(kept): State<KeptSpans>, body: Bytes) {
        let request = decode_traces("application/x-protobuf", &body).unwrap();
        let scopes = request.resource_spans.into_iter().flat_map(|process| process.scope_spans);
        kept.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
    }

    /// Starts a collector, and what sends spans to it.
    async fn collector() -> (KeptSpans, Tracing) {
        // Fails only if another test has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (kept, listener) = (KeptSpans::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().route("/v1/traces", post(keep)).with_state(kept.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let lookup = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.clone()),
            "OTEL_EXPORTER_OTLP_COMPRESSION" => Some("none".to_owned()),
            _ => None,
        };
        let config = TelemetryConfig::read(&lookup).unwrap();
        (kept, start_tracing(&config, "one", "recif-system", SpanCounters::default()).unwrap())
    }

    /// Lets a lamp with this bulb take four steps, before the last of which the power goes.
    async fn drive(watts: u32, sink: Arc<dyn Sink>) {
        let lamp = Lamp::new("desk", watts);
        let (key, power) = (lamp.key(), Arc::new(PowerSupply::default()));
        power.set(true);
        let registry = Registry::new(TABLE, vec![Arc::new(Switch)], |_, power: &PowerSupply| power.is_on().into());
        let (objects, clock) = (Arc::new(OneLamp::new(lamp)), Arc::new(SystemClock::default()));
        let driver = Driver::new(registry.unwrap(), power.clone(), objects, clock, vec![sink]);
        for _ in 0..3 {
            driver.reconcile(&key).await;
        }
        power.set(false);
        driver.reconcile(&key).await;
    }

    /// Returns the spans of the steps of such a lamp.
    async fn spans_of_a_lamp(watts: u32) -> Vec<Span> {
        let (kept, tracing) = collector().await;
        drive(watts, Arc::new(StepSpanSink(tracing.clone()))).await;
        tracing.shutdown().await;
        std::mem::take(&mut *kept.lock().unwrap())
    }

    #[derive(Default)]
    struct KeptSteps(Mutex<Vec<StepRecord>>);

    impl Sink for KeptSteps {
        fn record(&self, step: &StepRecord) {
            self.0.lock().unwrap().push(step.clone());
        }
    }

    #[tokio::test]
    async fn the_steps_of_a_convergence_are_one_trace() {
        let spans = spans_of_a_lamp(40).await;
        let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["Admit Pending", "switch Pending → Lit", "switch Lit → Pending"]);
        assert_eq!((&spans[1].trace_id, &spans[1].parent_span_id), (&spans[0].trace_id, &spans[0].span_id));
        assert!(spans[2].trace_id != spans[0].trace_id, "the lamp was lit: another convergence begins");
        assert!(spans[0].parent_span_id.is_empty() && spans[2].parent_span_id.is_empty());
        for (name, expected) in [
            ("recif.kind", "Lamp"),
            ("recif.name", "desk"),
            ("recif.action", "switch"),
            ("recif.from", "Pending"),
            ("recif.to", "Lit"),
        ] {
            assert_eq!(text_attribute(&spans[1].attributes, name), Some(expected), "{name}");
        }
        assert!(spans.iter().all(|span| span.start_time_unix_nano <= span.end_time_unix_nano));
    }

    #[tokio::test]
    async fn a_failure_is_told_by_its_reason_alone() {
        let spans = spans_of_a_lamp(101).await;
        let failed = &spans[1];
        assert_eq!(failed.name, "switch Pending → Broken");
        assert_eq!(text_attribute(&failed.attributes, "error.type"), Some("BurntOut"));
        assert_eq!(failed.status.as_ref().unwrap().code(), status::StatusCode::Error);
        assert!(!format!("{failed:?}").contains("at most 100"), "{failed:?}");
    }

    #[tokio::test]
    async fn of_steps_that_come_too_often_those_are_failures_that_failed() {
        let sink = Arc::new(KeptSteps::default());
        drive(101, sink.clone()).await;
        let mut steps = std::mem::take(&mut *sink.0.lock().unwrap());
        steps.retain(|step| !step.entries.is_empty());
        for step in &mut steps {
            step.outcome = StepOutcome::Oscillating;
        }
        let failures: Vec<_> = steps.iter().map(failure).collect();
        assert_eq!(failures, [None, Some(Cow::from("BurntOut"))]);
    }
}
