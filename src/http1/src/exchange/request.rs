//! The half of an exchange that goes to the workload: the request's body, and then the watch for a client that leaves.

use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Exchange, ExchangeOutcome};
use crate::connection::ReadOutcome;

/// Most bytes of later requests that are kept while one is answered.
const MAX_PIPELINED: usize = 16 * 1024;

impl<C, U, P> Exchange<'_, C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    /// Whether everything of the request has left.
    pub(super) fn request_sent(&self) -> bool {
        self.request_body.has_ended() && self.upstream.outgoing.is_empty()
    }

    /// Moves a part of the request.
    pub(super) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
    ) -> Poll<Result<(), ExchangeOutcome>> {
        // The head goes out together with what came with it.
        let head_alone = self.request_body.has_ended() || self.client.incoming.is_empty() || self.sent;
        if !self.upstream.outgoing.is_empty() && head_alone {
            let had = self.upstream.outgoing.len();
            match self.upstream.poll_flush(cx) {
                Poll::Ready(Ok(())) => self.sent = true,
                Poll::Ready(Err(_)) => self.abandon_upstream(&[])?,
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
                Ok(ReadOutcome::Bytes(length)) => (&scratch[..length], false),
                Ok(ReadOutcome::End) | Err(_) => return Poll::Ready(Err(ExchangeOutcome::ClientGone(None))),
            }
        } else {
            let length = self.client.incoming.len().min(scratch.len());
            scratch[..length].copy_from_slice(&self.client.incoming[..length]);
            (&scratch[..length], true)
        };
        let (progress, passed) = match self.request_body.advance_without_trailers(bytes) {
            Ok(advanced) => advanced,
            Err((_, bad)) => return Poll::Ready(Err(ExchangeOutcome::ClientGone(Some(bad)))),
        };
        let part = &bytes[..progress.consumed];
        if let Some(held) = &mut self.replay_body {
            match held.len() + part.len() <= self.replay_limit {
                true => held.extend_from_slice(part),
                false => self.replay_body = None,
            }
        }
        if from_buffer {
            self.client.incoming.drain(..progress.consumed);
            if self.client.incoming.is_empty() {
                self.client.incoming = Vec::new();
            }
        } else {
            self.client.incoming.extend_from_slice(&bytes[progress.consumed..]);
        }
        if !self.upstream_broken {
            let had = self.upstream.outgoing.len() + passed.len();
            match self.upstream.poll_send(cx, &[], &passed) {
                Ok(()) => self.sent |= self.upstream.outgoing.len() < had,
                Err(_) => self.abandon_upstream(part)?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whoever is answered is listened to: one that leaves needs no answer any more.
    fn poll_next_request(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<Result<(), ExchangeOutcome>> {
        match ready!(self.client.poll_read(cx, &mut scratch[..MAX_PIPELINED])) {
            Ok(ReadOutcome::Bytes(length)) => {
                // Who asks for so much before it is answered has to ask again: the connection ends with this answer.
                self.client.overrun |= self.client.incoming.len() + length > MAX_PIPELINED;
                if !self.client.overrun {
                    self.client.incoming.extend_from_slice(&scratch[..length]);
                }
                Poll::Ready(Ok(()))
            }
            Ok(ReadOutcome::End) | Err(_) => Poll::Ready(Err(ExchangeOutcome::ClientGone(None))),
        }
    }

    /// What cannot be sent any more is not needed: the answer may still come. If nothing was sent, another connection may do;
    /// `taken` is what was taken of the body for the first write.
    fn abandon_upstream(&mut self, taken: &[u8]) -> Result<(), ExchangeOutcome> {
        self.upstream_broken = true;
        self.upstream.outgoing = Vec::new();
        if self.sent {
            return Ok(());
        }
        self.replay_body = Some(taken.to_vec());
        Err(ExchangeOutcome::NoResponse { unanswered: true, unsent: true, replayable: self.restore_body() })
    }

    /// Makes the request's body as it was before it was sent, if that is possible.
    pub(super) fn restore_body(&mut self) -> bool {
        let Some(mut held) = self.replay_body.take() else { return false };
        held.append(&mut self.client.incoming);
        self.client.incoming = held;
        true
    }
}
