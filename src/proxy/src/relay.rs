//! One request, taken to the workload and back.

use std::pin::Pin;

use http1::{
    Connection, Exchange, ExchangeOutcome, ExchangeRequest, HeadWriter, RequestHead, ResponseHead, ResponsePolicy,
    Timeouts, Version, tunnel,
};
use tokio::{
    net::TcpStream,
    time::{Instant, Sleep},
};

use super::{
    callers::ForwardedUser, drain::DrainStage, load::InflightSlot, local_response::SidecarResponse, state::ProxyContext,
};

/// A request that was admitted: what is left of its head.
pub(super) struct UpstreamRequest {
    request: ExchangeRequest,
    /// Whether it may be sent twice.
    is_safe: bool,
    /// Whether the answer may be a stream that only listens.
    may_listen: bool,
    /// The head that the workload gets.
    head: Vec<u8>,
    started: Instant,
}

/// What became of a request.
pub(super) enum UpstreamOutcome {
    /// It was answered; another one may follow on this connection, or not.
    Served {
        /// Whether another one may follow.
        again: bool,
    },
    /// The client's connection must be aborted.
    Aborted,
    /// Nothing was answered yet: this is to be.
    Refused(SidecarResponse),
}

impl UpstreamRequest {
    /// The request as the workload is to get it. `peer` is the client's address, `user` who sends it.
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
        }
    }

    /// Whether the request was HEAD.
    pub(super) fn is_head(&self) -> bool {
        self.request.is_head
    }
}

/// Sends a request to the workload and its answer to the client. The slot is free when the workload's connection is kept or
/// closed.
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

/// As [`relay`]. The workload's connection is in `kept`, if there is one from an earlier request, and is left there if it may
/// serve again.
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
        // Only what was sent on a used connection may have to be sent again.
        upstream.outgoing = if was_reused { ask.head.clone() } else { std::mem::take(&mut ask.head) };
        let policy = SidecarPolicy {
            shared,
            slot,
            started: ask.started,
            may_listen: ask.may_listen,
            version: ask.request.version,
        };
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
            // A server may close an idle connection at the moment in which it is used again.
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

/// The head that the workload gets.
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
        // What only a gateway may say, its own words for the sidecar among it.
        let ours = *user != ForwardedUser::AsSent
            && name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-recif-"));
        chain || ours
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
    if let ForwardedUser::Named(user) = user {
        writer = writer.field("X-Recif-User", user.as_bytes());
    }
    writer.end_request(head);
    out
}

/// Whether a stream that answers this is one that only listens: MCP's older revisions ask for it by GET, the newer by a
/// method of their own, which a header repeats.
fn only_listens(head: &RequestHead<'_>) -> bool {
    head.method == b"GET" || head.value("mcp-method") == Some(b"subscriptions/listen")
}

/// What the bridge of an MCP server says when it has no room for another session, upon which a gateway asks another Pod.
const NO_SESSION: &[u8] = b"no-session";

/// What the client gets of an answer's head.
struct SidecarPolicy<'a> {
    shared: &'a ProxyContext,
    slot: &'a mut InflightSlot,
    started: Instant,
    may_listen: bool,
    version: Version,
}

impl ResponsePolicy for SidecarPolicy<'_> {
    fn response(&mut self, head: &ResponseHead<'_>, close: bool, out: &mut Vec<u8>) {
        let mut writer = HeadWriter::response(head, self.version, out).copy(head.bytes, head.fields, |name| {
            // A gateway takes either for the sidecar's own word.
            matches!(name, [b'x' | b'X', ..])
                && (name.eq_ignore_ascii_case(b"x-recif-load") || name.eq_ignore_ascii_case(b"x-recif-reason"))
        });
        if head.is_interim() {
            return writer.end();
        }
        if self.may_listen && is_event_stream(head) {
            self.slot.mark_listening();
        }
        self.shared.metrics.answered(head.status, self.started.elapsed());
        // The bridge's word, which is about sessions and nothing else.
        if head.status == 503 && head.fields.values(head.bytes, "x-recif-reason").any(|reason| reason == NO_SESSION) {
            writer = writer.field("x-recif-reason", NO_SESSION);
        }
        writer = writer.field("x-recif-load", self.shared.load.text());
        writer.end_response(head, self.version, close || self.shared.drain.stage() != DrainStage::Serving);
    }
}

fn is_event_stream(head: &ResponseHead<'_>) -> bool {
    let media_type = head.fields.values(head.bytes, "content-type").next();
    let media_type = media_type.and_then(|value| value.split(|byte| *byte == b';').next());
    head.status == 200 && media_type.is_some_and(|value| value.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}
