//! Traces of requests: the context with which a Pod gets a request, and a [span](RequestSpan) of each request whose trace is recorded.
//!
//! The trace of an admitted sender, or of a trusted proxy, is continued. Below `anonymousPaths` any client could choose which traces
//! are recorded, and add to those of others: there a new trace begins, with a link to the one that was sent.
//!
//! A request whose trace is not sampled only gets its context. Of a sampled one a few numbers are kept, from which a thread makes the
//! span. Without a collector a valid context is forwarded, and no trace begins.

mod context;
mod finished_span;
mod span;
mod traced_request;

use std::{fmt, io, sync::Arc, time::Duration};

use telemetry::{Sampler, SpanCounters, TraceContext, Tracing};

pub(super) use self::{
    context::{ForwardedTrace, sent_context},
    span::RequestSpan,
    traced_request::TracedRequest,
};
use self::{
    context::{random_trace_id, unsampled_begin},
    finished_span::finished,
};
use super::{auth::RequestCaller, peer::Peer, request_record::RequestRecord, spool::Spool};

/// Most records in the queue.
const CAPACITY: usize = 1024;
/// Time for which the thread gathers a batch of records.
const GATHER: Duration = Duration::from_millis(50);

/// Traces of the requests that a process serves.
pub(super) struct RequestTraces(Option<SpanSink>);

/// Sampler, queue and exporter of the spans.
struct SpanSink {
    sampler: Sampler,
    spool: Spool<Arc<RequestRecord>>,
    tracing: Tracing,
    counters: SpanCounters,
}

impl fmt::Debug for RequestTraces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestTraces").field(&self.is_on()).finish()
    }
}

impl RequestTraces {
    /// Starts the thread that makes spans, if `tracing` is on. `counters` count the spans that are dropped.
    ///
    /// # Errors
    /// The system provides no thread.
    pub(super) fn start(tracing: Tracing, sampler: Sampler, counters: SpanCounters) -> io::Result<Self> {
        if !tracing.is_on() {
            return Ok(Self(None));
        }
        let recorder = tracing.clone();
        let spool = Spool::<Arc<RequestRecord>>::start("spans", CAPACITY, GATHER, move |records| {
            records.filter_map(|record| finished(&record)).for_each(|span| recorder.record(span));
        })?;
        Ok(Self(Some(SpanSink { sampler, spool, tracing, counters })))
    }

    /// Reports whether spans are recorded at all.
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins the span of an admitted request; `None` if its trace is not recorded.
    pub(super) fn begin(&self, request: &TracedRequest<'_>) -> Option<RequestSpan> {
        let sink = self.0.as_ref()?;
        let sent = sent_context(request.head);
        let continued = sent.as_ref().filter(|_| request.caller.continues_trace(request.peer));
        let trace_id = continued.map_or_else(random_trace_id, |parent| parent.trace_id);
        if !sink.sampler.samples(continued, &trace_id) {
            return None;
        }
        let parent = continued.map(|parent| parent.span_id);
        // A trace that is not continued becomes a link.
        let link = sent.filter(|_| parent.is_none());
        Some(RequestSpan::begin(request, trace_id, parent, link))
    }

    /// Chooses the context with which a Pod gets a request that was sent with this one, if it is valid; `continues` says whether the
    /// trace of its sender is continued.
    pub(super) fn forwarded(
        &self,
        span: Option<&RequestSpan>,
        sent: Option<&TraceContext>,
        continues: bool,
    ) -> ForwardedTrace {
        match (span, sent) {
            (Some(span), _) => span.forwarded(),
            (None, Some(sent)) if !self.is_on() || (continues && !sent.is_sampled) => ForwardedTrace::as_sent(sent),
            (None, None) if !self.is_on() => ForwardedTrace::default(),
            // The sampling decision is forwarded, so that no other process records a part of the trace.
            (None, Some(sent)) if continues => ForwardedTrace::continued(sent.trace_id, sent.span_id, false),
            (None, _) => unsampled_begin(),
        }
    }

    /// Queues the record of a request that has ended, if it is traced.
    pub(super) fn hand_over(&self, record: &Arc<RequestRecord>) {
        if record.span.is_some()
            && let Some(sink) = &self.0
            && !sink.spool.offer(record.clone())
        {
            sink.counters.dropped(1);
        }
    }

    /// Waits until the spans of all requests that have ended are sent, or until a timeout.
    pub(super) async fn flush(&self) {
        if let Some(sink) = &self.0 {
            sink.spool.flush().await;
            sink.tracing.shutdown().await;
        }
    }
}

impl RequestCaller {
    /// Reports whether the trace that came with a request of this caller is continued.
    pub(super) fn continues_trace(&self, peer: &Peer) -> bool {
        !self.is_anonymous() || peer.trusted
    }
}
