//! Stored part of a span: ids, names, times, and attributes of a list.
//!
//! It is a list of those to keep, not of those to leave out: SDKs of others have names of their own for prompts, answers, arguments and
//! headers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};
use store::{ObjectKey, SpanRow};
use telemetry::{
    otlp::{AnyValue, KeyValue, Span, any_value, span, status, text_attribute},
    semconv::{ERROR_TYPE, GEN_AI_CONVERSATION_ID},
};

/// Attributes that are kept: names, and beginnings of names that end with a dot.
const KEPT: &[&str] = &[
    "a2a.method.name",
    "a2a.task.id",
    "a2a.task.state",
    "error.type",
    "exception.type",
    "gen_ai.agent.id",
    "gen_ai.agent.name",
    "gen_ai.agent.version",
    "gen_ai.conversation.id",
    "gen_ai.data_source.id",
    "gen_ai.operation.name",
    "gen_ai.output.type",
    "gen_ai.provider.name",
    "gen_ai.request.choice.count",
    "gen_ai.request.encoding_formats",
    "gen_ai.request.frequency_penalty",
    "gen_ai.request.max_tokens",
    "gen_ai.request.model",
    "gen_ai.request.presence_penalty",
    "gen_ai.request.seed",
    "gen_ai.request.temperature",
    "gen_ai.request.top_k",
    "gen_ai.request.top_p",
    "gen_ai.response.finish_reasons",
    "gen_ai.response.id",
    "gen_ai.response.model",
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.system",
    "gen_ai.tool.call.id",
    "gen_ai.tool.name",
    "gen_ai.tool.type",
    "gen_ai.usage.",
    "http.request.method",
    "http.response.status_code",
    "http.route",
    "mcp.method.name",
    "mcp.protocol.version",
    "network.protocol.name",
    "network.protocol.version",
    "recif.",
    "server.address",
    "server.port",
];
/// Limit of a text, in characters.
const MAX_TEXT: usize = 256;
/// Limit of the items of a list, and of a span's attributes, events and links.
const MAX_ITEMS: usize = 64;

/// What a span tells, without anything that was said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SpanDocument {
    /// Its name, such as `chat MODEL`.
    pub(crate) name: String,
    /// Side of the operation: server, client, producer, consumer or internal.
    side: String,
    /// Id of the span that caused it; in a run it stands beside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// Kind of the failure, in a word; absent: it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Attributes by name, as OpenTelemetry's conventions have them.
    attributes: BTreeMap<String, Value>,
    /// What happened meanwhile.
    events: Vec<EventDocument>,
    /// Spans of other runs that it has to do with.
    links: Vec<LinkDocument>,
}

/// Moment of a span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventDocument {
    /// Its name.
    name: String,
    /// Microseconds since the start of the span.
    after_us: u64,
    /// Attributes by name.
    attributes: BTreeMap<String, Value>,
}

/// Reference to a span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct LinkDocument {
    /// Id of the trace.
    trace: String,
    /// Id of the span.
    span: String,
}

/// Returns the row of a span of this workload that came at this time, in milliseconds since 1970; `None`: its ids are none.
pub(super) fn row(span: &Span, workload: &ObjectKey, received: i64) -> Option<SpanRow> {
    let trace = id::<16>(&span.trace_id)?;
    let own = id::<8>(&span.span_id)?;
    let document = SpanDocument::of(span);
    let conversation = text_attribute(&span.attributes, GEN_AI_CONVERSATION_ID).map(cut).unwrap_or_default();
    let (started, ended) = (nanos(span.start_time_unix_nano), nanos(span.end_time_unix_nano));
    Some(SpanRow {
        trace,
        span: own,
        workload: workload.clone(),
        conversation,
        started,
        ended: ended.max(started),
        has_failed: document.error.is_some(),
        received,
        is_of_platform: false,
        // Texts and numbers can be written as JSON.
        document: serde_json::to_string(&document).unwrap_or_default(),
    })
}

