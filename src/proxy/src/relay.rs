//! Relays one request to the workload and its response back to the client.

use std::{pin::Pin, sync::Arc};

use crds::{
    approval::APPROVER_HEADER,
    usage::{LEFT_COST_HEADER, LEFT_HEADER, PRICES_HEADER, SPENT_HEADER, USAGE_HEADER},
};
use http1::{
    Connection, Exchange, ExchangeOutcome, ExchangeRequest, HeadWriter, RequestHead, ResponseHead, ResponsePolicy,
    Timeouts, tunnel,
};
use identity::unix_now;
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep},
};

use super::{
    callers::ForwardedUser, drain::DrainStage, load::InflightSlot, local_response::SidecarResponse, state::ProxyContext,
};

/// Fields that limit only their own request, also one that came by no gateway.
const OF_BUDGETS: [&str; 3] = [LEFT_HEADER, LEFT_COST_HEADER, PRICES_HEADER];

/// Field by which a workload knows that a request came by a gateway. It passes only where the gateway's word can be verified.
const VIA: &str = "x-recif-via";

/// Admitted request, reduced to its rewritten head and the facts that the exchange needs.
pub(super) struct UpstreamRequest {
    request: ExchangeRequest,
    /// Set if the method is safe, so that the request may be sent twice.
    is_safe: bool,
    /// Set if the response may be a stream that only listens.
    may_listen: bool,
    /// Rewritten head that the workload gets.
    head: Vec<u8>,
    started: Instant,
    /// Caller whose usage of models is counted; `None` if the caller is not known, or nothing is counted.
    caller: Option<Arc<str>>,
}

/// Outcome of a relayed request.
pub(super) enum UpstreamOutcome {
    /// A response was sent.
    Served {
        /// Set if another request may follow on the client's connection.
        again: bool,
    },
    /// The client's connection must be aborted.
    Aborted,
    /// Nothing was sent to the client yet: it gets this refusal.
    Refused(SidecarResponse),
}

impl UpstreamRequest {
    /// Prepares a request for the workload. `peer` is the client's address, `user` the caller to forward.
    pub(super) fn new(
        head: &RequestHead<'_>,
        peer: &str,
        user: &ForwardedUser,
        now: Instant,
        shared: &ProxyContext,
    ) -> Self {
        Self {
            request: ExchangeRequest::from(head),
            is_safe: head.is_safe(),
            may_listen: shared.config.listen_streams && only_listens(head),
            head: upstream_head(head, peer, user),
            started: now,
            caller: if shared.usage.is_on() { user.name(head) } else { None },
        }
    }

    /// Reports whether the request was HEAD.
    pub(super) fn is_head(&self) -> bool {
        self.request.is_head
    }
}

/// Relays a request to the workload, and the response to the client. Releases the slot when the workload's connection
/// is back in the pool or closed.
pub(super) async fn relay(
    client: &mut Connection<TcpStream>,
    ask: &mut UpstreamRequest,
    slot: &mut InflightSlot,
    shared: &ProxyContext,
    timer: Pin<&mut Sleep>,
) -> UpstreamOutcome {
    let mut upstream = shared.upstream.reuse(ask.started);
    let outcome = relay_with_retry(client, ask, slot, &mut upstream, shared, timer).await;
    let now = Instant::now();
    if let Some(side) = upstream {
        shared.upstream.keep(side, now);
    }
    slot.end(now);
    shared.metrics.ended(now - ask.started);
    outcome
}

