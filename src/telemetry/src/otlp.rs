//! Encoding of spans by [OTLP](https://opentelemetry.io/docs/specs/otlp/) 1.11, over HTTP: protocol buffers or JSON.
//!
//! Who receives spans reads them by [`decode_traces`], and answers with [`encode_response`] in the same encoding.

use std::io::{self, Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
pub use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceResponse};
pub use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::common::v1::{ArrayValue, InstrumentationScope};
use opentelemetry_proto::tonic::resource::v1::Resource as ProcessResource;
use opentelemetry_proto::tonic::trace::v1::Status;
pub use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, span, status};
use prost::Message as _;

use crate::config::ExportProtocol;
use crate::semconv::SCHEMA_URL;
use crate::span::{AttributeValue, FinishedSpan, SpanEvent, SpanKind, SpanLink};

/// Name of the instrumentation.
const SCOPE: &str = "recif";

/// Reason why a request with spans cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The content type is neither.
    #[error("the content type is neither application/x-protobuf nor application/json")]
    ContentType,
    /// The body is not what the content type says.
    #[error("the body is no ExportTraceServiceRequest: {0}")]
    Body(String),
    /// The body is larger than allowed, or not in gzip.
    #[error("the body cannot be decompressed, or has more than {0} bytes")]
    Compression(u64),
}

impl ExportProtocol {
    /// Returns the content type of the encoding.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    /// Returns the encoding of a body with this content type.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        [Self::Protobuf, Self::Json].into_iter().find(|known| kind.eq_ignore_ascii_case(known.content_type()))
    }
}

/// Encodes spans of a process with these attributes.
pub fn encode_traces(protocol: ExportProtocol, resource: &[(String, String)], spans: Vec<FinishedSpan>) -> Vec<u8> {
    let attributes =
        resource.iter().map(|(name, value)| key_value(name, AttributeValue::from(value.clone()))).collect();
    let scope = InstrumentationScope {
        name: SCOPE.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    };
    let scope_spans = ScopeSpans {
        scope: Some(scope),
        spans: spans.into_iter().map(span_message).collect(),
        schema_url: SCHEMA_URL.into(),
    };
    let resource_spans = ResourceSpans {
        resource: Some(ProcessResource { attributes, ..ProcessResource::default() }),
        scope_spans: vec![scope_spans],
        schema_url: SCHEMA_URL.into(),
    };
    let request = ExportTraceServiceRequest { resource_spans: vec![resource_spans] };
    match protocol {
        ExportProtocol::Protobuf => request.encode_to_vec(),
        // No part of the message can fail to be written as JSON.
        ExportProtocol::Json => serde_json::to_vec(&request).unwrap_or_default(),
    }
}

/// Decodes a request with spans.
///
/// # Errors
/// Another content type, or another body.
pub fn decode_traces(content_type: &str, body: &[u8]) -> Result<ExportTraceServiceRequest, DecodeError> {
    match ExportProtocol::of_content_type(content_type) {
        Some(ExportProtocol::Protobuf) => {
            ExportTraceServiceRequest::decode(body).map_err(|error| DecodeError::Body(error.to_string()))
        }
        Some(ExportProtocol::Json) => {
            serde_json::from_slice(body).map_err(|error| DecodeError::Body(error.to_string()))
        }
        None => Err(DecodeError::ContentType),
    }
}

/// Encodes the answer to a request of which these spans were refused, for this reason.
pub fn encode_response(protocol: ExportProtocol, rejected: i64, reason: &str) -> Vec<u8> {
    let partial = ExportTracePartialSuccess { rejected_spans: rejected, error_message: reason.into() };
    let response = ExportTraceServiceResponse { partial_success: (rejected > 0).then_some(partial) };
    match protocol {
        ExportProtocol::Protobuf => response.encode_to_vec(),
        ExportProtocol::Json => serde_json::to_vec(&response).unwrap_or_default(),
    }
}

