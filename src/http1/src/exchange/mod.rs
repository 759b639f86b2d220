//! Exchange: moves one request and its response between two connections.
//!
//! The bytes of one read are written in one write, in the same poll: a relay spends its time in the kernel, so it makes
//! as few system calls as possible. Reads go into one buffer per thread, which no task holds across an await. Only
//! bytes that the other side does not accept at once are kept, and then reading stops. So a silent stream holds no
//! buffer, and a slow reader slows down the sender instead of filling the memory (backpressure).
//!
//! The connections may be anything that can be polled; the sockets belong to the caller.

mod request;
mod response;
mod state;
#[cfg(test)]
mod tests;

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use state::ResponseState;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep},
};

use super::{
    BodyScanner, Framing, InvalidMessage, RequestHead, ResponseHead, Version,
    connection::{Connection, Scratch, with_scratch},
    timer::poll_due,
};

/// Decisions of the relay about a response.
pub trait ResponsePolicy {
    /// Writes the head that the client gets. `close` says that this connection ends with the response, which the head
    /// must announce to an HTTP/1.1 client.
    fn response(&mut self, head: &ResponseHead<'_>, close: bool, out: &mut Vec<u8>);

    /// Reports whether this final response means that nothing was done, so that another server may be tried. Called
    /// only while the request can be replayed; a declined response is not forwarded.
    fn declines(&mut self, _head: &ResponseHead<'_>) -> bool {
        false
    }

    /// Gets each trailer of the response, after all have arrived. Returns whether it is forwarded to a client that accepts
    /// trailers.
    fn trailer(&mut self, _name: &[u8], _value: &[u8]) -> bool {
        true
    }

    /// Counts bytes of the request's body, its framing included, as they are taken from the client. They come again if the
    /// request is replayed.
    fn request_body(&mut self, _bytes: usize) {}

    /// Counts bytes of the response's body, its framing included, as they are given to the client.
    fn response_body(&mut self, _bytes: usize) {}
}

/// Facts about a request that the exchange needs after its head was written.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeRequest {
    /// Framing of the body.
    pub framing: Framing,
    /// Set if the client's connection may be kept.
    pub keeps_alive: bool,
    /// Set if the method is HEAD.
    pub is_head: bool,
    /// Set if the request asks for an upgrade to another protocol.
    pub upgrades: bool,
    /// Set if it has a body that the server may leave unread, because its method usually has none.
    pub may_leave_body: bool,
    /// Set if the client accepts trailers.
    pub takes_trailers: bool,
    /// HTTP version of the client: HTTP/1.0 has no chunked transfer coding.
    pub version: Version,
}

impl From<&RequestHead<'_>> for ExchangeRequest {
    fn from(head: &RequestHead<'_>) -> Self {
        Self {
            framing: head.framing,
            keeps_alive: head.keeps_alive,
            is_head: head.is_head(),
            upgrades: head.upgrades,
            may_leave_body: head.may_leave_body(),
            takes_trailers: head.takes_trailers(),
            version: head.version,
        }
    }
}

/// Timeouts of an exchange.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Longest wait for the first byte of the response, from the end of the request.
    pub first_byte: Duration,
    /// Longest silence in both directions, before the end of the request and after the first byte of the response.
    pub idle: Duration,
}

/// Outcome of an exchange.
#[derive(Debug)]
pub enum ExchangeOutcome {
    /// The response was delivered.
    Done {
        /// Set if the client's connection may be reused.
        client: bool,
        /// Set if the upstream connection may be reused.
        upstream: bool,
    },
    /// The connections were upgraded to another protocol: a tunnel follows.
    Upgraded,
    /// The client left, or sent an invalid body.
    ClientGone(Option<InvalidMessage>),
    /// The upstream closed without a final response, and nothing final was sent to the client, which can still get a
    /// response.
    NoResponse {
        /// Set if not a byte of a response arrived.
        unanswered: bool,
        /// Set if no byte of the request was sent.
        unsent: bool,
        /// Set if the request can be replayed: the consumed part of its body is back in `client.incoming`.
        replayable: bool,
    },
    /// The response was declined ([`ResponsePolicy::declines`]), and the request can be replayed to another server: the
    /// consumed part of its body is back in `client.incoming`.
    Declined {
        /// Set if the connection that carried the declined response may be reused.
        upstream: bool,
    },
    /// The response is invalid, and nothing of it was forwarded.
    InvalidResponse(InvalidMessage),
    /// No first byte arrived in time, and nothing was sent to the client.
    Timeout,
    /// The client has a part of the response, and must see that it is truncated: its connection must be aborted.
    Truncated,
}