/// Performs [`relay`]. `kept` may hold a pooled connection to the workload, and holds one afterwards if it may be
/// reused.
async fn relay_with_retry(
    client: &mut Connection<TcpStream>,
    ask: &mut UpstreamRequest,
    slot: &mut InflightSlot,
    kept: &mut Option<Connection<TcpStream>>,
    shared: &ProxyContext,
    mut timer: Pin<&mut Sleep>,
) -> UpstreamOutcome {
    loop {
        let was_reused = kept.is_some();
        let upstream = match kept {
            Some(side) => side,
            None => match shared.upstream.connect().await {
                Ok(side) => kept.insert(side),
                Err(_) => {
                    return UpstreamOutcome::Refused(SidecarResponse::refusal(
                        502,
                        "the workload does not accept connections",
                        "connect",
                    ));
                }
            },
        };
        // Only a request on a reused connection may have to be sent again.
        upstream.outgoing = if was_reused { ask.head.clone() } else { std::mem::take(&mut ask.head) };
        let policy = SidecarPolicy { shared, slot, ask, is_usage_known: false };
        let patience = Timeouts { first_byte: shared.config.timeout, idle: shared.config.idle_timeout };
        let exchange = Exchange::new(client, upstream, ask.request, patience, policy);
        let end = exchange.run(timer.as_mut()).await;
        if let ExchangeOutcome::Upgraded = end {
            let end = tunnel(client, upstream, shared.config.idle_timeout, timer).await;
            *kept = None;
            return if end.is_ok() { UpstreamOutcome::Served { again: false } } else { UpstreamOutcome::Aborted };
        }
        if !matches!(end, ExchangeOutcome::Done { upstream: true, .. }) {
            *kept = None;
        }
        return match end {
            ExchangeOutcome::Done { client, .. } => {
                UpstreamOutcome::Served { again: client && shared.drain.stage() == DrainStage::Serving }
            }
            // A server may close an idle connection at the moment of its reuse.
            ExchangeOutcome::NoResponse { unanswered: true, unsent, replayable: true }
                if was_reused && (unsent || ask.is_safe) =>
            {
                continue;
            }
            ExchangeOutcome::NoResponse { .. } | ExchangeOutcome::Declined { .. } => UpstreamOutcome::Refused(
                SidecarResponse::refusal(502, "the workload closed the connection without an answer", "upstream"),
            ),
            ExchangeOutcome::InvalidResponse(bad) => {
                tracing::warn!(workload = shared.config.workload, "the workload's answer is refused: {bad}");
                UpstreamOutcome::Refused(SidecarResponse::refusal(
                    502,
                    "the workload's answer is not valid HTTP",
                    "upstream",
                ))
            }
            ExchangeOutcome::Timeout => UpstreamOutcome::Refused(SidecarResponse::refusal(
                504,
                "the workload did not answer in time",
                "timeout",
            )),
            ExchangeOutcome::ClientGone(Some(bad)) => UpstreamOutcome::Refused(SidecarResponse::bad_request(bad)),
            ExchangeOutcome::ClientGone(None) | ExchangeOutcome::Truncated | ExchangeOutcome::Upgraded => {
                UpstreamOutcome::Aborted
            }
        };
    }
}

/// Rewrites the head for the workload.
fn upstream_head(head: &RequestHead<'_>, peer: &str, user: &ForwardedUser) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut has_chain, mut has_host, mut has_protocol) = (false, false, false);
    let mut writer = HeadWriter::request(head, head.target, &mut out).copy(head.bytes, head.fields, |name| {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if !name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"x-")) {
            return false;
        }
        has_host |= is("x-forwarded-host");
        has_protocol |= is("x-forwarded-proto");
        let chain = is("x-forwarded-for");
        has_chain |= chain;
        // Fields that only a gateway may set, among them those meant for the sidecar.
        let ours = name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-recif-"));
        let passes = || match user {
            _ if is(VIA) => user.is_vouched_for(),
            // Only a signature says who may approve.
            ForwardedUser::AsSent => !is(APPROVER_HEADER),
            _ => OF_BUDGETS.into_iter().any(is),
        };
        chain || (ours && !passes())
    });
    writer = if has_chain {
        let earlier = head.fields.values(head.bytes, "x-forwarded-for").flat_map(|value| [value, b", "]);
        writer.parts("X-Forwarded-For", earlier.chain([peer.as_bytes()]))
    } else {
        writer.field("X-Forwarded-For", peer)
    };
    if !has_host && !head.host.is_empty() {
        writer = writer.field("X-Forwarded-Host", head.host);
    }
    if !has_protocol {
        writer = writer.field("X-Forwarded-Proto", "http");
    }
    if let ForwardedUser::Named { name, is_approver } = user {
        writer = writer.field("X-Recif-User", name.as_bytes());
        if *is_approver {
            writer = writer.field(APPROVER_HEADER, "true");
        }
    }
    writer.end_request(head);
    out
}

