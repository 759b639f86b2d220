//! Relays one request to a Pod and its response back to the client, with retries.
//!
//! A Pod without room refuses before it does anything, so the request is sent to another Pod at once, whatever its
//! method, as long as it can be replayed. A Pod that accepts no connection has done nothing either, but the attempt
//! costs time: at most two retries follow, within the [retry budget](super::retry_budget). A request that may have
//! reached the workload in any other way is never repeated.
//!
//! A Pod of an MCP server may have room for requests but none for another session: each other Pod is asked once, and if
//! none has room, the client gets the response of the last one.
//!
//! An address may belong to another workload's Pod before the EndpointSlices say so. Its sidecar responds 421
//! (misdirected). The Pod is then ejected like one that accepts no connection, and the retry costs no budget.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use crds::pending_calls::{DECISION_HEADER, PENDING_HEADER};
use crds::usage::{COST_HEADER, ReportedUsage, SPENT_HEADER, SpentTokens, TokenDirection, USAGE_HEADER};
use http1::{Connection, Exchange, ExchangeOutcome, ExchangeRequest, ResponseHead, ResponsePolicy, Timeouts, tunnel};
use tokio::time::{Instant, Sleep};

use super::{
    admission::{self, DEFAULT_TIMEOUT, SlotError},
    forward,
    limits::{LimitTime, TakenTotals},
    local_response::LocalResponse,
    metrics::RetryReason,
    object::RoutedKind,
    peer::ClientStream,
    pod::{LoadHeader, UpstreamPod},
    routes::Route,
    sessions::{self, PodTag},
    state::GatewayContext,
    usage_reporting::ResponseReport,
    workload::WorkloadState,
};
use crate::request::{RelayOutcome, RequestContext};

/// Most bytes of a request body that are buffered for a replay until the response begins.
const MAX_REPLAY_BODY: usize = 64 * 1024;
/// Most retries after failed connection attempts.
const MAX_RETRIES: u32 = 2;
/// Longest silence of a stream. Sidecars end it after 300 s themselves, and say so to the client.
const IDLE_TIMEOUT: Duration = Duration::from_secs(310);

/// Relays a request to a Pod of its workload, and the response to the client.
pub(super) async fn relay<S: ClientStream>(
    client: &mut Connection<S>,
    call: &RequestContext<'_>,
    mut route: Arc<Route>,
    mut timer: Pin<&mut Sleep>,
) -> RelayOutcome {
    let RequestContext { head, shared, .. } = call;
    let _in_flight = route.meter.begin_request(call.arrived);
    if let Some(why) = route.object.left_out(call.path.rest) {
        return RelayOutcome::Refused(LocalResponse::new(503, "unavailable", why.to_owned()));
    }
    route.workload.budget.deposit();
    let mut failures = 0;
    // Pods that declined the request, and whether one of them had no room for another session.
    let mut tried: Vec<PodTag> = Vec::new();
    let mut elsewhere = false;
    loop {
        let other = elsewhere.then(|| route.workload.slots.acquire_other(&route.pods, &tried)).flatten();
        let lease = match (&call.session, other) {
            (Some(session), _) => admission::session_slot(&route, session).map_err(SlotError::Refused),
            (None, Some(lease)) => Ok(lease),
            (None, None) => admission::acquire_slot(client, call, &mut route).await,
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(SlotError::Refused(answer)) => return RelayOutcome::Refused(answer),
            Err(SlotError::ClientGone) => return RelayOutcome::Aborted,
        };
        let tag = lease.pod.tag;
        // A refusal for want of session room is final if this Pod was tried before or no other Pod is left.
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
            forward::write_request_head(call, &route, &lease.pod, &mut upstream.outgoing);
            let policy = RelayPolicy {
                call,
                pod: &lease.pod,
                route: &route,
                has_other_pod: others,
                no_session_room: &sessionless,
                misdirected: &misdirected,
                is_usage_known: false,
                report: ResponseReport::new(&route.workload.reporting),
                totals: TakenTotals::default(),
                cost_totals: TakenTotals::default(),
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
                // A Pod may close an idle connection at the moment of its reuse.
                ExchangeOutcome::NoResponse { unanswered: true, unsent, replayable: true }
                    if was_reused && (*unsent || head.is_safe()) =>
                {
                    retried(call, RetryReason::Stale);
                    kept = None;
                    continue;
                }
                ExchangeOutcome::Upgraded => {
                    return match tunnel(client, upstream, IDLE_TIMEOUT, timer.as_mut()).await {
                        Ok(()) => {
                            lease.served();
                            RelayOutcome::Served { again: false }
                        }
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
                retried(call, RetryReason::Misdirected);
                if call.session.is_some() {
                    return RelayOutcome::Refused(sessions::session_gone());
                }
            }
            Ok(ExchangeOutcome::Declined { .. }) if sessionless.load(Relaxed) => {
                // The Pod has room for anything but a new session.
                lease.pod.answered(None, shared.clock.now());
                elsewhere = true;
                retried(call, RetryReason::OverCapacity);
            }
            Ok(ExchangeOutcome::Declined { .. }) => {
                lease.refused(shared.clock.now());
                retried(call, RetryReason::OverCapacity);
            }
            Err(Unreachable) => {
                distrust_self_report(&lease.pod, &route.workload, shared);
                lease.unreachable(shared.clock.now());
                failures += 1;
                if failures > MAX_RETRIES || !route.workload.budget.withdraw() {
                    return refused(502, "connect", "no Pod of the workload accepts connections");
                }
                retried(call, RetryReason::Connect);
            }
            Ok(ExchangeOutcome::Done { client, .. }) => {
                lease.served();
                return RelayOutcome::Served { again: client };
            }
            Ok(end) => return outcome(end, &route.workload),
        }
        if !tried.contains(&tag) {
            tried.push(tag);
        }
        // The set of Pods may have changed.
        route = shared.routes.find(call.path.key).unwrap_or(route);
    }
}

/// No connection could be made.
struct Unreachable;

/// Counts that a request is sent again.
fn retried(call: &RequestContext<'_>, reason: RetryReason) {
    call.shared.metrics.retried(reason);
    call.record.retried();
}

/// Withdraws early readiness: a Pod that was ready only by its sidecar's report has not served.
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

/// Policy for the response: decides whether it is declined, and rewrites its head.
struct RelayPolicy<'a> {
    call: &'a RequestContext<'a>,
    pod: &'a UpstreamPod,
    route: &'a Route,
    /// Set if a Pod is left that was not asked yet for room for another session.
    has_other_pod: bool,
    /// Output: the Pod has no room for another session.
    no_session_room: &'a AtomicBool,
    /// Output: the Pod belongs to another workload.
    misdirected: &'a AtomicBool,
    /// Set once the response has reported its usage of models.
    is_usage_known: bool,
    report: ResponseReport<'a>,
    /// Sums of tokens that have the Pod's own totals.
    totals: TakenTotals,
    /// The same of their cost.
    cost_totals: TakenTotals,
}

