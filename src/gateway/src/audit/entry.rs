//! What the audit knows of one request. A request fills it in while it goes on, by shared references, without a lock.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crds::usage::USAGE_HEADER;
use http1::ResponseHead;
use tokio::time::Instant;

use super::AuditLog;
use crate::{auth::RequestCaller, local_response::LocalResponse, workload::WorkloadState};

/// Longest report of usage that is read, in bytes.
const MAX_USAGE: usize = 512;
/// Value of [`AuditEntry::first_byte`] before the response begins.
const NEVER: u64 = u64::MAX;

/// Facts about one request to a workload.
#[derive(Debug)]
pub(super) struct AuditEntry {
    pub(super) workload: Arc<WorkloadState>,
    pub(super) method: &'static str,
    pub(super) client: IpAddr,
    pub(super) arrived: Instant,
    /// Time that the request took; zero until it has ended.
    pub(super) took: Duration,
    /// Caller, once it is known.
    pub(super) caller: OnceLock<RequestCaller>,
    /// Id of the trace with which the request goes on.
    pub(super) trace: OnceLock<[u8; 32]>,
    /// Reason of the refusal by the gateway.
    pub(super) reason: OnceLock<&'static str>,
    /// Address of the Pod that responded.
    pub(super) pod: OnceLock<SocketAddr>,
    /// Value of the header with the usage of models.
    pub(super) usage: OnceLock<Box<[u8]>>,
    /// Status code; 0 without a response.
    code: AtomicU16,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// Time until the head of the response, in milliseconds.
    first_byte: AtomicU64,
    /// Time spent in the queue, in milliseconds.
    queued: AtomicU64,
    /// Set once the client has the whole response.
    complete: AtomicBool,
}

impl AuditEntry {
    /// Creates the entry of a request that has just arrived.
    pub(super) fn new(workload: Arc<WorkloadState>, method: &[u8], arrived: Instant, client: IpAddr) -> Self {
        Self {
            workload,
            method: known_method(method),
            client,
            arrived,
            took: Duration::ZERO,
            caller: OnceLock::new(),
            trace: OnceLock::new(),
            reason: OnceLock::new(),
            pod: OnceLock::new(),
            usage: OnceLock::new(),
            code: AtomicU16::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            first_byte: AtomicU64::new(NEVER),
            queued: AtomicU64::new(0),
            complete: AtomicBool::new(false),
        }
    }

    /// Reports whether the gateway refused the request, or let it through to no Pod for want of a verdict.
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

    /// Returns the milliseconds until the head of the response; `None` if the gateway responded, or nothing did.
    pub(super) fn first_byte(&self) -> Option<u64> {
        Some(self.first_byte.load(Relaxed)).filter(|millis| *millis != NEVER)
    }

    /// Returns the milliseconds for which the request was queued.
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Relaxed)
    }

    /// Reports whether the response was cut off.
    pub(super) fn aborted(&self) -> bool {
        !self.complete.load(Relaxed)
    }
}

/// Guard of a request's entry, if it has one. Dropping it ends the request and writes its line.
#[derive(Debug)]
pub(crate) struct AuditGuard<'a> {
    log: &'a AuditLog,
    entry: Option<Box<AuditEntry>>,
}

impl<'a> AuditGuard<'a> {
    /// Creates the guard of an entry.
    pub(super) fn new(log: &'a AuditLog, entry: Option<Box<AuditEntry>>) -> Self {
        Self { log, entry }
    }

    /// Reports whether the request has an entry.
    pub(crate) fn is_on(&self) -> bool {
        self.entry.is_some()
    }

    /// Notes the caller. The first one that is noted stays.
    pub(crate) fn called_by(&self, caller: &RequestCaller) {
        if let Some(entry) = &self.entry {
            entry.caller.get_or_init(|| caller.clone());
        }
    }

    /// Notes that the gateway responds itself.
    pub(crate) fn refused(&self, response: &LocalResponse) {
        if let Some(entry) = &self.entry {
            entry.code.store(response.status, Relaxed);
            entry.reason.get_or_init(|| response.reason);
            entry.complete.store(true, Relaxed);
        }
    }

    /// Notes that the request was queued for this time.
    pub(crate) fn queued(&self, time: Duration) {
        if let Some(entry) = &self.entry {
            entry.queued.fetch_add(millis(time), Relaxed);
        }
    }

    /// Notes that the request is sent to a Pod, perhaps once more, with this `traceparent`.
    pub(crate) fn sent(&self, trace_parent: &[u8]) {
        if let Some(entry) = &self.entry {
            entry.bytes_in.store(0, Relaxed);
            if let Some(trace) = trace_parent.get(3..35).and_then(|trace| <[u8; 32]>::try_from(trace).ok()) {
                entry.trace.get_or_init(|| trace);
            }
        }
    }

    /// Counts bytes of the request's body.
    pub(crate) fn count_in(&self, bytes: usize) {
        if let Some(entry) = &self.entry {
            entry.bytes_in.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Counts bytes of the response's body.
    pub(crate) fn count_out(&self, bytes: usize) {
        if let Some(entry) = &self.entry {
            entry.bytes_out.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Notes the response of a Pod, whose head came after this time.
    pub(crate) fn answered(&self, head: &ResponseHead<'_>, pod: SocketAddr, after: Duration) {
        let Some(entry) = &self.entry else { return };
        entry.code.store(head.status, Relaxed);
        entry.first_byte.store(millis(after), Relaxed);
        entry.pod.get_or_init(|| pod);
        if let Some(usage) = head.fields.values(head.bytes, USAGE_HEADER).next().filter(|it| it.len() <= MAX_USAGE) {
            entry.usage.get_or_init(|| usage.into());
        }
    }

    /// Notes that the client has the whole response.
    pub(crate) fn complete(&self) {
        if let Some(entry) = &self.entry {
            entry.complete.store(true, Relaxed);
        }
    }
}

impl Drop for AuditGuard<'_> {
    fn drop(&mut self) {
        if let Some(mut entry) = self.entry.take() {
            entry.took = entry.arrived.elapsed();
            self.log.hand_over(entry);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(NEVER - 1)
}

/// Returns the name of a method, as far as it is one of HTTP: a client may make up others.
fn known_method(method: &[u8]) -> &'static str {
    const KNOWN: [&str; 9] = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|known| known.as_bytes() == method).unwrap_or("other")
}
