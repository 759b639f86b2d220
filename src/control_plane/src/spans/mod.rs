//! Spans of traces: received from the Pods of workloads, gateway and operator by [OTLP](https://opentelemetry.io/docs/specs/otlp/) over
//! HTTP, and kept for a while, so that `recif trace --run` needs no collector.
//!
//! A span counts for the workload whose Pod sent it, whatever it says of itself; one of gateway or operator for the object that it
//! names. Only what can hold nothing that was said is kept of it: see [`document`].

mod args;
mod document;
mod keeper;
mod message_count;
mod metrics;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub(crate) use args::SpansArgs;
pub(crate) use document::SpanDocument;
pub(crate) use keeper::keeper;
pub(crate) use metrics::SpanMetrics;
pub(crate) use receiver::SpanReceiver;
pub(crate) use sender::SpanSenders;