impl RelayPolicy<'_> {
    /// Reports whether the response comes from a sidecar. The same refusal by a workload itself would make other Pods do its work.
    fn has_sidecar(&self) -> bool {
        self.route.object.sidecar
    }

    /// Takes over the cost that the Pod has counted today.
    fn take_cost(&mut self, report: &[u8]) {
        let (call, route) = (self.call, self.route);
        if let Some(cost) = &route.object.cost
            && let Some(totals) = SpentTokens::read(report)
        {
            self.report.found();
            self.pod.run.store(totals.run, Relaxed);
            let (name, now) = (cost.name(&route.workload.full_name), LimitTime::now(&call.shared.clock));
            self.cost_totals = call.shared.limits.take_totals(&cost.budgets, &name, || call.client(), &totals, now);
        }
    }

    /// Takes over the tokens that the Pod has counted today.
    fn take_totals(&mut self, report: &[u8]) {
        let (call, route) = (self.call, self.route);
        if let Some(budgets) = &route.object.budgets
            && let Some(totals) = SpentTokens::read(report)
        {
            self.report.found();
            self.pod.run.store(totals.run, Relaxed);
            let (name, now) = (&route.workload.full_name, LimitTime::now(&call.shared.clock));
            self.totals = call.shared.limits.take_totals(budgets, name, || call.client(), &totals, now);
        }
    }

    /// Counts the usage that the response reports. After a report in the header, one in the trailer is ignored.
    fn count_usage(&mut self, report: &[u8]) {
        if std::mem::replace(&mut self.is_usage_known, true) {
            return;
        }
        if let Some(usage) = ReportedUsage::read(report) {
            self.report.found();
            self.route.meter.tokens.count(&usage);
            if let Some(cost) = &self.route.object.cost {
                self.route.meter.tokens.count_cost(cost.prices.currency(), cost.cost(&usage));
            }
            self.call.record.used(&usage, self.route.object.cost.as_ref());
            self.spend(&usage);
        }
    }

    /// Counts the tokens of the response and their cost, unless the Pod's own totals have them.
    fn spend(&self, usage: &ReportedUsage) {
        let (call, route) = (self.call, self.route);
        if let Some(budgets) = &route.object.budgets {
            let tokens = usage.of(TokenDirection::Input).saturating_add(usage.of(TokenDirection::Output));
            let (name, now) = (&route.workload.full_name, LimitTime::now(&call.shared.clock));
            call.shared.limits.count_tokens(budgets, name, || call.client(), (tokens, self.totals), now);
        }
        if let Some(cost) = &route.object.cost {
            let spent = cost.cost(usage);
            let (name, now) = (cost.name(&route.workload.full_name), LimitTime::now(&call.shared.clock));
            call.shared.limits.count_tokens(&cost.budgets, &name, || call.client(), (spent, self.cost_totals), now);
        }
    }
}

