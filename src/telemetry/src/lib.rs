//! Traces: what became of one request in every process that it met.
//!
//! A [`TraceContext`] travels with the request ([W3C Trace Context](https://www.w3.org/TR/trace-context/)). Each process records
//! a [`FinishedSpan`] for what it did and gives it to [`Tracing`], which sends spans in batches to the collector that the
//! [standard environment](https://opentelemetry.io/docs/specs/otel/protocol/exporter/) names. Recording never waits: when the
//! collector is slow or away, spans are dropped and counted.
//!
//! Without a collector nothing is recorded, and a context is only passed on.

mod config;
mod context;
mod exporter;
pub mod otlp;
mod platform;
mod pods;
mod recorder;
mod sampler;
pub mod semconv;
mod span;
mod span_counters;
#[cfg(test)]
mod tests;

pub use config::{ExportProtocol, TelemetryConfig, TelemetryError};
pub use context::{TRACEPARENT, TRACESTATE, TraceContext};
pub use pods::pod_variables;
pub use recorder::Tracing;
pub use sampler::Sampler;
pub use span::{AttributeValue, FinishedSpan, SpanEvent, SpanKind, SpanLink, unix_nanos};
pub use span_counters::SpanCounters;
