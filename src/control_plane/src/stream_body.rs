//! Streamed response: a body without an end, sent chunk by chunk for as long as both sides stay connected.
//!
//! Thousands of clients may do nothing but wait for the next chunk. The state that an HTTP server keeps per connection is made
//! for clients that send request after request: buffers of 16 KiB, and a pass through the whole state machine for each chunk.
//! So a handler may, once the head of a request is read and judged, put [`BodyChunks`] into the extensions of its response in
//! place of a body. The connection is then detached from the server, a chunk costs one system call, and all clients that get
//! the same chunk share its bytes.

use std::{
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use axum::{body::Body, response::Response};
use bytes::{Buf as _, Bytes};
use futures::{Stream, stream};
use http::Version;
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::write_timeout::WriteTimeoutStream;

/// Stream of the body's chunks; the response ends with it.
pub(super) type BodyChunks = Pin<Box<dyn Stream<Item = BodyChunk> + Send>>;

/// Part of a body, already framed for the chunked transfer coding; clones share its bytes.
#[derive(Debug, Clone)]
pub(super) struct BodyChunk {
    /// Chunk with its framing (RFC 9112, section 7.1).
    chunk: Bytes,
    /// Offset of the data in `chunk`.
    data_start: usize,
}

impl BodyChunk {
    /// Frames these data, which must not be empty: an empty chunk would end the body.
    pub(super) fn new(data: &[u8]) -> Self {
        let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
        let begin = chunk.len();
        chunk.reserve_exact(data.len() + 2);
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(b"\r\n");
        Self { chunk: chunk.into(), data_start: begin }
    }

    /// Returns the data without the framing.
    pub(super) fn data(&self) -> Bytes {
        self.chunk.slice(self.data_start..self.chunk.len() - 2)
    }
}

/// Extension of a response that holds its chunks until [`StreamedResponse::of`] takes them.
#[derive(Clone)]
struct ChunksExtension(Arc<Mutex<Option<BodyChunks>>>);

impl ChunksExtension {
    fn take(&self) -> Option<BodyChunks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Creates a response whose body is these chunks, for [`StreamedResponse::of`] to take.
pub(super) fn response(pieces: BodyChunks) -> Response {
    // A body of unknown length, so that no layer adds a `Content-Length`.
    let mut response = Response::new(Body::from_stream(stream::pending::<io::Result<Bytes>>()));
    response.extensions_mut().insert(ChunksExtension(Arc::new(Mutex::new(Some(pieces)))));
    response
}

/// Streamed response before its first byte is sent.
pub(super) struct StreamedResponse {
    head: Bytes,
    chunks: BodyChunks,
    /// True for a client that understands the chunked coding (HTTP/1.1); otherwise the end of the connection ends the body.
    chunked: bool,
}

impl fmt::Debug for StreamedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedResponse").field("chunked", &self.chunked).finish_non_exhaustive()
    }
}

impl StreamedResponse {
    /// Takes the chunks out of this response to a request of this version and renders its head; `None`: the response has an
    /// ordinary body.
    pub(super) fn of<B>(response: &http::Response<B>, version: Version) -> Option<Self> {
        let pieces = response.extensions().get::<ChunksExtension>()?.take()?;
        let chunked = version == Version::HTTP_11;
        let mut head = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
        for (name, value) in response.headers() {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
        if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::now()) {
            head.extend_from_slice(format!("date: {date}\r\n").as_bytes());
        }
        // No further request is read from this client.
        head.extend_from_slice(b"connection: close\r\n");
        head.extend_from_slice(if chunked { b"transfer-encoding: chunked\r\n\r\n" } else { b"\r\n" });
        Some(Self { head: head.into(), chunks: pieces, chunked })
    }

    /// Sends the response until its chunks end or the client goes away.
    ///
    /// # Errors
    /// The client has gone, or reads nothing for too long.
    pub(super) async fn send(self, socket: WriteTimeoutStream) -> io::Result<()> {
        let Self { head, chunks: pieces, chunked } = self;
        let mut sending = BodyWriter { socket, chunks: pieces, chunked, unsent: head, ended: false };
        std::future::poll_fn(|cx| sending.poll(cx)).await
    }
}

/// Writer of a streamed response to a detached connection.
///
/// Invariant: the next chunk is taken only when `unsent` is empty, so at most one chunk is buffered for a slow client.
struct BodyWriter {
    socket: WriteTimeoutStream,
    chunks: BodyChunks,
    chunked: bool,
    /// Bytes to send before the next chunk.
    unsent: Bytes,
    ended: bool,
}

impl BodyWriter {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(left) = self.poll_closed(cx) {
            return Poll::Ready(left);
        }
        loop {
            while !self.unsent.is_empty() {
                let count = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.unsent))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.unsent.advance(count);
            }
            if self.ended {
                return Pin::new(&mut self.socket).poll_shutdown(cx);
            }
            match ready!(self.chunks.as_mut().poll_next(cx)) {
                Some(piece) if self.chunked => self.unsent = piece.chunk,
                Some(piece) => self.unsent = piece.data(),
                None => {
                    self.ended = true;
                    self.unsent = Bytes::from_static(if self.chunked { b"0\r\n\r\n" } else { b"" });
                }
            }
        }
    }

    /// Polls whether the client has closed the connection; bytes that it still sends are discarded.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut scrap = [0; 64];
            let mut scrap = ReadBuf::new(&mut scrap);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut scrap))?;
            if scrap.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
