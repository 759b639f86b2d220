//! Connection with a write timeout: it breaks when the client reads nothing for too long.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};
use tokio_rustls::server::TlsStream;

/// Transport of a client's connection.
#[derive(Debug)]
pub(super) enum Socket {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connection that fails with `TimedOut` when no byte could be written for `timeout`.
///
/// Invariant: `deadline` is set only while the last write is pending; each write that makes progress clears it.
#[derive(Debug)]
pub(super) struct WriteTimeoutStream {
    stream: Socket,
    timeout: Duration,
    /// Runs while the socket's send buffer is full.
    deadline: Option<Pin<Box<Sleep>>>,
    flushed: Arc<AtomicBool>,
}

impl WriteTimeoutStream {
    /// Wraps a socket; writes fail after `patience` without progress.
    pub(super) fn new(stream: Socket, patience: Duration) -> Self {
        Self { stream, timeout: patience, deadline: None, flushed: Arc::default() }
    }

    /// Returns the flag that is true after a flush and false after a later write. A server flushes when it has nothing left to
    /// write.
    pub(super) fn flushed(&self) -> Arc<AtomicBool> {
        self.flushed.clone()
    }

    fn enforce_timeout(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        let waiting = self.deadline.get_or_insert_with(|| Box::pin(sleep(self.timeout)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing of what is sent to it")))
    }
}

impl AsyncRead for WriteTimeoutStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for WriteTimeoutStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.flushed.store(false, Relaxed);
        let written = match &mut self.stream {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.enforce_timeout(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.flushed.store(false, Relaxed);
        let written = match &mut self.stream {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Socket::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.enforce_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Socket::Plain(stream) => stream.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushed.store(true, Relaxed);
        match &mut self.stream {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