/// Reports whether an event stream in response to this request only listens: older revisions of MCP open it by GET,
/// newer ones by the method `subscriptions/listen`, which a header field repeats.
fn only_listens(head: &RequestHead<'_>) -> bool {
    head.method == b"GET" || head.value("mcp-method") == Some(b"subscriptions/listen")
}

/// Reason of an MCP server's bridge without room for another session: a gateway then tries another Pod.
const NO_SESSION: &[u8] = b"no-session";

/// Policy for the response: rewrites its head for the client.
struct SidecarPolicy<'a> {
    shared: &'a ProxyContext,
    slot: &'a mut InflightSlot,
    ask: &'a UpstreamRequest,
    /// Set once the response has reported its usage of models.
    is_usage_known: bool,
}

impl SidecarPolicy<'_> {
    /// Counts the usage that the response reports. After a report in the header, one in the trailer is ignored.
    fn count_usage(&mut self, report: &[u8]) {
        if !std::mem::replace(&mut self.is_usage_known, true) {
            let UpstreamRequest { caller, started, .. } = self.ask;
            self.shared.usage.count(caller.as_deref(), report, started.elapsed(), unix_now());
        }
    }
}

impl ResponsePolicy for SidecarPolicy<'_> {
    fn response(&mut self, head: &ResponseHead<'_>, close: bool, out: &mut Vec<u8>) {
        let UpstreamRequest { request, may_listen, started, .. } = self.ask;
        let writer = HeadWriter::response(head, request.version, out).with_trailers(request.takes_trailers);
        let mut writer = writer.copy(head.bytes, head.fields, |name| {
            // A gateway would take either field for the sidecar's own.
            matches!(name, [b'x' | b'X', ..])
                && (name.eq_ignore_ascii_case(b"x-recif-load") || name.eq_ignore_ascii_case(b"x-recif-reason"))
        });
        if head.is_interim() {
            return writer.end();
        }
        if *may_listen && is_event_stream(head) {
            self.slot.mark_listening();
        }
        self.shared.metrics.answered(head.status, started.elapsed());
        if self.shared.usage.is_on() {
            let value = |name| head.fields.values(head.bytes, name).next();
            if value(SPENT_HEADER).is_some() {
                self.shared.usage.leave_to_workload();
            } else if let Some(report) = value(USAGE_HEADER) {
                self.count_usage(report);
            }
        }
        // `no-session` comes from the MCP bridge, and only concerns sessions.
        if head.status == 503 && head.fields.values(head.bytes, "x-recif-reason").any(|reason| reason == NO_SESSION) {
            writer = writer.field("x-recif-reason", NO_SESSION);
        }
        writer = writer.field("x-recif-load", self.shared.load.text());
        writer.end_response(head, request.version, close || self.shared.drain.stage() != DrainStage::Serving);
    }

    fn trailer(&mut self, name: &[u8], value: &[u8]) -> bool {
        if self.shared.usage.is_on() {
            if name.eq_ignore_ascii_case(SPENT_HEADER.as_bytes()) {
                self.shared.usage.leave_to_workload();
            } else if name.eq_ignore_ascii_case(USAGE_HEADER.as_bytes()) {
                self.count_usage(value);
            }
        }
        true
    }
}

fn is_event_stream(head: &ResponseHead<'_>) -> bool {
    let media_type = head.fields.values(head.bytes, "content-type").next();
    let media_type = media_type.and_then(|value| value.split(|byte| *byte == b';').next());
    head.status == 200 && media_type.is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}
