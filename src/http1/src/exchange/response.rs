//! Response direction of an exchange: interim and final heads, the body, and the outcome.

use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    Exchange, ExchangeOutcome, ResponsePolicy,
    state::{ConnectionReuse, ResponseState},
};
use crate::{
    BodyProgress, BodyScanner, Fields, Framing, InvalidMessage, ResponseHead, Version,
    connection::{ReadOutcome, Scratch},
    head_length,
};

/// Most bytes of a body that are copied behind their head.
const MAX_COPIED: usize = 4096;

impl<C, U, P> Exchange<'_, C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: ResponsePolicy,
{
    /// Forwards a part of the response.
    pub(super) fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), ExchangeOutcome>> {
        if !self.client.outgoing.is_empty() && ready!(self.client.poll_flush(cx)).is_err() {
            return Poll::Ready(Err(ExchangeOutcome::ClientGone(None)));
        }
        self.check_done()?;
        let Scratch { bytes, fields, head } = scratch;
        let length = match ready!(self.upstream.poll_read(cx, bytes)) {
            Ok(ReadOutcome::Bytes(length)) => length,
            Ok(ReadOutcome::End) => return Poll::Ready(Err(self.upstream_ended())),
            Err(_) => return Poll::Ready(Err(self.upstream_failed())),
        };
        let bytes = &bytes[..length];
        match self.response {
            ResponseState::Body { .. } => {
                head.clear();
                self.forward_body(cx, head, bytes)?;
            }
            ResponseState::Head { .. } if self.upstream.incoming.is_empty() => {
                self.handle_head(cx, bytes, fields, head)?
            }
            ResponseState::Head { .. } => {
                let mut earlier = std::mem::take(&mut self.upstream.incoming);
                earlier.extend_from_slice(bytes);
                self.handle_head(cx, &earlier, fields, head)?;
            }
        }
        self.check_done()?;
        Poll::Ready(Ok(()))
    }

    /// Returns the outcome if the client has got everything.
    fn check_done(&self) -> Result<(), ExchangeOutcome> {
        match &self.response {
            ResponseState::Body { body, keep, .. } if body.has_ended() && self.client.outgoing.is_empty() => {
                Err(self.outcome(*keep))
            }
            _ => Ok(()),
        }
    }

    /// Parses heads, and forwards them together with the bytes that arrived after the last one. `out` is scratch space.
    fn handle_head(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        fields: &mut Fields,
        out: &mut Vec<u8>,
    ) -> Result<(), ExchangeOutcome> {
        out.clear();
        match self.read_heads(bytes, fields, out) {
            Ok(rest) => self.forward_body(cx, out, rest),
            // Interim responses may precede the invalid one: they are for the client in any case.
            Err(end) => {
                self.client.outgoing.extend_from_slice(out);
                Err(end)
            }
        }
    }

    /// Writes all complete heads, interim and final, and returns the bytes after them. An incomplete head is kept.
    fn read_heads<'b>(
        &mut self,
        mut bytes: &'b [u8],
        fields: &mut Fields,
        out: &mut Vec<u8>,
    ) -> Result<&'b [u8], ExchangeOutcome> {
        while let ResponseState::Head { scanned, .. } = &mut self.response {
            let Some(length) = head_length(bytes, scanned).map_err(ExchangeOutcome::InvalidResponse)? else {
                self.upstream.incoming = bytes.to_vec();
                return Ok(&[]);
            };
            let (head, rest) = bytes.split_at(length);
            let head =
                ResponseHead::read(head, fields, self.request.is_head).map_err(ExchangeOutcome::InvalidResponse)?;
            if head.status == 101 && !(self.request.upgrades && head.opens_websocket()) {
                return Err(ExchangeOutcome::InvalidResponse(InvalidMessage::Status));
            }
            if head.is_interim() {
                // HTTP/1.0 has no interim responses.
                if self.request.version == Version::Http11 {
                    self.policy.response(&head, false, out);
                }
                self.response = ResponseState::Head { scanned: 0, interim: true };
            } else if self.replay_body.is_some() && self.policy.declines(&head) {
                let whole = BodyScanner::new(head.framing).advance(rest)
                    == Ok(BodyProgress { consumed: rest.len(), ended: true });
                let upstream = head.keeps_alive && whole && self.may_keep_upstream();
                self.restore_body();
                return Err(ExchangeOutcome::Declined { upstream });
            } else {
                self.begin_body(&head, out);
            }
            if head.status == 101 {
                out.extend_from_slice(rest);
                return Err(ExchangeOutcome::Upgraded);
            }
            bytes = rest;
        }
        Ok(bytes)
    }

    fn begin_body(&mut self, head: &ResponseHead<'_>, out: &mut Vec<u8>) {
        self.replay_body = None;
        let dechunk = head.framing == Framing::Chunked && self.request.version == Version::Http10;
        let ends_with_connection = dechunk || head.framing == Framing::Close;
        let keep = ConnectionReuse {
            client: self.request.keeps_alive
                && self.request_body.has_ended()
                && !ends_with_connection
                && !self.client.overrun,
            upstream: head.keeps_alive,
        };
        self.policy.response(head, !keep.client, out);
        self.response = ResponseState::Body { body: BodyScanner::new(head.framing), dechunk, keep };
    }

    /// Forwards a head, and those of the bytes after it that belong to the body.
    fn forward_body(&mut self, cx: &mut Context<'_>, head: &mut Vec<u8>, bytes: &[u8]) -> Result<(), ExchangeOutcome> {
        let ResponseState::Body { body, dechunk, keep } = &mut self.response else {
            return self.client.poll_send(cx, head, &[]).map_err(|_| ExchangeOutcome::ClientGone(None));
        };
        let mut data = Vec::new();
        let before = body.trailer_bytes();
        let progress = match *dechunk {
            true => body.advance_with(bytes, |part| data.extend_from_slice(part)),
            false => body.advance(bytes),
        };
        let taken = match progress {
            Ok(progress) => progress.consumed,
            Err((taken, _)) => taken,
        };
        // Bytes after the end of a response belong to no request: the connection cannot be reused.
        keep.upstream &= taken == bytes.len();
        let trailers = body.trailers_since(before, taken);
        let held = &mut self.upstream.incoming;
        let has_trailers = !trailers.is_empty() || !held.is_empty();
        if has_trailers {
            let (front, behind) = if *dechunk { (0, taken) } else { (trailers.start, trailers.end) };
            data.extend_from_slice(&bytes[..front]);
            // The buffer holds the trailers until all have arrived, and nothing else.
            held.extend_from_slice(&bytes[trailers]);
            if body.is_behind_trailers() {
                let takes = self.request.takes_trailers && !*dechunk;
                pass_trailers(&std::mem::take(held), &mut self.policy, takes, &mut data);
            }
            data.extend_from_slice(&bytes[behind..taken]);
        }
        let part = if *dechunk || has_trailers { &data } else { &bytes[..taken] };
        self.policy.response_body(part.len());
        // Copying a few bytes costs less than a vectored write.
        let sent = if !head.is_empty() && part.len() <= MAX_COPIED {
            head.extend_from_slice(part);
            self.client.poll_send(cx, head, &[])
        } else {
            self.client.poll_send(cx, head, part)
        };
        match (sent, progress) {
            (Err(_), _) => Err(ExchangeOutcome::ClientGone(None)),
            (_, Err(_)) => Err(ExchangeOutcome::Truncated),
            _ => Ok(()),
        }
    }

    fn upstream_ended(&mut self) -> ExchangeOutcome {
        match &self.response {
            ResponseState::Body { body, keep, .. } if body.ends_with_connection() => {
                self.outcome(ConnectionReuse { client: keep.client, upstream: false })
            }
            _ => self.upstream_failed(),
        }
    }

    fn upstream_failed(&mut self) -> ExchangeOutcome {
        match self.response {
            ResponseState::Head { interim, .. } => {
                let unanswered = !interim && self.upstream.incoming.is_empty();
                ExchangeOutcome::NoResponse { unanswered, unsent: !self.sent, replayable: self.restore_body() }
            }
            ResponseState::Body { .. } => ExchangeOutcome::Truncated,
        }
    }

    fn outcome(&self, keep: ConnectionReuse) -> ExchangeOutcome {
        ExchangeOutcome::Done {
            client: keep.client && self.request_body.has_ended() && !self.client.overrun,
            upstream: keep.upstream && self.may_keep_upstream(),
        }
    }
    /// Reports whether the request allows a reuse of the upstream connection: a server that leaves a body unread would
    /// take the rest for the next request.
    fn may_keep_upstream(&self) -> bool {
        self.request_sent() && !self.upstream_broken && !self.request.may_leave_body
    }
}

/// Gives complete trailers to the policy. Appends those that it forwards, if the client accepts trailers (`takes`).
fn pass_trailers(trailers: &[u8], policy: &mut impl ResponsePolicy, takes: bool, out: &mut Vec<u8>) {
    for line in trailers.split_inclusive(|byte| *byte == b'\n') {
        // The scanner refuses lines without a colon.
        let Some((name, value)) = line.iter().position(|byte| *byte == b':').map(|colon| line.split_at(colon)) else {
            continue;
        };
        if policy.trailer(name, value[1..].trim_ascii()) && takes {
            out.extend_from_slice(line);
        }
    }
}