/// Returns how many spans the answer to a request says were refused; none if it cannot be read.
pub(crate) fn rejected_spans(content_type: &str, body: &[u8]) -> u64 {
    let response = match ExportProtocol::of_content_type(content_type) {
        Some(ExportProtocol::Protobuf) => ExportTraceServiceResponse::decode(body).ok(),
        Some(ExportProtocol::Json) => serde_json::from_slice(body).ok(),
        None => None,
    };
    let rejected = response.and_then(|response: ExportTraceServiceResponse| response.partial_success);
    rejected.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or_default())
}

/// Compresses a body.
///
/// # Errors
/// None in practice: it writes to memory.
pub fn gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

/// Decompresses a body of at most `limit` bytes.
///
/// # Errors
/// It is larger, or not in gzip.
pub fn gunzip(body: &[u8], limit: u64) -> Result<Vec<u8>, DecodeError> {
    let mut plain = Vec::new();
    let read = GzDecoder::new(body).take(limit.saturating_add(1)).read_to_end(&mut plain);
    match read {
        Ok(length) if u64::try_from(length).is_ok_and(|length| length <= limit) => Ok(plain),
        _ => Err(DecodeError::Compression(limit)),
    }
}

/// Returns the text of an attribute.
pub fn text_attribute<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn span_message(finished: FinishedSpan) -> Span {
    let FinishedSpan { context, parent, name, kind, start, end, attributes, events, links, error } = finished;
    let kind = match kind {
        SpanKind::Internal => span::SpanKind::Internal,
        SpanKind::Server => span::SpanKind::Server,
        SpanKind::Client => span::SpanKind::Client,
    };
    let status = error.map(|error| Status { message: error.into_owned(), code: status::StatusCode::Error.into() });
    Span {
        trace_id: context.trace_id.to_vec(),
        span_id: context.span_id.to_vec(),
        trace_state: context.state.as_deref().unwrap_or_default().to_owned(),
        parent_span_id: parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        flags: context.is_sampled.into(),
        name: name.into_owned(),
        kind: kind.into(),
        start_time_unix_nano: start,
        end_time_unix_nano: end.max(start),
        attributes: key_values(attributes),
        events: events.into_iter().map(event_message).collect(),
        links: links.into_iter().map(link_message).collect(),
        status: Some(status.unwrap_or_default()),
        ..Span::default()
    }
}

fn event_message(event: SpanEvent) -> span::Event {
    let SpanEvent { at, name, attributes } = event;
    span::Event { time_unix_nano: at, name: name.into(), attributes: key_values(attributes), ..span::Event::default() }
}

fn link_message(link: SpanLink) -> span::Link {
    let context = link.context;
    span::Link {
        trace_id: context.trace_id.to_vec(),
        span_id: context.span_id.to_vec(),
        trace_state: context.state.as_deref().unwrap_or_default().to_owned(),
        flags: context.is_sampled.into(),
        ..span::Link::default()
    }
}

fn key_values(attributes: Vec<(&'static str, AttributeValue)>) -> Vec<KeyValue> {
    attributes.into_iter().map(|(name, value)| key_value(name, value)).collect()
}

fn key_value(name: &str, value: AttributeValue) -> KeyValue {
    use any_value::Value;
    let text = |text: String| AnyValue { value: Some(Value::StringValue(text)) };
    let value = match value {
        AttributeValue::Text(value) => text(value.into_owned()),
        AttributeValue::Texts(values) => {
            let values = values.into_iter().map(text).collect();
            AnyValue { value: Some(Value::ArrayValue(ArrayValue { values })) }
        }
        AttributeValue::Int(number) => AnyValue { value: Some(Value::IntValue(number)) },
        AttributeValue::Float(number) => AnyValue { value: Some(Value::DoubleValue(number)) },
        AttributeValue::Bool(value) => AnyValue { value: Some(Value::BoolValue(value)) },
    };
    KeyValue { key: name.into(), value: Some(value), ..KeyValue::default() }
}