impl ResponsePolicy for RelayPolicy<'_> {
    fn declines(&mut self, head: &ResponseHead<'_>) -> bool {
        if self.has_sidecar() && head.status == 421 && forward::reason(head) == Some(b"misdirected") {
            self.misdirected.store(true, Relaxed);
            return true;
        }
        if self.call.session.is_some() || !self.has_sidecar() || head.status != 503 {
            return false;
        }
        // Reasons of the sidecar that mean "nothing was done", and `no-session` of the MCP bridge, which the sidecar
        // passes on.
        match forward::reason(head) {
            Some(b"over-capacity") => true,
            Some(b"draining") => {
                distrust_self_report(self.pod, &self.route.workload, self.call.shared);
                true
            }
            Some(b"no-session") if self.route.workload.kind == RoutedKind::McpServer && self.has_other_pod => {
                self.no_session_room.store(true, Relaxed);
                true
            }
            _ => false,
        }
    }

    fn response(&mut self, head: &ResponseHead<'_>, close: bool, out: &mut Vec<u8>) {
        let RequestContext { shared, arrived, answered, record, .. } = self.call;
        if !head.is_interim() {
            answered();
            let load = head.fields.values(head.bytes, "x-recif-load").next().filter(|_| self.has_sidecar());
            let load = load.and_then(LoadHeader::read);
            self.pod.answered(load, shared.clock.now());
            // The Pod may have room for waiting requests.
            self.route.workload.slots.dispatch();
            let after = arrived.elapsed();
            shared.metrics.answered(self.route.workload.kind, &self.route.meter, head.status, after);
            record.answered(head, self.pod.address, after);
            self.report.answered(self.route.object.has_budget() && self.call.head.method == b"POST", head.status);
            let value = |name| head.fields.values(head.bytes, name).next();
            if let Some(report) = self.route.object.budgets.as_ref().and_then(|_| value(SPENT_HEADER)) {
                self.take_totals(report);
            }
            if let Some(report) = self.route.object.cost.as_ref().and_then(|_| value(COST_HEADER)) {
                self.take_cost(report);
            }
            if let Some(report) = value(USAGE_HEADER) {
                self.count_usage(report);
            }
            // An agent that reports what waits reports decisions too.
            let is_agent = self.route.workload.kind == RoutedKind::Agent;
            if let Some(report) = is_agent.then(|| value(PENDING_HEADER)).flatten() {
                self.route.workload.pending.take(report, shared.clock.unix());
                record.decided(value(DECISION_HEADER));
            }
            if self.has_sidecar() && head.status == 502 && forward::reason(head) == Some(b"connect") {
                distrust_self_report(self.pod, &self.route.workload, shared);
            }
            if head.status < 500 {
                self.route.workload.record_invocation();
                if let Some(model) = is_agent.then(|| value("x-recif-model")).flatten() {
                    self.route.workload.models.count(model, value("x-recif-model-failure"), Instant::now());
                }
            } else if self.declines(head) {
                self.route.workload.count_refused();
            }
        }
        let pod = Some(&self.pod.tag).filter(|_| self.route.workload.kind == RoutedKind::McpServer);
        forward::write_response_head(head, self.call.head, close || shared.leaving(), pod, out);
    }

    fn trailer(&mut self, name: &[u8], value: &[u8]) -> bool {
        if !forward::is_ours(name) {
            return true;
        }
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let [is_usage, is_total, is_cost, is_pending] =
            [USAGE_HEADER, SPENT_HEADER, COST_HEADER, PENDING_HEADER].map(is);
        if is_usage {
            self.count_usage(value);
        } else if is_total {
            self.take_totals(value);
        } else if is_cost {
            self.take_cost(value);
        } else if is_pending && self.route.workload.kind == RoutedKind::Agent {
            self.route.workload.pending.take(value, self.call.shared.clock.unix());
        }
        !(is_usage || is_total || is_cost || is_pending)
    }

    fn request_body(&mut self, bytes: usize) {
        self.call.record.count_in(bytes);
    }

    fn response_body(&mut self, bytes: usize) {
        self.call.record.count_out(bytes);
    }
}
