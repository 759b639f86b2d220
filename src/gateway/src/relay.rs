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

use http1::{End, Exchange, Patience, Policy, Request, ResponseHead, Side, tunnel};
use tokio::time::Sleep;

use super::{
    answer::Answer,
    forward,
    object::Kind,
    peer::Link,
    pod::{Pod, Reported},
    routes::Route,
    sessions::{self, Tag},
    state::Shared,
    turn::{self, NoTurn, TIMEOUT},
    workload::Workload,
};
use crate::request::{Call, Outcome};

/// Most bytes of a request's body that are kept until its answer begins.
const HELD: usize = 64 * 1024;
/// Retries after connections that could not be made.
const RETRIES: u32 = 2;
/// Longest silence of a stream. Sidecars end it after 300 s by themselves, and say so.
const IDLE: Duration = Duration::from_secs(310);

/// Sends a request to a Pod of its workload and the answer to the client.
pub(super) async fn relay<S: Link>(
    client: &mut Side<S>,
    call: &Call<'_>,
    mut route: Arc<Route>,
    mut timer: Pin<&mut Sleep>,
) -> Outcome {
    let Call { head, shared, .. } = call;
    let _under_way = shared.metrics.begins(route.workload.kind, call.arrived);
    if let Some(why) = route.object.left_out(call.path.rest) {
        return Outcome::Refused(Answer::new(503, "unavailable", why.to_owned()));
    }
    route.workload.budget.earn();
    let mut failures = 0;
    // Pods that did not take it, and whether one of them has no room but for another session.
    let mut tried: Vec<Tag> = Vec::new();
    let mut elsewhere = false;
    loop {
        let other = elsewhere.then(|| route.workload.take_other(&route.pods, &tried)).flatten();
        let lease = match (&call.session, other) {
            (Some(session), _) => turn::held(&route, session).map_err(NoTurn::Refused),
            (None, Some(lease)) => Ok(lease),
            (None, None) => turn::turn(client, call.path.key, &mut route, call.arrived, shared).await,
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(NoTurn::Refused(answer)) => return Outcome::Refused(answer),
            Err(NoTurn::ClientGone) => return Outcome::Aborted,
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
            forward::forward(call, &route.workload, &mut upstream.outgoing);
            let policy = Answers {
                call,
                pod: &lease.pod,
                workload: &route.workload,
                sidecar: route.object.sidecar,
                others,
                sessionless: &sessionless,
                misdirected: &misdirected,
            };
            let first_byte = route.object.timeout.unwrap_or(TIMEOUT);
            let patience = Patience { first_byte, idle: IDLE };
            let exchange = Exchange::new(client, upstream, Request::from(*head), patience, policy).holding(HELD);
            let end = exchange.run(timer.as_mut()).await;
            match &end {
                End::Done { upstream: true, .. } | End::Declined { upstream: true } => {
                    kept.take().into_iter().for_each(|side| lease.pod.keep(side));
                }
                // A Pod may close an idle connection at the moment in which it is used again.
                End::NoAnswer { unanswered: true, unsent, replayable: true }
                    if was_reused && (*unsent || head.is_safe()) =>
                {
                    shared.metrics.retried("stale");
                    kept = None;
                    continue;
                }
                End::Upgraded => {
                    return match tunnel(client, upstream, IDLE, timer.as_mut()).await {
                        Ok(()) => Outcome::Served { again: false },
                        Err(_) => Outcome::Aborted,
                    };
                }
                _ => {}
            }
            break Ok(end);
        };
        match end {
            Ok(End::Declined { .. }) if misdirected.load(Relaxed) => {
                doubt(&lease.pod, &route.workload, shared);
                lease.unreachable(shared.clock.now());
                shared.metrics.retried("misdirected");
                if call.session.is_some() {
                    return Outcome::Refused(sessions::gone());
                }
            }
            Ok(End::Declined { .. }) if sessionless.load(Relaxed) => {
                // It has room for anything else.
                elsewhere = true;
                shared.metrics.retried("over-capacity");
            }
            Ok(End::Declined { .. }) => {
                lease.refused(shared.clock.now());
                shared.metrics.retried("over-capacity");
            }
            Err(Unreachable) => {
                doubt(&lease.pod, &route.workload, shared);
                lease.unreachable(shared.clock.now());
                failures += 1;
                if failures > RETRIES || !route.workload.budget.spend() {
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
fn doubt(pod: &Pod, workload: &Workload, shared: &Shared) {
    if pod.is_early.load(Relaxed) {
        shared.routes.not_early(workload, &pod.tag);
    }
}

fn outcome(end: End, workload: &Workload) -> Outcome {
    match end {
        End::Done { client, .. } => Outcome::Served { again: client },
        End::NoAnswer { .. } | End::Declined { .. } => {
            refused(502, "upstream", "the workload closed the connection without an answer")
        }
        End::BadAnswer(bad) => {
            let (kind, namespace, name) = (workload.kind.name(), &workload.namespace, &workload.name);
            tracing::warn!(kind, %namespace, %name, "the workload's answer is refused: {bad}");
            refused(502, "upstream", "the workload's answer is not valid HTTP")
        }
        End::Late => refused(504, "timeout", "the workload did not answer in time"),
        End::ClientGone(Some(bad)) => Outcome::Refused(Answer::bad(bad)),
        End::ClientGone(None) | End::Cut | End::Upgraded => Outcome::Aborted,
    }
}

fn refused(status: u16, reason: &'static str, error: &'static str) -> Outcome {
    Outcome::Refused(Answer::new(status, reason, error))
}

/// What is done with an answer's head.
struct Answers<'a> {
    call: &'a Call<'a>,
    pod: &'a Pod,
    workload: &'a Arc<Workload>,
    /// Whether what answers is one: a workload's own word for a refusal would make others do its work.
    sidecar: bool,
    /// Whether a Pod is left that was not asked yet for room for another session.
    others: bool,
    /// Whether that is what this one says.
    sessionless: &'a AtomicBool,
    /// Whether it is not of this workload at all.
    misdirected: &'a AtomicBool,
}

impl Policy for Answers<'_> {
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
                doubt(self.pod, self.workload, self.call.shared);
                true
            }
            Some(b"no-session") if self.workload.kind == Kind::McpServer && self.others => {
                self.sessionless.store(true, Relaxed);
                true
            }
            _ => false,
        }
    }

    fn response(&mut self, head: &ResponseHead<'_>, close: bool, out: &mut Vec<u8>) {
        let Call { shared, arrived, .. } = self.call;
        if !head.is_interim() {
            let load = head.fields.values(head.bytes, "x-recif-load").next().filter(|_| self.sidecar);
            let load = load.and_then(Reported::read);
            self.pod.answered(load, shared.clock.now());
            // It may have room for those who wait.
            self.workload.dispatch();
            shared.metrics.answered(self.workload.kind, head.status, arrived.elapsed());
            if self.sidecar && head.status == 502 && reason(head) == Some(b"connect") {
                doubt(self.pod, self.workload, shared);
            }
            if head.status < 500 {
                self.workload.invoked();
            } else if self.declines(head) {
                self.workload.refuse();
            }
        }
        let pod = Some(&self.pod.tag).filter(|_| self.workload.kind == Kind::McpServer);
        forward::answer(head, self.call.head.version, close || shared.leaving(), pod, out);
    }
}

fn reason<'a>(head: &ResponseHead<'a>) -> Option<&'a [u8]> {
    head.fields.values(head.bytes, "x-recif-reason").next()
}
