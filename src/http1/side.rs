//! A connection as the relay uses it: bytes are read into one buffer per thread, and only what is left over is kept.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Bad, head_length};

/// Bytes read at once.
const READ: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// One connection, with what was read from it and is not used yet, and what is to be written to it.
#[derive(Debug)]
pub struct Side<S> {
    /// The connection.
    pub io: S,
    /// Read and not used yet.
    pub incoming: Vec<u8>,
    /// To be written before anything else.
    pub outgoing: Vec<u8>,
}

impl<S> Side<S> {
    /// A connection on which nothing has happened.
    pub fn new(io: S) -> Self {
        Self { io, incoming: Vec::new(), outgoing: Vec::new() }
    }
}

/// Whether bytes came, or the other side has ended.
pub(super) enum Read {
    Bytes(usize),
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Side<S> {
    /// Reads a complete head into `incoming` and answers its length; `None`: the other side ended before its first byte.
    ///
    /// # Errors
    /// The connection broke, or ended within a head.
    pub async fn head(&mut self) -> io::Result<Result<Option<usize>, Bad>> {
        let mut scanned = 0;
        loop {
            match head_length(&self.incoming, &mut scanned) {
                Ok(Some(length)) => return Ok(Ok(Some(length))),
                Err(bad) => return Ok(Err(bad)),
                Ok(None) => {}
            }
            match self.fill().await? {
                true => {}
                false if self.incoming.is_empty() => return Ok(Ok(None)),
                false => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Reads once into `incoming`; whether there was anything: the other side had not ended.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn fill(&mut self) -> io::Result<bool> {
        poll_fn(|cx| {
            with_scratch(|scratch| {
                Poll::Ready(Ok(match ready!(self.poll_read(cx, scratch))? {
                    Read::Bytes(length) => {
                        self.incoming.extend_from_slice(&scratch[..length]);
                        true
                    }
                    Read::End => false,
                }))
            })
        })
        .await
    }

    /// Writes everything in `outgoing`.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<io::Result<Read>> {
        let mut buffer = ReadBuf::new(scratch);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(match buffer.filled().len() {
            0 => Read::End,
            length => Read::Bytes(length),
        }))
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut written = 0;
        let result = loop {
            if written == self.outgoing.len() {
                break Poll::Ready(Ok(()));
            }
            match Pin::new(&mut self.io).poll_write(cx, &self.outgoing[written..]) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(length)) => written += length,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        if written == self.outgoing.len() {
            self.outgoing = Vec::new();
        } else {
            self.outgoing.drain(..written);
        }
        result
    }

    /// Writes as much as is taken now and keeps the rest. Nothing may be left in `outgoing`.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            match Pin::new(&mut self.io).poll_write(cx, &bytes[written..]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(length)) => written += length,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    self.outgoing.extend_from_slice(&bytes[written..]);
                    break;
                }
            }
        }
        Ok(())
    }
}

pub(super) fn with_scratch<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| work(scratch))
}
