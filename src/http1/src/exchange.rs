//! One request and its answer, moved between two connections.
//!
//! What one read brought goes out in one write, in the same poll: a relay spends its time in the kernel, so it makes as few
//! calls as it can. Bytes are read into one buffer per thread, which nobody holds while waiting; only what the other side
//! does not take at once is kept, and then reading stops. So a stream that is silent holds no buffer, and a slow reader slows
//! the sender instead of filling the memory.
//!
//! The connections are any that can be polled; the sockets are the caller's.

mod request;
mod response;
mod state;

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

/// What the relay asks about an answer.
pub trait ResponsePolicy {
    /// Writes the head that the client gets. `close` says that this connection ends with the answer, which the head must
    /// tell an HTTP/1.1 client.
    fn response(&mut self, head: &ResponseHead<'_>, close: bool, out: &mut Vec<u8>);

    /// Whether this final answer says that nothing was done, so that somebody else is to be asked. Only asked while the
    /// request can be sent again; then the client is told nothing of it.
    fn declines(&mut self, _head: &ResponseHead<'_>) -> bool {
        false
    }
}

/// What is known of a request once its head was sent on.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeRequest {
    /// How long its body is.
    pub framing: Framing,
    /// Whether the client's connection may stay.
    pub keeps_alive: bool,
    /// Whether it was HEAD.
    pub is_head: bool,
    /// Whether it asked for another protocol.
    pub upgrades: bool,
    /// Whether it has a body that its server may leave unread, because its method usually has none.
    pub may_leave_body: bool,
    /// The client's version: HTTP/1.0 knows no chunks.
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
            version: head.version,
        }
    }
}

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For the first byte of the answer, from when the request had come whole.
    pub first_byte: Duration,
    /// For any byte in either direction, before and afterwards.
    pub idle: Duration,
}

/// How an exchange ended.
#[derive(Debug)]
pub enum ExchangeOutcome {
    /// The answer was delivered. The flags say whether each connection may serve again.
    Done {
        /// The client's.
        client: bool,
        /// The other one.
        upstream: bool,
    },
    /// Another protocol is spoken from here on.
    Upgraded,
    /// The client left, or sent what must not be passed on.
    ClientGone(Option<InvalidMessage>),
    /// Nothing was told to the client yet: it can be answered. `unanswered` says that not a byte of an answer came.
    NoResponse {
        /// Not a byte of an answer came.
        unanswered: bool,
        /// No byte of the request had left.
        unsent: bool,
        /// The request can be sent again: what was taken of its body is in `client.incoming` again.
        replayable: bool,
    },
    /// The answer was declined ([`ResponsePolicy::declines`]), and the request can be sent to somebody else: what was taken of its
    /// body is in `client.incoming` again.
    Declined {
        /// Whether the connection on which it was declined may serve again.
        upstream: bool,
    },
    /// The answer is not fit to be passed on, and nothing of it was.
    InvalidResponse(InvalidMessage),
    /// No first byte in time; nothing was told to the client.
    Timeout,
    /// The client has a part of the answer and must see that it is not whole: its connection is to be aborted.
    Truncated,
}

/// One exchange under way.
#[derive(Debug)]
pub struct Exchange<'a, C, U, P> {
    client: &'a mut Connection<C>,
    upstream: &'a mut Connection<U>,
    policy: P,
    request: ExchangeRequest,
    request_body: BodyScanner,
    response: ResponseState,
    /// Whether a byte of the request has left.
    sent: bool,
    /// What was taken of the request's body, for as long as it can be sent again.
    replay_body: Option<Vec<u8>>,
    /// The most bytes of it that are held.
    replay_limit: usize,
    upstream_broken: bool,
    /// When the request had come whole, or as soon after that as there was nothing to do.
    request_done_at: Option<Instant>,
    /// When there was nothing to do last.
    idle_since: Option<Instant>,
    timeouts: Timeouts,
}

impl<'a, C, U, P> Exchange<'a, C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: ResponsePolicy,
{
    /// An exchange whose request head is in `upstream.outgoing`, and whose body follows in `client`.
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

    /// Holds up to so many bytes of the request's body until the answer begins, so that the request can be sent again. Without
    /// this it can for as long as nothing of its body was taken.
    pub fn with_replay_limit(mut self, bytes: usize) -> Self {
        self.replay_limit = bytes;
        self
    }

    /// Runs it to its end. `timer` is the connection's, armed for whatever it was used for before.
    // Not an async function, which would hold this exchange twice: as it came and as it is used.
    pub fn run(mut self, mut timer: Pin<&mut Sleep>) -> impl Future<Output = ExchangeOutcome> {
        poll_fn(move |cx| {
            if let Poll::Ready(end) = with_scratch(|scratch| self.poll(cx, scratch)) {
                return Poll::Ready(end);
            }
            // The clock is read only when there is nothing else to do: most answers take one look.
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
            // First what is more likely: the answer, once everything was asked.
            let answer_first = self.request_sent();
            let mut answered = Poll::Pending;
            if answer_first {
                answered = self.poll_response(cx, scratch);
                if let Poll::Ready(Err(end)) = answered {
                    return Poll::Ready(end);
                }
            }
            // Whoever said nothing wakes this when it does.
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
