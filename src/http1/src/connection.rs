//! A connection as the relay uses it: bytes are read into one buffer per thread, and only what is left over is kept.

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

/// Bytes read at once.
const READ_SIZE: usize = 64 * 1024;
/// How long a connection that was ended is still read.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// What all connections of a thread work with; nobody holds it while waiting.
pub(super) struct Scratch {
    /// Where is read into.
    pub(super) bytes: Vec<u8>,
    /// The fields of the head that is judged.
    pub(super) fields: Fields,
    /// The head that is written.
    pub(super) head: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        bytes: vec![0; READ_SIZE],
        fields: Fields::default(),
        head: Vec::new(),
    });
}

/// Lends the thread's scratch space. `work` must not ask for it again.
pub(super) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| work(scratch))
}

/// One connection, with what was read from it and is not used yet, and what is to be written to it.
#[derive(Debug)]
pub struct Connection<S> {
    /// The connection.
    pub io: S,
    /// Read and not used yet.
    pub incoming: Vec<u8>,
    /// To be written before anything else.
    pub outgoing: Vec<u8>,
    /// Whether bytes that came after `incoming` were thrown away: what comes next is no beginning of anything, so nothing more
    /// may be read as a request.
    pub overrun: bool,
}

impl<S> Connection<S> {
    /// A connection on which nothing has happened.
    pub fn new(io: S) -> Self {
        Self { io, incoming: Vec::new(), outgoing: Vec::new(), overrun: false }
    }
}

/// Whether bytes came, or the other side has ended.
pub(super) enum ReadOutcome {
    Bytes(usize),
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Reads once into `incoming`; whether there was anything: the other side had not ended.
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

    /// Writes everything in `outgoing`.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Ends the connection so that the other side can read what it was told: data that arrives at a closed socket would reset
    /// it.
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

    /// Writes `outgoing`, then a head and then a body, as much as is taken now, and keeps the rest.
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
