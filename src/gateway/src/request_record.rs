//! Record of one request, for its line of audit and its span.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crds::{pending_calls::DecidedCalls, usage::ReportedUsage};
use tokio::time::Instant;

use super::{auth::RequestCaller, limits::RequestCost, traces::RequestSpan, workload::WorkloadState};

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
    /// Cost of that usage, if the workload has a budget of cost.
    pub(super) cost: OnceLock<Box<RequestCost>>,
    /// Calls of tools that the request decided on.
    pub(super) decided: OnceLock<Box<DecidedCalls>>,
    /// Status code; 0 without a response.
    pub(super) code: AtomicU16,
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    /// Time until the head of the response, in milliseconds.
    pub(super) first_byte: AtomicU64,
    /// Time spent in the queue, in milliseconds.
    pub(super) queued: AtomicU64,
    /// Number of times that the request was sent again.
    pub(super) retries: AtomicU64,
    /// Set once the client has the whole response.
    pub(super) complete: AtomicBool,
}

impl RequestRecord {
    /// Creates the record of a request that has just arrived.
    pub(super) fn new(workload: Arc<WorkloadState>, method: &[u8], arrived: Instant, client: IpAddr) -> Self {
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
            cost: OnceLock::new(),
            decided: OnceLock::new(),
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

    /// Notes an event, if the request is traced.
    pub(super) fn event(&self, name: &'static str, at: Instant) {
        if let Some(span) = &self.span {
            span.event(name, at);
        }
    }
}

/// Returns a time in milliseconds, which is never [`NEVER`].
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER - 1)
}

/// Name of a method that HTTP does not define.
pub(super) const OTHER_METHOD: &str = "other";

/// Returns the name of a method of HTTP, or [`OTHER_METHOD`]: a client can send any text.
fn known_method(method: &[u8]) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|known| known.as_bytes() == method).unwrap_or(OTHER_METHOD)
}