impl SpanDocument {
    fn of(span: &Span) -> Self {
        let side = match span.kind() {
            span::SpanKind::Server => "server",
            span::SpanKind::Client => "client",
            span::SpanKind::Producer => "producer",
            span::SpanKind::Consumer => "consumer",
            span::SpanKind::Internal | span::SpanKind::Unspecified => "internal",
        };
        let has_failed = span.status.as_ref().is_some_and(|status| status.code() == status::StatusCode::Error);
        let kind = text_attribute(&span.attributes, ERROR_TYPE).map(cut).filter(|kind| !kind.is_empty());
        let event = |event: &span::Event| EventDocument {
            name: cut(&event.name),
            after_us: event.time_unix_nano.saturating_sub(span.start_time_unix_nano) / 1000,
            attributes: kept(&event.attributes),
        };
        let link = |link: &span::Link| {
            let (trace, span) = (id::<16>(&link.trace_id)?, id::<8>(&link.span_id)?);
            Some(LinkDocument { trace, span })
        };
        Self {
            name: cut(&span.name),
            side: side.to_owned(),
            parent: id::<8>(&span.parent_span_id),
            // A message may quote what was said.
            error: kind.or_else(|| has_failed.then(|| "error".to_owned())),
            attributes: kept(&span.attributes),
            events: span.events.iter().take(MAX_ITEMS).map(event).collect(),
            links: span.links.iter().take(MAX_ITEMS).filter_map(link).collect(),
        }
    }
}

/// Returns an id in hexadecimal digits; `None` if it has another length, or is all zero.
fn id<const N: usize>(bytes: &[u8]) -> Option<String> {
    (bytes.len() == N && bytes.iter().any(|byte| *byte != 0)).then(|| hex::encode(bytes))
}

fn nanos(time: u64) -> i64 {
    i64::try_from(time).unwrap_or(i64::MAX)
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

fn is_kept(name: &str) -> bool {
    let matches = |known: &&str| if known.ends_with('.') { name.starts_with(*known) } else { name == *known };
    name.len() <= MAX_TEXT && KEPT.iter().any(matches)
}

fn kept(attributes: &[KeyValue]) -> BTreeMap<String, Value> {
    let kept = attributes.iter().filter(|attribute| is_kept(&attribute.key));
    let kept = kept.filter_map(|attribute| Some((attribute.key.clone(), value(attribute.value.as_ref()?)?)));
    kept.take(MAX_ITEMS).collect()
}

/// Returns a text, a number, a truth value, or a list of such; `None` for others.
fn value(value: &AnyValue) -> Option<Value> {
    match value.value.as_ref()? {
        any_value::Value::ArrayValue(list) => list.values.iter().take(MAX_ITEMS).map(scalar).collect(),
        _ => scalar(value),
    }
}

fn scalar(value: &AnyValue) -> Option<Value> {
    match value.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(cut(text).into()),
        any_value::Value::BoolValue(value) => Some((*value).into()),
        any_value::Value::IntValue(number) => Some((*number).into()),
        any_value::Value::DoubleValue(number) => Number::from_f64(*number).map(Value::Number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_list_alone_are_kept() {
        for (name, expected) in [
            ("gen_ai.usage.input_tokens", true),
            ("gen_ai.request.model", true),
            ("recif.queue_ms", true),
            ("error.type", true),
            ("error.type.x", false),
            ("error.message", false),
            ("gen_ai.input.messages", false),
            ("gen_ai.output.messages", false),
            ("gen_ai.system_instructions", false),
            ("gen_ai.tool.call.arguments", false),
            ("gen_ai.tool.call.result", false),
            ("gen_ai.tool.definitions", false),
            ("gen_ai.prompt.0.content", false),
            ("input.value", false),
            ("http.request.header.authorization", false),
            ("url.full", false),
            ("url.path", false),
            ("user.id", false),
            ("mcp.session.id", false),
        ] {
            assert_eq!(is_kept(name), expected, "{name}");
        }
    }
}
