//! One request, taken to the workload and back.

use std::{net::IpAddr, pin::Pin, time::Instant};

use tokio::{net::TcpStream, time::Sleep};

use super::{admin::Answer, life::Stage, serve::Shared};
use crate::http1::{
    Bad, End, Exchange, HeadWriter, Patience, Policy, Request, RequestHead, ResponseHead, Side, tunnel,
};

/// What became of a request.
pub(super) enum Outcome {
    /// It was answered; another one may follow on this connection, or not.
    Served {
        /// Whether another one may follow.
        again: bool,
    },
    /// The client's connection must be aborted.
    Aborted,
    /// Nothing was answered yet: this is to be.
    Refused(Answer),
}

/// Sends a request to the workload and its answer to the client.
pub(super) async fn relay(
    client: &mut Side<TcpStream>,
    head: &RequestHead<'_>,
    peer: IpAddr,
    shared: &Shared,
    mut timer: Pin<&mut Sleep>,
) -> Outcome {
    let started = Instant::now();
    let abort = shared.life.abort();
    let outcome = tokio::select! {
        biased;
        () = abort.cancelled() => Outcome::Aborted,
        outcome = attempts(client, head, peer, shared, timer.as_mut(), started) => outcome,
    };
    shared.metrics.ended(started.elapsed());
    outcome
}

async fn attempts(
    client: &mut Side<TcpStream>,
    head: &RequestHead<'_>,
    peer: IpAddr,
    shared: &Shared,
    mut timer: Pin<&mut Sleep>,
    started: Instant,
) -> Outcome {
    let mut reused = shared.upstream.reuse();
    loop {
        let was_reused = reused.is_some();
        let mut upstream = match reused.take() {
            Some(side) => side,
            None => match shared.upstream.connect().await {
                Ok(side) => side,
                Err(_) => {
                    return Outcome::Refused(Answer::refusal(
                        502,
                        "the workload does not accept connections",
                        "connect",
                    ));
                }
            },
        };
        forward(head, peer, &mut upstream.outgoing);
        let policy = Answers { shared, head, started };
        let patience = Patience { first_byte: shared.config.timeout, idle: shared.config.idle_timeout };
        let exchange = Exchange::new(client, &mut upstream, Request::from(head), patience, policy);
        return match exchange.run(timer.as_mut()).await {
            End::Done { client, upstream: keep } => {
                if keep {
                    shared.upstream.keep(upstream);
                }
                Outcome::Served { again: client && shared.life.stage() == Stage::Serving }
            }
            End::Upgraded => match tunnel(client, &mut upstream, shared.config.idle_timeout, timer.as_mut()).await {
                Ok(()) => Outcome::Served { again: false },
                Err(_) => Outcome::Aborted,
            },
            // A server may close an idle connection at the moment in which it is used again.
            End::NoAnswer { unanswered: true, unsent, replayable: true }
                if was_reused && (unsent || head.is_safe()) =>
            {
                continue;
            }
            End::NoAnswer { .. } | End::Declined { .. } => Outcome::Refused(Answer::refusal(
                502,
                "the workload closed the connection without an answer",
                "upstream",
            )),
            End::BadAnswer(bad) => {
                tracing::warn!(workload = shared.config.workload, "the workload's answer is refused: {bad}");
                Outcome::Refused(Answer::refusal(502, "the workload's answer is not valid HTTP", "upstream"))
            }
            End::Late => Outcome::Refused(Answer::refusal(504, "the workload did not answer in time", "timeout")),
            End::ClientGone(Some(bad)) => Outcome::Refused(bad_body(bad)),
            End::ClientGone(None) | End::Cut => Outcome::Aborted,
        };
    }
}

fn bad_body(bad: Bad) -> Answer {
    Answer::refusal(bad.status(), &bad.to_string(), "bad-request")
}

/// Writes the head that the workload gets.
fn forward(head: &RequestHead<'_>, peer: IpAddr, out: &mut Vec<u8>) {
    let has = |name| head.value(name).is_some();
    let mut writer = HeadWriter::request(head, head.target, out)
        .copy(head.bytes, head.fields, |name| name.eq_ignore_ascii_case(b"x-forwarded-for"));
    let mut chain: Vec<u8> = Vec::new();
    for value in head.fields.values(head.bytes, "x-forwarded-for") {
        chain.extend_from_slice(value);
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(peer.to_canonical().to_string().as_bytes());
    writer = writer.field("X-Forwarded-For", &chain);
    if !has("x-forwarded-host") && !head.host.is_empty() {
        writer = writer.field("X-Forwarded-Host", head.host);
    }
    if !has("x-forwarded-proto") {
        writer = writer.field("X-Forwarded-Proto", "http");
    }
    if head.host.is_empty() {
        writer = writer.field("Host", "localhost");
    }
    if let Some(protocol) = head.value("upgrade").filter(|_| head.upgrades) {
        writer = writer.field("Connection", "Upgrade").field("Upgrade", protocol);
    }
    writer.end();
}

/// What the client gets of an answer's head.
struct Answers<'a> {
    shared: &'a Shared,
    head: &'a RequestHead<'a>,
    started: Instant,
}

impl Policy for Answers<'_> {
    fn response(&mut self, head: &ResponseHead<'_>, close: bool, out: &mut Vec<u8>) {
        let mut writer = HeadWriter::response(head, out)
            .copy(head.bytes, head.fields, |name| name.eq_ignore_ascii_case(b"x-recif-load"));
        if head.is_interim() {
            return writer.end();
        }
        self.shared.metrics.answered(head.status, self.started.elapsed());
        writer = writer.field("x-recif-load", self.shared.load.as_text());
        writer = match head.fields.values(head.bytes, "upgrade").next().filter(|_| head.status == 101) {
            Some(protocol) => writer.field("Connection", "Upgrade").field("Upgrade", protocol),
            None if close || self.shared.life.stage() != Stage::Serving => writer.field("Connection", "close"),
            // A client of HTTP/1.0 that asked to stay must be told that it may.
            None if self.head.version == crate::http1::Version::Http10 => writer.field("Connection", "keep-alive"),
            None => writer,
        };
        writer.end();
    }
}
