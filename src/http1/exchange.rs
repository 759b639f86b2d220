//! One request and its answer, moved between two connections.
//!
//! What one read brought goes out in one write, in the same poll: a relay spends its time in the kernel, so it makes as few
//! calls as it can. Bytes are read into one buffer per thread, which nobody holds while waiting; only what the other side
//! does not take at once is kept, and then reading stops. So a stream that is silent holds no buffer, and a slow reader slows
//! the sender instead of filling the memory.
//!
//! The connections are any that can be polled; the sockets are the caller's.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep},
};

use super::{
    Bad, Body, Fields, Framing, Progress, RequestHead, ResponseHead, Version, head_length,
    side::{Read, Side, with_scratch},
};

/// Most bytes of later requests that are taken in while one is answered.
const PIPELINED: usize = 16 * 1024;

/// What the relay asks about an answer.
pub trait Policy {
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
pub struct Request {
    /// How long its body is.
    pub framing: Framing,
    /// Whether the client's connection may stay.
    pub keeps_alive: bool,
    /// Whether it was HEAD.
    pub is_head: bool,
    /// Whether it asked for another protocol.
    pub upgrades: bool,
    /// The client's version: HTTP/1.0 knows no chunks.
    pub version: Version,
}

impl From<&RequestHead<'_>> for Request {
    fn from(head: &RequestHead<'_>) -> Self {
        Self {
            framing: head.framing,
            keeps_alive: head.keeps_alive,
            is_head: head.is_head(),
            upgrades: head.upgrades,
            version: head.version,
        }
    }
}

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the first byte of the answer, from the beginning of the exchange.
    pub first_byte: Duration,
    /// For any byte in either direction afterwards.
    pub idle: Duration,
}

/// How an exchange ended.
#[derive(Debug)]
pub enum End {
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
    ClientGone(Option<Bad>),
    /// Nothing was told to the client yet: it can be answered. `unanswered` says that not a byte of an answer came.
    NoAnswer {
        /// Not a byte of an answer came.
        unanswered: bool,
        /// No byte of the request had left.
        unsent: bool,
        /// The request can be sent again: what was taken of its body is in `client.incoming` again.
        replayable: bool,
    },
    /// The answer was declined ([`Policy::declines`]), and the request can be sent to somebody else: what was taken of its
    /// body is in `client.incoming` again.
    Declined {
        /// Whether the connection on which it was declined may serve again.
        upstream: bool,
    },
    /// The answer is not fit to be passed on, and nothing of it was.
    BadAnswer(Bad),
    /// No first byte in time; nothing was told to the client.
    Late,
    /// The client has a part of the answer and must see that it is not whole: its connection is to be aborted.
    Cut,
}

/// One exchange under way.
#[derive(Debug)]
pub struct Exchange<'a, C, U, P> {
    client: &'a mut Side<C>,
    upstream: &'a mut Side<U>,
    policy: P,
    request: Request,
    request_body: Body,
    answer: Answer,
    fields: Fields,
    /// Whether a byte of the request has left.
    sent: bool,
    /// What was taken of the request's body, for as long as it can be sent again.
    held: Option<Vec<u8>>,
    /// The most bytes of it that are held.
    holds: usize,
    upstream_broken: bool,
    started: Instant,
    active: Instant,
    patience: Patience,
}

#[derive(Debug)]
enum Answer {
    /// No complete final head yet; so many bytes were searched for its end. Interim ones may have been passed on, after
    /// which the client can still be told anything, but nobody else may be asked.
    Head {
        scanned: usize,
        interim: bool,
    },
    Body {
        body: Body,
        dechunk: bool,
        keep: Keep,
    },
}

#[derive(Debug, Clone, Copy)]
struct Keep {
    client: bool,
    upstream: bool,
}

impl<'a, C, U, P> Exchange<'a, C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: Policy,
{
    /// An exchange whose request head is in `upstream.outgoing`, and whose body follows in `client`.
    pub fn new(
        client: &'a mut Side<C>,
        upstream: &'a mut Side<U>,
        request: Request,
        patience: Patience,
        policy: P,
    ) -> Self {
        let now = Instant::now();
        Self {
            client,
            upstream,
            policy,
            request_body: Body::new(request.framing),
            request,
            answer: Answer::Head { scanned: 0, interim: false },
            fields: Fields::default(),
            sent: false,
            held: Some(Vec::new()),
            holds: 0,
            upstream_broken: false,
            started: now,
            active: now,
            patience,
        }
    }

    /// Holds up to so many bytes of the request's body until the answer begins, so that the request can be sent again. Without
    /// this it can for as long as nothing of its body was taken.
    pub fn holding(mut self, bytes: usize) -> Self {
        self.holds = bytes;
        self
    }

