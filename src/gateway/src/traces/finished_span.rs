//! Span of a request that has ended, from its record.

use std::{borrow::Cow, sync::PoisonError};

use crds::usage::TokenDirection;
use telemetry::{
    AttributeValue, FinishedSpan, SpanEvent, SpanKind, SpanLink, TraceContext,
    semconv::{
        ERROR_TYPE, GEN_AI_USAGE_CACHE_CREATION, GEN_AI_USAGE_CACHE_READ, GEN_AI_USAGE_INPUT_TOKENS,
        GEN_AI_USAGE_OUTPUT_TOKENS, GEN_AI_USAGE_REASONING, HTTP_REQUEST_METHOD, HTTP_RESPONSE_STATUS_CODE, HTTP_ROUTE,
        K8S_NAMESPACE_NAME, RECIF_KIND, RECIF_NAME, RECIF_POD, RECIF_QUEUE_MS, RECIF_RETRIES, URL_PATH, URL_SCHEME,
        USER_ID,
    },
};
use tokio::time::Instant;

use super::span::nanos;
use crate::request_record::{OTHER_METHOD, RequestRecord};

/// Method and name of a span for a method that HTTP does not define.
const OTHER: (&str, &str) = ("_OTHER", "HTTP");
/// Kind of the error of a response that was cut off.
const CANCELLED: &str = "cancelled";

/// Returns the span of a request that has ended, if it is traced.
pub(super) fn finished(record: &RequestRecord) -> Option<FinishedSpan> {
    let span = record.span.as_deref()?;
    let (method, name) = if record.method == OTHER_METHOD { OTHER } else { (record.method, record.method) };
    let route = format!("/v1/{}/{{namespace}}/{{name}}", record.workload.kind.word());
    let name = format!("{name} {route}");
    let events = span.events.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let at = |time: Instant| span.start.saturating_add(nanos(time.saturating_duration_since(record.arrived)));
    let failure = failure(record);
    let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
        (HTTP_REQUEST_METHOD, method.into()),
        (HTTP_ROUTE, route.into()),
        (URL_PATH, String::from_utf8_lossy(&span.path).into_owned().into()),
        (URL_SCHEME, span.scheme.into()),
        (K8S_NAMESPACE_NAME, String::from(&*record.workload.namespace).into()),
        (RECIF_KIND, record.workload.kind.name().into()),
        (RECIF_NAME, String::from(&*record.workload.name).into()),
        (RECIF_QUEUE_MS, record.queued().into()),
        (RECIF_RETRIES, record.retries().into()),
    ];
    let user = record.caller.get().and_then(|caller| caller.user.as_ref());
    attributes.extend(user.map(|user| (USER_ID, AttributeValue::from(user))));
    attributes.extend(record.pod.get().map(|pod| (RECIF_POD, AttributeValue::from(pod.ip().to_string()))));
    attributes.extend(record.code().map(|code| (HTTP_RESPONSE_STATUS_CODE, AttributeValue::from(code))));
    attributes.extend(failure.clone().map(|kind| (ERROR_TYPE, AttributeValue::Text(kind))));
    if let Some(usage) = record.usage.get() {
        for (name, direction) in [
            (GEN_AI_USAGE_INPUT_TOKENS, TokenDirection::Input),
            (GEN_AI_USAGE_OUTPUT_TOKENS, TokenDirection::Output),
            (GEN_AI_USAGE_CACHE_READ, TokenDirection::CacheRead),
            (GEN_AI_USAGE_CACHE_CREATION, TokenDirection::CacheWrite),
            (GEN_AI_USAGE_REASONING, TokenDirection::Reasoning),
        ] {
            let is_whole = matches!(direction, TokenDirection::Input | TokenDirection::Output);
            let tokens = Some(usage.of(direction)).filter(|tokens| is_whole || *tokens > 0);
            attributes.extend(tokens.map(|tokens| (name, AttributeValue::from(tokens))));
        }
    }
    // By the semantic conventions a 4xx is no error of the server's span.
    let has_failed = record.aborted() || record.code().is_none_or(|code| code >= 500);
    Some(FinishedSpan {
        context: TraceContext { trace_id: span.trace_id, span_id: span.span_id, is_sampled: true, state: None },
        parent: span.parent,
        name: name.into(),
        kind: SpanKind::Server,
        start: span.start,
        end: span.start.saturating_add(nanos(record.took)),
        attributes,
        events: events
            .into_iter()
            .map(|(name, time)| SpanEvent { at: at(time), name, attributes: Vec::new() })
            .collect(),
        links: span.link.clone().map(|context| SpanLink { context }).into_iter().collect(),
        error: failure.filter(|_| has_failed),
    })
}

/// Returns the kind of the error: the reason of a refusal, the code of a 5xx, or that the response was cut off.
fn failure(record: &RequestRecord) -> Option<Cow<'static, str>> {
    match (record.reason.get(), record.code()) {
        (Some(reason), _) => Some((*reason).into()),
        (None, Some(code)) if code >= 500 => Some(code.to_string().into()),
        (None, _) => record.aborted().then(|| CANCELLED.into()),
    }
}
