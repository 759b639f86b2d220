//! Connection of a relay: reads go into one buffer per thread, and a connection keeps only its unprocessed bytes.

use std::{
    cell::RefCell,
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    time::timeout,
};

use super::Fields;

/// Most bytes per read.
const READ_SIZE: usize = 64 * 1024;
/// Time for which a connection is still read after its end was sent.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Scratch buffers that all connections of a thread share; none holds them across an await.
pub(super) struct Scratch {
    /// Read buffer.
    pub(super) bytes: Vec<u8>,
    /// Fields of the head that is validated.
    pub(super) fields: Fields,
    /// Head that is written.
    pub(super) head: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        bytes: vec![0; READ_SIZE],
        fields: Fields::default(),
        head: Vec::new(),
    });
}

/// Lends the thread's scratch buffers to `work`, which must not call this again.
pub(super) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| work(scratch))
}

/// Connection with its unprocessed input and unsent output.
#[derive(Debug)]
pub struct Connection<S> {
    /// Byte stream.
    pub io: S,
    /// Bytes that were read and not processed yet.
    pub incoming: Vec<u8>,
    /// Bytes to write before anything else.
    pub outgoing: Vec<u8>,
    /// Set if bytes after `incoming` were discarded: the next bytes begin in the middle of a message, so no further
    /// request may be parsed.
    pub overrun: bool,
}

impl<S> Connection<S> {
    /// Creates a connection with empty buffers.
    pub fn new(io: S) -> Self {
        Self { io, incoming: Vec::new(), outgoing: Vec::new(), overrun: false }
    }
}

/// Result of a read: bytes, or the end of the stream.
pub(super) enum ReadOutcome {
    Bytes(usize),
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Reads once into `incoming`. Returns false at the end of the stream.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn fill(&mut self) -> io::Result<bool> {
        poll_fn(|cx| {
            with_scratch(|scratch| {
                Poll::Ready(Ok(match ready!(self.poll_read(cx, &mut scratch.bytes))? {
                    ReadOutcome::Bytes(length) => {
                        self.incoming.extend_from_slice(&scratch.bytes[..length]);
                        true
                    }
                    ReadOutcome::End => false,
                }))
            })
        })
        .await
    }

    /// Writes all of `outgoing`.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Closes the connection gracefully (lingering close): data that arrives at a closed socket would reset it, and the
    /// peer might lose the last response. Reads for up to 1 s after the shutdown.
    pub async fn linger(&mut self) {
        if self.io.shutdown().await.is_err() {
            return;
        }
        let drain = async {
            loop {
                self.incoming.clear();
                if !matches!(self.fill().await, Ok(true)) {
                    return;
                }
            }
        };
        let _ = timeout(LINGER_TIMEOUT, drain).await;
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<ReadOutcome>> {
        let mut buffer = ReadBuf::new(bytes);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
        Poll::Ready(Ok(match buffer.filled().len() {
            0 => ReadOutcome::End,
            length => ReadOutcome::Bytes(length),
        }))
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_send(cx, &[], &[])?;
        if self.outgoing.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Writes `outgoing`, then `head`, then `body`, as far as the stream accepts now, and keeps the rest in `outgoing`.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>, mut head: &[u8], mut body: &[u8]) -> io::Result<()> {
        loop {
            let io = Pin::new(&mut self.io);
            let written = match (self.outgoing.is_empty(), head.is_empty(), body.is_empty()) {
                (true, true, true) => return Ok(()),
                (true, true, _) => io.poll_write(cx, body),
                (true, _, true) => io.poll_write(cx, head),
                (_, true, true) => io.poll_write(cx, &self.outgoing),
                _ => {
                    let parts = [IoSlice::new(&self.outgoing), IoSlice::new(head), IoSlice::new(body)];
                    io.poll_write_vectored(cx, &parts)
                }
            };
            let mut written = match written {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => written?,
                Poll::Pending => {
                    self.outgoing.extend_from_slice(head);
                    self.outgoing.extend_from_slice(body);
                    return Ok(());
                }
            };
            if written >= self.outgoing.len() {
                written -= std::mem::take(&mut self.outgoing).len();
            } else {
                self.outgoing.drain(..std::mem::take(&mut written));
            }
            let of_head = written.min(head.len());
            (head, body) = (&head[of_head..], &body[written - of_head..]);
        }
    }
}