    /// Runs it to its end. `timer` is the connection's, armed for whatever it was used for before.
    pub async fn run(mut self, mut timer: Pin<&mut Sleep>) -> End {
        poll_fn(|cx| {
            if let Poll::Ready(end) = with_scratch(|scratch| self.poll(cx, scratch)) {
                return Poll::Ready(end);
            }
            loop {
                let due = match self.answer {
                    Answer::Head { .. } => self.started + self.patience.first_byte,
                    Answer::Body { .. } => self.active + self.patience.idle,
                };
                if timer.deadline() > due || timer.is_elapsed() {
                    timer.as_mut().reset(due);
                }
                ready!(timer.as_mut().poll(cx));
                if due <= Instant::now() {
                    return Poll::Ready(match self.answer {
                        Answer::Head { .. } => End::Late,
                        Answer::Body { .. } => End::Cut,
                    });
                }
            }
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<End> {
        loop {
            let to_upstream = self.poll_request(cx, scratch);
            let to_client = match &to_upstream {
                Poll::Ready(Err(_)) => Poll::Pending,
                _ => self.poll_answer(cx, scratch),
            };
            match (to_upstream, to_client) {
                (Poll::Ready(Err(end)), _) | (_, Poll::Ready(Err(end))) => return Poll::Ready(end),
                (Poll::Pending, Poll::Pending) => return Poll::Pending,
                _ => self.active = Instant::now(),
            }
        }
    }

    /// Moves a part of the request.
    fn poll_request(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<Result<(), End>> {
        let had = self.upstream.outgoing.len();
        if had > 0 && !self.upstream_broken {
            match self.upstream.poll_flush(cx) {
                Poll::Ready(Ok(())) => self.sent = true,
                Poll::Ready(Err(_)) => self.break_upstream(),
                Poll::Pending => {
                    self.sent |= self.upstream.outgoing.len() < had;
                    // An answer may come before the request is through.
                    return Poll::Pending;
                }
            }
        }
        if self.request_body.has_ended() {
            return self.poll_next_request(cx, scratch);
        }
        let (bytes, from_buffer) = if self.client.incoming.is_empty() {
            match ready!(self.client.poll_read(cx, scratch)) {
                Ok(Read::Bytes(length)) => (&scratch[..length], false),
                Ok(Read::End) | Err(_) => return Poll::Ready(Err(End::ClientGone(None))),
            }
        } else {
            let length = self.client.incoming.len().min(scratch.len());
            scratch[..length].copy_from_slice(&self.client.incoming[..length]);
            (&scratch[..length], true)
        };
        let progress = match self.request_body.advance(bytes) {
            Ok(progress) => progress,
            Err((_, bad)) => return Poll::Ready(Err(End::ClientGone(Some(bad)))),
        };
        if let Some(held) = &mut self.held {
            match held.len() + progress.taken <= self.holds {
                true => held.extend_from_slice(&bytes[..progress.taken]),
                false => self.held = None,
            }
        }
        if from_buffer {
            self.client.incoming.drain(..progress.taken);
            if self.client.incoming.is_empty() {
                self.client.incoming = Vec::new();
            }
        } else {
            self.client.incoming.extend_from_slice(&bytes[progress.taken..]);
        }
        if !self.upstream_broken && self.upstream.poll_send(cx, &bytes[..progress.taken]).is_err() {
            self.break_upstream();
        }
        Poll::Ready(Ok(()))
    }

    /// Whoever is answered is listened to: one that leaves needs no answer any more.
    fn poll_next_request(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<Result<(), End>> {
        if self.client.incoming.len() >= PIPELINED {
            return Poll::Pending;
        }
        match ready!(self.client.poll_read(cx, &mut scratch[..PIPELINED])) {
            Ok(Read::Bytes(length)) => {
                self.client.incoming.extend_from_slice(&scratch[..length]);
                Poll::Ready(Ok(()))
            }
            Ok(Read::End) | Err(_) => Poll::Ready(Err(End::ClientGone(None))),
        }
    }

    /// What cannot be sent any more is not needed: the answer may still come.
    fn break_upstream(&mut self) {
        self.upstream_broken = true;
        self.upstream.outgoing = Vec::new();
    }

    /// Moves a part of the answer.
    fn poll_answer(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<Result<(), End>> {
        if !self.client.outgoing.is_empty() && ready!(self.client.poll_flush(cx)).is_err() {
            return Poll::Ready(Err(End::ClientGone(None)));
        }
        if let Answer::Body { body, keep, .. } = &self.answer
            && body.has_ended()
        {
            return Poll::Ready(Err(self.done(*keep)));
        }
        let earlier = std::mem::take(&mut self.upstream.incoming);
        if earlier.is_empty() || self.was_searched(&earlier) {
            let length = match self.upstream.poll_read(cx, scratch) {
                Poll::Ready(Ok(Read::Bytes(length))) => length,
                other => {
                    self.upstream.incoming = earlier;
                    return match other {
                        Poll::Pending => Poll::Pending,
                        Poll::Ready(Ok(Read::End)) => Poll::Ready(Err(self.upstream_ended())),
                        Poll::Ready(_) => Poll::Ready(Err(self.upstream_failed())),
                    };
                }
            };
            if earlier.is_empty() {
                return Poll::Ready(self.take(cx, &scratch[..length]));
            }
            return Poll::Ready(self.take(cx, &[&earlier, &scratch[..length]].concat()));
        }
        Poll::Ready(self.take(cx, &earlier))
    }

    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        match self.answer {
            Answer::Head { .. } => self.take_head(cx, bytes),
            Answer::Body { .. } => self.take_body(cx, bytes),
        }
    }

    /// Whether these bytes hold no complete head, as an earlier search found.
    fn was_searched(&self, bytes: &[u8]) -> bool {
        matches!(self.answer, Answer::Head { scanned, .. } if scanned == bytes.len())
    }

    /// Reads as many heads as there are: interim ones, and the final one with what follows it.
    fn take_head(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        let Answer::Head { scanned, .. } = &mut self.answer else { return Ok(()) };
        let length = match head_length(bytes, scanned) {
            Ok(Some(length)) => length,
            Ok(None) => {
                self.upstream.incoming.extend_from_slice(bytes);
                return Ok(());
            }
            Err(bad) => return Err(End::BadAnswer(bad)),
        };
        let head =
            ResponseHead::read(&bytes[..length], &mut self.fields, self.request.is_head).map_err(End::BadAnswer)?;
        if head.status == 101 && !self.request.upgrades {
            return Err(End::BadAnswer(Bad::Status));
        }
        let rest = &bytes[length..];
        if head.is_interim() {
            // HTTP/1.0 knows none.
            if self.request.version == Version::Http11 {
                self.policy.response(&head, false, &mut self.client.outgoing);
            }
            self.answer = Answer::Head { scanned: 0, interim: true };
            self.upstream.incoming = rest.to_vec();
            return Ok(());
        }
        if self.held.is_some() && self.policy.declines(&head) {
            let whole = Body::new(head.framing).advance(rest) == Ok(Progress { taken: rest.len(), ended: true });
            let untouched = self.request_body.has_ended() && self.upstream.outgoing.is_empty() && !self.upstream_broken;
            let upstream = head.keeps_alive && whole && untouched;
            self.put_back();
            return Err(End::Declined { upstream });
        }
        self.held = None;
        let dechunk = head.framing == Framing::Chunked && self.request.version == Version::Http10;
        let ends_with_connection = dechunk || head.framing == Framing::Close;
        let keep = Keep {
            client: self.request.keeps_alive && self.request_body.has_ended() && !ends_with_connection,
            upstream: head.keeps_alive,
        };
        self.policy.response(&head, !keep.client, &mut self.client.outgoing);
        let upgraded = head.status == 101;
        self.answer = Answer::Body { body: Body::new(head.framing), dechunk, keep };
        if upgraded {
            self.client.outgoing.extend_from_slice(rest);
            return Err(End::Upgraded);
        }
        self.take_body(cx, rest)
    }

    fn take_body(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), End> {
        let Answer::Body { body, dechunk, keep } = &mut self.answer else { return Ok(()) };
        let mut data = Vec::new();
        let progress = match *dechunk {
            true => body.advance_with(bytes, |part| data.extend_from_slice(part)),
            false => body.advance(bytes),
        };
        let taken = match progress {
            Ok(progress) => progress.taken,
            Err((taken, _)) => taken,
        };
        // Bytes after the end of an answer belong to nobody: that connection cannot be trusted.
        keep.upstream &= taken == bytes.len();
        let part = if *dechunk { &data } else { &bytes[..taken] };
        let sent = if self.client.outgoing.is_empty() {
            self.client.poll_send(cx, part)
        } else {
            // The head goes out together with what came with it.
            self.client.outgoing.extend_from_slice(part);
            match self.client.poll_flush(cx) {
                Poll::Ready(result) => result,
                Poll::Pending => Ok(()),
            }
        };
        match (sent, progress) {
            (Err(_), _) => Err(End::ClientGone(None)),
            (_, Err(_)) => Err(End::Cut),
            _ => Ok(()),
        }
    }

    fn upstream_ended(&mut self) -> End {
        match &self.answer {
            Answer::Body { body, keep, .. } if body.ends_with_connection() => {
                self.done(Keep { client: keep.client, upstream: false })
            }
            _ => self.upstream_failed(),
        }
    }

    fn upstream_failed(&mut self) -> End {
        match self.answer {
            Answer::Head { interim, .. } => {
                let unanswered = !interim && self.upstream.incoming.is_empty();
                End::NoAnswer { unanswered, unsent: !self.sent, replayable: self.put_back() }
            }
            Answer::Body { .. } => End::Cut,
        }
    }

    /// Makes the request's body as it was before it was sent, if that is possible.
    fn put_back(&mut self) -> bool {
        let Some(mut held) = self.held.take() else { return false };
        held.append(&mut self.client.incoming);
        self.client.incoming = held;
        true
    }

    fn done(&self, keep: Keep) -> End {
        let whole = self.request_body.has_ended();
        let untouched = self.upstream.incoming.is_empty() && self.upstream.outgoing.is_empty() && !self.upstream_broken;
        End::Done { client: keep.client && whole, upstream: keep.upstream && whole && untouched }
    }
}
