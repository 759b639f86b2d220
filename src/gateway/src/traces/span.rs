//! Span of a request that is being served.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use telemetry::{TraceContext, semconv::EVENT_FIRST_BYTE, unix_nanos};
use tokio::time::Instant;

use super::{ForwardedTrace, TracedRequest, context::random_span_id};

/// Longest path in a span, in bytes.
const MAX_PATH: usize = 256;
/// Most events of a span. The last place is kept for the response: a request that finds no room is queued and sent again for as long
/// as its client waits.
const MAX_EVENTS: usize = 16;

/// Span of a request that is being served.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    /// Span of the sender, whose trace is continued.
    pub(super) parent: Option<[u8; 8]>,
    /// Context that was sent and is not continued.
    pub(super) link: Option<TraceContext>,
    /// Time at which the request arrived, in nanoseconds since 1970.
    pub(super) start: u64,
    /// Beginning of the path, without query.
    pub(super) path: Box<[u8]>,
    pub(super) scheme: &'static str,
    pub(super) events: Mutex<Vec<(&'static str, Instant)>>,
}

impl RequestSpan {
    /// Begins the span of a request in this trace.
    pub(super) fn begin(
        request: &TracedRequest<'_>,
        trace_id: [u8; 16],
        parent: Option<[u8; 8]>,
        link: Option<TraceContext>,
    ) -> Self {
        let TracedRequest { head, peer, arrived, .. } = request;
        let path = head.target.split(|byte| *byte == b'?').next().unwrap_or_default();
        Self {
            trace_id,
            span_id: random_span_id(),
            parent,
            link,
            start: unix_nanos().saturating_sub(nanos(arrived.elapsed())),
            path: path[..path.len().min(MAX_PATH)].into(),
            scheme: peer.proto,
            events: Mutex::default(),
        }
    }

    /// Notes an event, unless there are too many.
    pub(crate) fn event(&self, name: &'static str, at: Instant) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let most = if name == EVENT_FIRST_BYTE { MAX_EVENTS } else { MAX_EVENTS - 1 };
        if events.len() < most {
            events.push((name, at));
        }
    }

    /// Returns the id of the trace as text.
    pub(crate) fn run(&self) -> String {
        hex::encode(self.trace_id)
    }

    /// Returns the context with which a Pod gets the request: that of this span.
    pub(super) fn forwarded(&self) -> ForwardedTrace {
        match self.parent {
            Some(_) => ForwardedTrace::continued(self.trace_id, self.span_id, true),
            None => ForwardedTrace::begun(self.trace_id, self.span_id, true),
        }
    }
}

/// Returns a time in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
