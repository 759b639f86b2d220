//! Record of one request, for its line of audit and its span. It is filled in by shared references while the request is served, and
//! queued without waiting when it ends.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http1::{RequestHead, ResponseHead};
use telemetry::semconv::{EVENT_FIRST_BYTE, EVENT_QUEUED, EVENT_SENT_AGAIN};
use tokio::time::Instant;

use super::{
    audit::AuditLog,
    auth::RequestCaller,
    local_response::LocalResponse,
    traces::{RequestSpan, RequestTraces, TracedRequest},
    usage::ReportedUsage,
    workload::WorkloadState,
};

/// Response header with the id of the trace.
const RUN_HEADER: &str = "x-recif-run";
/// Value of [`RequestRecord::first_byte`] before the response begins.
const NEVER: u64 = u64::MAX;

/// Record of one request to a workload.
#[derive(Debug)]
pub(super) struct RequestRecord {
    pub(super) workload: Arc<WorkloadState>,
    pub(super) method: &'static str,
    pub(super) client: IpAddr,
    pub(super) arrived: Instant,
    /// Time that the request took; zero until it has ended.
    pub(super) took: Duration,
    /// Caller, once it is known.
    pub(super) caller: OnceLock<RequestCaller>,
    /// Id of the trace: the one with which the request goes on, or the one that the Pod began.
    pub(super) trace: OnceLock<[u8; 16]>,
    /// Span, if the request is traced.
    pub(super) span: Option<Box<RequestSpan>>,
    /// Reason of the refusal by the gateway.
    pub(super) reason: OnceLock<&'static str>,
    /// Address of the Pod that responded.
    pub(super) pod: OnceLock<SocketAddr>,
    /// Reported usage of models.
    pub(super) usage: OnceLock<Box<ReportedUsage>>,
    /// Status code; 0 without a response.
    code: AtomicU16,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// Time until the head of the response, in milliseconds.
    first_byte: AtomicU64,
    /// Time spent in the queue, in milliseconds.
    queued: AtomicU64,
    /// Number of times that the request was sent again.
    retries: AtomicU64,
    /// Set once the client has the whole response.
    complete: AtomicBool,
}

impl RequestRecord {
    /// Creates the record of a request that has just arrived.
    fn new(workload: Arc<WorkloadState>, method: &[u8], arrived: Instant, client: IpAddr) -> Self {
        Self {
            workload,
            method: known_method(method),
            client,
            arrived,
            took: Duration::ZERO,
            caller: OnceLock::new(),
            trace: OnceLock::new(),
            span: None,
            reason: OnceLock::new(),
            pod: OnceLock::new(),
            usage: OnceLock::new(),
            code: AtomicU16::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            first_byte: AtomicU64::new(NEVER),
            queued: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            complete: AtomicBool::new(false),
        }
    }

    /// Reports whether the gateway refused the request, or the request ended before it was authorized.
    pub(super) fn is_refused(&self) -> bool {
        self.reason.get().is_some() || self.caller.get().is_none()
    }

    /// Returns the verdict of the gateway.
    pub(super) fn verdict(&self) -> &'static str {
        match self.caller.get() {
            _ if self.reason.get().is_some() && matches!(self.code.load(Relaxed), 401 | 403) => "denied",
            Some(caller) if !self.is_refused() && caller.is_anonymous() => "anonymous",
            Some(_) if !self.is_refused() => "allowed",
            _ => "refused",
        }
    }

    /// Returns the status code; `None` without a response.
    pub(super) fn code(&self) -> Option<u16> {
        Some(self.code.load(Relaxed)).filter(|code| *code > 0)
    }

    /// Returns how many bytes of the request's body and of the response's body were relayed.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.bytes_in.load(Relaxed), self.bytes_out.load(Relaxed))
    }

    /// Returns the milliseconds until the head of the response; `None` if no Pod responded.
    pub(super) fn first_byte(&self) -> Option<u64> {
        Some(self.first_byte.load(Relaxed)).filter(|millis| *millis != NEVER)
    }

    /// Returns the milliseconds for which the request was queued.
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Relaxed)
    }

    /// Returns how often the request was sent again.
    pub(super) fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }

    /// Reports whether the response was cut off.
    pub(super) fn aborted(&self) -> bool {
        !self.complete.load(Relaxed)
    }

    fn event(&self, name: &'static str, at: Instant) {
        if let Some(span) = &self.span {
            span.event(name, at);
        }
    }
}

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

    /// Notes the reported usage.
    pub(crate) fn used(&self, usage: &ReportedUsage) {
        if let Some(record) = &self.record {
            record.usage.get_or_init(|| Box::new(usage.clone()));
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

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER - 1)
}

/// Name of a method that HTTP does not define.
pub(super) const OTHER_METHOD: &str = "other";

/// Returns the name of a method of HTTP, or [`OTHER_METHOD`]: a client can send any text.
fn known_method(method: &[u8]) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|known| known.as_bytes() == method).unwrap_or(OTHER_METHOD)
}
