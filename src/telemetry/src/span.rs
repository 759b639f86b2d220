//! Finished span, and what it holds.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::context::TraceContext;

/// Operation of a process for one request, from its start to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedSpan {
    /// Trace, and id of the span.
    pub context: TraceContext,
    /// Span that caused it.
    pub parent: Option<[u8; 8]>,
    /// Name, of few different ones.
    pub name: Cow<'static, str>,
    /// Side of the operation.
    pub kind: SpanKind,
    /// Start, in nanoseconds since 1970.
    pub start: u64,
    /// End, in nanoseconds since 1970.
    pub end: u64,
    /// Attributes, each name once.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Events between start and end.
    pub events: Vec<SpanEvent>,
    /// Spans of other traces that it has to do with.
    pub links: Vec<SpanLink>,
    /// Kind of the failure, in a word: `None` for success.
    pub error: Option<Cow<'static, str>>,
}

/// Side of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Within a process.
    Internal,
    /// Answer to a request of another process.
    Server,
    /// Request to another process.
    Client,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// Text.
    Text(Cow<'static, str>),
    /// Texts.
    Texts(Vec<String>),
    /// Whole number.
    Int(i64),
    /// Number.
    Float(f64),
    /// Truth value.
    Bool(bool),
}

/// Moment of a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// Time, in nanoseconds since 1970.
    pub at: u64,
    /// Name.
    pub name: &'static str,
    /// Attributes.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

/// Reference to a span of another trace, or to another one of the same.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanLink {
    /// Trace and span.
    pub context: TraceContext,
}

impl FinishedSpan {
    /// Returns the bytes of the texts among its attributes, which are nearly all of a span that holds content.
    pub(crate) fn text_bytes(&self) -> usize {
        let bytes = |value: &AttributeValue| match value {
            AttributeValue::Text(text) => text.len(),
            AttributeValue::Texts(texts) => texts.iter().map(String::len).sum(),
            AttributeValue::Int(_) | AttributeValue::Float(_) | AttributeValue::Bool(_) => 0,
        };
        self.attributes.iter().map(|(_, value)| bytes(value)).sum()
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&Arc<str>> for AttributeValue {
    fn from(text: &Arc<str>) -> Self {
        Self::Text(text.to_string().into())
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u16> for AttributeValue {
    fn from(number: u16) -> Self {
        Self::Int(number.into())
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        Self::Float(number)
    }
}

impl From<bool> for AttributeValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// Returns the time now, in nanoseconds since 1970.
pub fn unix_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
