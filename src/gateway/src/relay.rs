//! One request, taken to a Pod and back.
//!
//! A Pod that has no room says so before it does anything, so another one is asked at once, with any method, for as long as
//! the request can be sent again. A Pod that cannot be reached has done nothing either, but costs time: that is tried again
//! twice at most, within a budget. Anything else that may have reached the workload is never repeated.
//!
//! A Pod of an MCP server may have room for requests and none for another session: another Pod is asked for one, once, and when none
//! has room, the client is told what the last one said.
//!
//! An address may belong to another workload's Pod before the slices say so. Its sidecar answers 421, misdirected: it is left
//! alone like one that cannot be reached, and costs no budget.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http1::{Connection, Exchange, ExchangeOutcome, ExchangeRequest, ResponseHead, ResponsePolicy, Timeouts, tunnel};
use tokio::time::Sleep;

use super::{
    admission::{self, DEFAULT_TIMEOUT, SlotError},
    forward,
    local_response::LocalResponse,
    object::RoutedKind,
    peer::ClientStream,
    pod::{LoadHeader, UpstreamPod},
    routes::Route,
    sessions::{self, PodTag},
    state::GatewayContext,
    workload::WorkloadState,
};
use crate::request::{RelayOutcome, RequestContext};

/// Most bytes of a request's body that are kept until its answer begins.
const MAX_REPLAY_BODY: usize = 64 * 1024;
/// Retries after connections that could not be made.
const MAX_RETRIES: u32 = 2;
/// Longest silence of a stream. Sidecars end it after 300 s by themselves, and say so.
const IDLE_TIMEOUT: Duration = Duration::from_secs(310);

/// Sends a request to a Pod of its workload and the answer to the client.
pub(super) async fn relay<S: ClientStream>(
    client: &mut Connection<S>,
    call: &RequestContext<'_>,
    mut route: Arc<Route>,
    mut timer: Pin<&mut Sleep>,
) -> RelayOutcome {
    let RequestContext { head, shared, .. } = call;
    let _under_way = shared.metrics.begin_request(route.workload.kind, call.arrived);
    if let Some(why) = route.object.left_out(call.path.rest) {
        return RelayOutcome::Refused(LocalResponse::new(503, "unavailable", why.to_owned()));
    }
    route.workload.budget.deposit();
    let mut failures = 0;
    // Pods that did not take it, and whether one of them has no room but for another session.
    let mut tried: Vec<PodTag> = Vec::new();
    let mut elsewhere = false;
    loop {
        let other = elsewhere.then(|| route.workload.acquire_other(&route.pods, &tried)).flatten();
        let lease = match (&call.session, other) {
            (Some(session), _) => admission::session_slot(&route, session).map_err(SlotError::Refused),
            (None, Some(lease)) => Ok(lease),
            (None, None) => admission::acquire_slot(client, call.path.key, &mut route, call.arrived, shared).await,
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(SlotError::Refused(answer)) => return RelayOutcome::Refused(answer),
            Err(SlotError::ClientGone) => return RelayOutcome::Aborted,
        };
        let tag = lease.pod.tag;
        // What one says again is its last word.
        let others = !tried.contains(&tag) && route.pods.iter().any(|pod| pod.tag != tag && !tried.contains(&pod.tag));
        let (sessionless, misdirected) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut kept = lease.pod.reuse();
        let end = loop {
            let was_reused = kept.is_some();
            let upstream = match &mut kept {
                Some(side) => side,
                None => match lease.pod.connect().await {
                    Ok(side) => kept.insert(side),
                    Err(_) => break Err(Unreachable),
                },
            };
            forward::write_request_head(call, &route.workload, &mut upstream.outgoing);
            let policy = RelayPolicy {
                call,
                pod: &lease.pod,
                workload: &route.workload,
                sidecar: route.object.sidecar,
                has_other_pod: others,
                no_session_room: &sessionless,
                misdirected: &misdirected,
            };
            let first_byte = route.object.timeout.unwrap_or(DEFAULT_TIMEOUT);
            let patience = Timeouts { first_byte, idle: IDLE_TIMEOUT };
            let exchange = Exchange::new(client, upstream, ExchangeRequest::from(*head), patience, policy)
                .with_replay_limit(MAX_REPLAY_BODY);
            let end = exchange.run(timer.as_mut()).await;
            match &end {
                ExchangeOutcome::Done { upstream: true, .. } | ExchangeOutcome::Declined { upstream: true } => {
                    kept.take().into_iter().for_each(|side| lease.pod.keep(side));
                }
                // A Pod may close an idle connection at the moment in which it is used again.
                ExchangeOutcome::NoResponse { unanswered: true, unsent, replayable: true }
                    if was_reused && (*unsent || head.is_safe()) =>
                {
                    shared.metrics.retried("stale");
                    kept = None;
                    continue;
                }
                ExchangeOutcome::Upgraded => {
                    return match tunnel(client, upstream, IDLE_TIMEOUT, timer.as_mut()).await {
                        Ok(()) => RelayOutcome::Served { again: false },
                        Err(_) => RelayOutcome::Aborted,
                    };
                }
                _ => {}
            }
            break Ok(end);
        };
        match end {
            Ok(ExchangeOutcome::Declined { .. }) if misdirected.load(Relaxed) => {
                distrust_self_report(&lease.pod, &route.workload, shared);
                lease.unreachable(shared.clock.now());
                shared.metrics.retried("misdirected");
                if call.session.is_some() {
                    return RelayOutcome::Refused(sessions::session_gone());
                }
            }
            Ok(ExchangeOutcome::Declined { .. }) if sessionless.load(Relaxed) => {
                // It has room for anything else.
                elsewhere = true;
                shared.metrics.retried("over-capacity");
            }
            Ok(ExchangeOutcome::Declined { .. }) => {
                lease.refused(shared.clock.now());
                shared.metrics.retried("over-capacity");
            }
            Err(Unreachable) => {
                distrust_self_report(&lease.pod, &route.workload, shared);
                lease.unreachable(shared.clock.now());
                failures += 1;
                if failures > MAX_RETRIES || !route.workload.budget.withdraw() {
                    return refused(502, "connect", "no Pod of the workload accepts connections");
                }
                shared.metrics.retried("connect");
            }
            Ok(end) => return outcome(end, &route.workload),
        }
        if !tried.contains(&tag) {
            tried.push(tag);
        }
        // The Pods may be others by now.
        route = shared.routes.find(call.path.key).unwrap_or(route);
    }
}

