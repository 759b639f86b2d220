//! Tests of what is read from the environment, and what a collector receives.

mod config;
mod export;
mod wire;

use crate::{FinishedSpan, SpanKind, TraceContext};

/// Returns a span of this name, of a trace of its own.
fn finished(name: &'static str) -> FinishedSpan {
    FinishedSpan {
        context: TraceContext::root(true),
        parent: None,
        name: name.into(),
        kind: SpanKind::Internal,
        start: 1_700_000_000_000_000_001,
        end: 1_700_000_000_000_000_009,
        attributes: Vec::new(),
        events: Vec::new(),
        links: Vec::new(),
        error: None,
    }
}
