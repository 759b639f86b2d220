//! An answer without an end, which is sent piece by piece for as long as both sides live.
//!
//! Thousands of clients may do nothing but wait for the next piece. What a server of HTTP keeps of a connection is made for
//! those who ask again and again: buffers of 16 KiB, and a walk through its whole machinery for each piece. So when the head
//! of a request is read and judged, whoever answers may leave [`BodyChunks`] in the response's extensions in place of a body, and
//! the connection is taken from the server: then a piece costs one call of the system, and all who get the same one share
//! its bytes.

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

/// What is sent, one after the other; the answer ends when there is no more.
pub(super) type BodyChunks = Pin<Box<dyn Stream<Item = BodyChunk> + Send>>;

/// A part of an answer, framed already; copies share its bytes.
#[derive(Debug, Clone)]
pub(super) struct BodyChunk {
    /// A chunk (RFC 9112, section 7.1).
    chunk: Bytes,
    /// Where its data begin.
    data_start: usize,
}

impl BodyChunk {
    /// A piece with these data, of which there must be some: an empty chunk would be the end.
    pub(super) fn new(data: &[u8]) -> Self {
        let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
        let begin = chunk.len();
        chunk.reserve_exact(data.len() + 2);
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(b"\r\n");
        Self { chunk: chunk.into(), data_start: begin }
    }

    /// What it says.
    pub(super) fn data(&self) -> Bytes {
        self.chunk.slice(self.data_start..self.chunk.len() - 2)
    }
}

/// The place of pieces in a response.
#[derive(Clone)]
struct ChunksExtension(Arc<Mutex<Option<BodyChunks>>>);

impl ChunksExtension {
    fn take(&self) -> Option<BodyChunks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A response whose body is these pieces, for [`Answer::of`] to find.
pub(super) fn response(pieces: BodyChunks) -> Response {
    // Its length is not known, so nobody on the way states one.
    let mut response = Response::new(Body::from_stream(stream::pending::<io::Result<Bytes>>()));
    response.extensions_mut().insert(ChunksExtension(Arc::new(Mutex::new(Some(pieces)))));
    response
}

/// An answer that was not begun yet.
pub(super) struct StreamedResponse {
    head: Bytes,
    chunks: BodyChunks,
    /// Whether the client knows chunks; otherwise the end of the connection is the end of the answer.
    chunked: bool,
}

impl fmt::Debug for StreamedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedResponse").field("chunked", &self.chunked).finish_non_exhaustive()
    }
}

impl StreamedResponse {
    /// What is to be sent for this response to a request of this version; `None`: it is one with an end.
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
        // Nothing else is read from this client any more.
        head.extend_from_slice(b"connection: close\r\n");
        head.extend_from_slice(if chunked { b"transfer-encoding: chunked\r\n\r\n" } else { b"\r\n" });
        Some(Self { head: head.into(), chunks: pieces, chunked })
    }

    /// Sends it, to its end or that of the client.
    ///
    /// # Errors
    /// The client takes nothing any more.
    pub(super) async fn send(self, socket: WriteTimeoutStream) -> io::Result<()> {
        let Self { head, chunks: pieces, chunked } = self;
        let mut sending = BodyWriter { socket, chunks: pieces, chunked, unsent: head, ended: false };
        std::future::poll_fn(|cx| sending.poll(cx)).await
    }
}

struct BodyWriter {
    socket: WriteTimeoutStream,
    chunks: BodyChunks,
    chunked: bool,
    /// What has to be sent before the next piece.
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

    /// Ready when the client has gone; what else it sends is passed over.
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
