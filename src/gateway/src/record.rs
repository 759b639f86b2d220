//! Guard that fills in the record of a request by shared references while the request is served, and queues it without waiting when
//! the request ends.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use crds::{pending_calls::DecidedCalls, usage::ReportedUsage};
use http1::{RequestHead, ResponseHead};
use telemetry::semconv::{EVENT_FIRST_BYTE, EVENT_QUEUED, EVENT_SENT_AGAIN};
use tokio::time::Instant;

use super::{
    audit::AuditLog,
    auth::RequestCaller,
    limits::CostBudgets,
    local_response::{LocalResponse, RUN_HEADER},
    request_record::{RequestRecord, millis},
    traces::{RequestSpan, RequestTraces, TracedRequest},
    workload::WorkloadState,
};

/// Audit and traces, which get the record of each request.
#[derive(Debug)]
pub(super) struct RequestLog {
    /// Audit of the requests to workloads.
    pub(super) audit: AuditLog,
    /// Traces of the requests to workloads.
    pub(super) traces: RequestTraces,
}

impl RequestLog {
    /// Begins the record of a request to a workload that arrived at `arrived`, if the audit is on.
    pub(super) fn begin(
        &self,
        workload: Option<&Arc<WorkloadState>>,
        head: &RequestHead<'_>,
        arrived: Instant,
        client: impl FnOnce() -> IpAddr,
    ) -> RecordGuard<'_> {
        let workload = workload.filter(|_| self.audit.is_on());
        let record = workload.map(|workload| RequestRecord::new(workload.clone(), head.method, arrived, client()));
        RecordGuard { log: self, record: record.map(Arc::new) }
    }

    /// Waits until the lines and spans of all requests that have ended are written and sent, or until a timeout.
    pub(super) async fn flush(&self) {
        tokio::join!(self.audit.flush(), self.traces.flush());
    }
}

/// Guard of a request's record, if it has one. Dropping it ends the request and queues the record.
#[derive(Debug)]
pub(crate) struct RecordGuard<'a> {
    log: &'a RequestLog,
    /// Shared only once the request has ended.
    record: Option<Arc<RequestRecord>>,
}

impl RecordGuard<'_> {
    /// Reports whether the request has a record.
    pub(crate) fn is_on(&self) -> bool {
        self.record.is_some()
    }

    /// Begins the span of an admitted request, if its trace is recorded.
    pub(crate) fn trace(&mut self, request: &TracedRequest<'_>, client: impl FnOnce() -> IpAddr) {
        let Some(span) = self.log.traces.begin(request) else { return };
        let TracedRequest { head, caller, workload, arrived, .. } = request;
        let new = || Arc::new(RequestRecord::new(Arc::clone(workload), head.method, *arrived, client()));
        let record = self.record.get_or_insert_with(new);
        record.caller.get_or_init(|| RequestCaller::clone(caller));
        if let Some(record) = Arc::get_mut(record) {
            record.span = Some(Box::new(span));
        }
    }

    /// Returns the span, if the request is traced.
    pub(crate) fn span(&self) -> Option<&RequestSpan> {
        self.record.as_ref()?.span.as_deref()
    }

    /// Returns the id of the trace as text, if the request is traced.
    pub(crate) fn run(&self) -> Option<String> {
        self.span().map(RequestSpan::run)
    }

    /// Notes the caller. The first one that is noted stays.
    pub(crate) fn called_by(&self, caller: &RequestCaller) {
        if let Some(record) = &self.record {
            record.caller.get_or_init(|| caller.clone());
        }
    }

    /// Notes that the gateway responds itself.
    pub(crate) fn refused(&self, response: &LocalResponse) {
        if let Some(record) = &self.record {
            record.code.store(response.status, Relaxed);
            record.reason.get_or_init(|| response.reason);
            record.complete.store(true, Relaxed);
        }
    }

    /// Notes that the request was queued from `began` until now.
    pub(crate) fn queued(&self, began: Instant) {
        if let Some(record) = &self.record {
            record.queued.fetch_add(millis(began.elapsed()), Relaxed);
            record.event(EVENT_QUEUED, began);
        }
    }

    /// Notes that the request is sent to a Pod, for the first time or again, in this trace.
    pub(crate) fn sent(&self, trace: Option<[u8; 16]>) {
        if let Some(record) = &self.record {
            record.bytes_in.store(0, Relaxed);
            if let Some(trace) = trace {
                record.trace.get_or_init(|| trace);
            }
        }
    }

    /// Notes that the request is to be sent again.
    pub(crate) fn retried(&self) {
        if let Some(record) = &self.record {
            record.retries.fetch_add(1, Relaxed);
            record.event(EVENT_SENT_AGAIN, Instant::now());
        }
    }

    /// Counts bytes of the request's body.
    pub(crate) fn count_in(&self, bytes: usize) {
        if let Some(record) = &self.record {
            record.bytes_in.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Counts bytes of the response's body.
    pub(crate) fn count_out(&self, bytes: usize) {
        if let Some(record) = &self.record {
            record.bytes_out.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Notes the response of a Pod, whose head came after this time.
    pub(crate) fn answered(&self, head: &ResponseHead<'_>, pod: SocketAddr, after: Duration) {
        if let Some(record) = &self.record {
            record.code.store(head.status, Relaxed);
            record.first_byte.store(millis(after), Relaxed);
            record.pod.get_or_init(|| pod);
            if let Some(trace) = head.fields.values(head.bytes, RUN_HEADER).next().and_then(trace_id) {
                record.trace.get_or_init(|| trace);
            }
            record.event(EVENT_FIRST_BYTE, record.arrived + after);
        }
    }

    /// Notes the reported usage, and what it cost by the prices of a budget.
    pub(crate) fn used(&self, usage: &ReportedUsage, cost: Option<&CostBudgets>) {
        if let Some(record) = &self.record {
            record.usage.get_or_init(|| Box::new(usage.clone()));
            if let Some(cost) = cost {
                record.cost.get_or_init(|| Box::new(cost.amount(usage)));
            }
        }
    }

    /// Notes the calls of tools that the request decided on, as the Pod reports them.
    pub(crate) fn decided(&self, report: Option<&[u8]>) {
        if let Some(record) = &self.record
            && let Some(decided) = report.and_then(DecidedCalls::read)
        {
            record.decided.get_or_init(|| Box::new(decided));
        }
    }

    /// Notes that the client has the whole response.
    pub(crate) fn complete(&self) {
        if let Some(record) = &self.record {
            record.complete.store(true, Relaxed);
        }
    }
}

impl Drop for RecordGuard<'_> {
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        if let Some(record) = Arc::get_mut(&mut record) {
            record.took = record.arrived.elapsed();
        }
        self.log.traces.hand_over(&record);
        self.log.audit.hand_over(record);
    }
}

/// Returns the id of a trace, if the text is one: 32 lowercase hexadecimal digits.
fn trace_id(text: &[u8]) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    hex::decode_to_slice(text, &mut id).ok()?;
    (!text.iter().any(u8::is_ascii_uppercase)).then_some(id)
}
