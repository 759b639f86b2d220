//! Request direction of an exchange: forwards the body, then watches for a client that leaves.

use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Exchange, ExchangeOutcome, ResponsePolicy};
use crate::connection::ReadOutcome;

/// Most bytes of pipelined requests that are kept while a response is pending.
const MAX_PIPELINED: usize = 16 * 1024;

impl<C, U, P> Exchange<'_, C, U, P>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
    P: ResponsePolicy,
{
    /// Reports whether the whole request was sent.
    pub(super) fn request_sent(&self) -> bool {
        self.request_body.has_ended() && self.upstream.outgoing.is_empty()
    }

    /// Forwards a part of the request.
    pub(super) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
    ) -> Poll<Result<(), ExchangeOutcome>> {
        // The head is written together with the first part of the body, if that is here already.
        let head_alone = self.request_body.has_ended() || self.client.incoming.is_empty() || self.sent;
        if !self.upstream.outgoing.is_empty() && head_alone {
            let had = self.upstream.outgoing.len();
            match self.upstream.poll_flush(cx) {
                Poll::Ready(Ok(())) => self.sent = true,
                Poll::Ready(Err(_)) => self.abandon_upstream(&[])?,
                Poll::Pending => {
                    self.sent |= self.upstream.outgoing.len() < had;
                    // A response may arrive before the request is complete.
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
        self.policy.request_body(part.len());
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

    /// Reads from a client that waits for its response: if it leaves, no response is needed any more.
    fn poll_next_request(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<Result<(), ExchangeOutcome>> {
        match ready!(self.client.poll_read(cx, &mut scratch[..MAX_PIPELINED])) {
            Ok(ReadOutcome::Bytes(length)) => {
                // Too much pipelined input is discarded, so those requests must be sent again: the connection ends with
                // this response.
                self.client.overrun |= self.client.incoming.len() + length > MAX_PIPELINED;
                if !self.client.overrun {
                    self.client.incoming.extend_from_slice(&scratch[..length]);
                }
                Poll::Ready(Ok(()))
            }
            Ok(ReadOutcome::End) | Err(_) => Poll::Ready(Err(ExchangeOutcome::ClientGone(None))),
        }
    }

    /// Drops unsent output after a write error: the response may still arrive. If nothing was sent, another connection
    /// may serve the request; `taken` is the part of the body that was consumed for the first write.
    fn abandon_upstream(&mut self, taken: &[u8]) -> Result<(), ExchangeOutcome> {
        self.upstream_broken = true;
        self.upstream.outgoing = Vec::new();
        if self.sent {
            return Ok(());
        }
        self.replay_body = Some(taken.to_vec());
        Err(ExchangeOutcome::NoResponse { unanswered: true, unsent: true, replayable: self.restore_body() })
    }

    /// Restores the request body to its state before it was sent. Returns false if too much of it was consumed.
    pub(super) fn restore_body(&mut self) -> bool {
        let Some(mut held) = self.replay_body.take() else { return false };
        held.append(&mut self.client.incoming);
        self.client.incoming = held;
        true
    }
}