/// No connection could be made.
struct Unreachable;

/// A Pod that was taken for ready by its own word alone has not served.
fn distrust_self_report(pod: &UpstreamPod, workload: &WorkloadState, shared: &GatewayContext) {
    if pod.is_self_reported.load(Relaxed) {
        shared.routes.unmark_self_reported(workload, &pod.tag);
    }
}

fn outcome(end: ExchangeOutcome, workload: &WorkloadState) -> RelayOutcome {
    match end {
        ExchangeOutcome::Done { client, .. } => RelayOutcome::Served { again: client },
        ExchangeOutcome::NoResponse { .. } | ExchangeOutcome::Declined { .. } => {
            refused(502, "upstream", "the workload closed the connection without an answer")
        }
        ExchangeOutcome::InvalidResponse(bad) => {
            let (kind, namespace, name) = (workload.kind.name(), &workload.namespace, &workload.name);
            tracing::warn!(kind, %namespace, %name, "the workload's answer is refused: {bad}");
            refused(502, "upstream", "the workload's answer is not valid HTTP")
        }
        ExchangeOutcome::Timeout => refused(504, "timeout", "the workload did not answer in time"),
        ExchangeOutcome::ClientGone(Some(bad)) => RelayOutcome::Refused(LocalResponse::invalid_message(bad)),
        ExchangeOutcome::ClientGone(None) | ExchangeOutcome::Truncated | ExchangeOutcome::Upgraded => {
            RelayOutcome::Aborted
        }
    }
}

fn refused(status: u16, reason: &'static str, error: &'static str) -> RelayOutcome {
    RelayOutcome::Refused(LocalResponse::new(status, reason, error))
}

/// What is done with an answer's head.
struct RelayPolicy<'a> {
    call: &'a RequestContext<'a>,
    pod: &'a UpstreamPod,
    workload: &'a Arc<WorkloadState>,
    /// Whether what answers is one: a workload's own word for a refusal would make others do its work.
    sidecar: bool,
    /// Whether a Pod is left that was not asked yet for room for another session.
    has_other_pod: bool,
    /// Whether that is what this one says.
    no_session_room: &'a AtomicBool,
    /// Whether it is not of this workload at all.
    misdirected: &'a AtomicBool,
}

impl ResponsePolicy for RelayPolicy<'_> {
    fn declines(&mut self, head: &ResponseHead<'_>) -> bool {
        if self.sidecar && head.status == 421 && reason(head) == Some(b"misdirected") {
            self.misdirected.store(true, Relaxed);
            return true;
        }
        if self.call.session.is_some() || !self.sidecar || head.status != 503 {
            return false;
        }
        // The sidecar's words for "nothing was done", and the bridge's, which it passes on.
        match reason(head) {
            Some(b"over-capacity") => true,
            Some(b"draining") => {
                distrust_self_report(self.pod, self.workload, self.call.shared);
                true
            }
            Some(b"no-session") if self.workload.kind == RoutedKind::McpServer && self.has_other_pod => {
                self.no_session_room.store(true, Relaxed);
                true
            }
            _ => false,
        }
    }

    fn response(&mut self, head: &ResponseHead<'_>, close: bool, out: &mut Vec<u8>) {
        let RequestContext { shared, arrived, .. } = self.call;
        if !head.is_interim() {
            let load = head.fields.values(head.bytes, "x-recif-load").next().filter(|_| self.sidecar);
            let load = load.and_then(LoadHeader::read);
            self.pod.answered(load, shared.clock.now());
            // It may have room for those who wait.
            self.workload.dispatch();
            shared.metrics.answered(self.workload.kind, head.status, arrived.elapsed());
            if self.sidecar && head.status == 502 && reason(head) == Some(b"connect") {
                distrust_self_report(self.pod, self.workload, shared);
            }
            if head.status < 500 {
                self.workload.record_invocation();
            } else if self.declines(head) {
                self.workload.count_refused();
            }
        }
        let pod = Some(&self.pod.tag).filter(|_| self.workload.kind == RoutedKind::McpServer);
        forward::write_response_head(head, self.call.head.version, close || shared.leaving(), pod, out);
    }
}

fn reason<'a>(head: &ResponseHead<'a>) -> Option<&'a [u8]> {
    head.fields.values(head.bytes, "x-recif-reason").next()
}