/// Exchange in progress.
#[derive(Debug)]
pub struct Exchange<'a, C, U, P> {
    client: &'a mut Connection<C>,
    upstream: &'a mut Connection<U>,
    policy: P,
    request: ExchangeRequest,
    request_body: BodyScanner,
    response: ResponseState,
    /// Set once a byte of the request was sent.
    sent: bool,
    /// Consumed part of the request body, while the request can be replayed.
    replay_body: Option<Vec<u8>>,
    /// Most bytes of it that are held.
    replay_limit: usize,
    upstream_broken: bool,
    /// Time at which the request was complete, taken at the first idle moment after that.
    request_done_at: Option<Instant>,
    /// Time since which nothing could be done; `None` while there is progress.
    idle_since: Option<Instant>,
    timeouts: Timeouts,
}

impl<'a, C, U, P> Exchange<'a, C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: ResponsePolicy,
{
    /// Creates an exchange whose request head is in `upstream.outgoing`, and whose body follows in `client`.
    pub fn new(
        client: &'a mut Connection<C>,
        upstream: &'a mut Connection<U>,
        request: ExchangeRequest,
        patience: Timeouts,
        policy: P,
    ) -> Self {
        Self {
            client,
            upstream,
            policy,
            request_body: BodyScanner::new(request.framing),
            request,
            response: ResponseState::Head { scanned: 0, interim: false },
            sent: false,
            replay_body: Some(Vec::new()),
            replay_limit: 0,
            upstream_broken: false,
            request_done_at: None,
            idle_since: None,
            timeouts: patience,
        }
    }

    /// Buffers up to this many bytes of the request body until the response begins, so that the request can be
    /// replayed. Without this it can be replayed only while nothing of its body was consumed.
    pub fn with_replay_limit(mut self, bytes: usize) -> Self {
        self.replay_limit = bytes;
        self
    }

    /// Runs the exchange to its end. `timer` belongs to the connection, and may still be armed for an earlier use.
    // Not an async function, whose future would store this exchange twice: as argument and as local.
    pub fn run(mut self, mut timer: Pin<&mut Sleep>) -> impl Future<Output = ExchangeOutcome> {
        poll_fn(move |cx| {
            if let Poll::Ready(end) = with_scratch(|scratch| self.poll(cx, scratch)) {
                return Poll::Ready(end);
            }
            // The clock is read only if nothing else can be done: most responses need one look at it.
            let active = *self.idle_since.get_or_insert_with(Instant::now);
            let due = match self.response {
                ResponseState::Head { .. } if self.request_body.has_ended() => {
                    *self.request_done_at.get_or_insert(active) + self.timeouts.first_byte
                }
                _ => active + self.timeouts.idle,
            };
            ready!(poll_due(timer.as_mut(), due, cx));
            Poll::Ready(match self.response {
                ResponseState::Head { .. } => ExchangeOutcome::Timeout,
                ResponseState::Body { .. } => ExchangeOutcome::Truncated,
            })
        })
    }

    fn poll(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<ExchangeOutcome> {
        let mut moved = false;
        let mut client_is_silent = false;
        loop {
            // The more likely side first: the response, once the request was sent.
            let answer_first = self.request_sent();
            let mut answered = Poll::Pending;
            if answer_first {
                answered = self.poll_response(cx, scratch);
                if let Poll::Ready(Err(end)) = answered {
                    return Poll::Ready(end);
                }
            }
            // A silent client wakes this task when it sends again.
            let mut asked = Poll::Pending;
            if !(answer_first && client_is_silent) {
                asked = self.poll_request(cx, &mut scratch.bytes);
                if let Poll::Ready(Err(end)) = asked {
                    return Poll::Ready(end);
                }
                client_is_silent = answer_first && asked.is_pending();
            }
            if !answer_first {
                answered = self.poll_response(cx, scratch);
                if let Poll::Ready(Err(end)) = answered {
                    return Poll::Ready(end);
                }
            }
            if asked.is_pending() && answered.is_pending() {
                break;
            }
            moved = true;
        }
        if moved {
            self.idle_since = None;
        }
        Poll::Pending
    }
}
