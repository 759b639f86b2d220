//! Connection through the API server, for an HTTP client.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::io::DuplexStream;

/// Stream of a forwarded port. The type exists because hyper's client wants a [`Connection`], which a plain stream is not.
#[derive(Debug)]
pub(crate) struct Tunnel(TokioIo<DuplexStream>);

impl Tunnel {
    /// Wraps a stream of a forwarded port.
    pub(super) fn new(stream: DuplexStream) -> Self {
        Self(TokioIo::new(stream))
    }
}

impl Connection for Tunnel {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
