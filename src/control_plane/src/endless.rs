//! An answer without an end, which is sent piece by piece for as long as both sides live.
//!
//! Thousands of clients may do nothing but wait for the next piece. What a server of HTTP keeps of a connection is made for
//! those who ask again and again: buffers of 16 KiB, and a walk through its whole machinery for each piece. So when the head
//! of a request is read and judged, whoever answers may leave [`Pieces`] in the response's extensions in place of a body, and
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

use super::patient::Patient;

/// What is sent, one after the other; the answer ends when there is no more.
pub(super) type Pieces = Pin<Box<dyn Stream<Item = Piece> + Send>>;

/// A part of an answer, framed already; copies share its bytes.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// A chunk (RFC 9112, section 7.1).
    chunk: Bytes,
    /// Where its data begin.
    begin: usize,
}

impl Piece {
    /// A piece with these data, of which there must be some: an empty chunk would be the end.
    pub(super) fn new(data: &[u8]) -> Self {
        let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
        let begin = chunk.len();
        chunk.reserve_exact(data.len() + 2);
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(b"\r\n");
        Self { chunk: chunk.into(), begin }
    }

    /// What it says.
    pub(super) fn data(&self) -> Bytes {
        self.chunk.slice(self.begin..self.chunk.len() - 2)
    }
}

/// The place of pieces in a response.
#[derive(Clone)]
struct Left(Arc<Mutex<Option<Pieces>>>);

impl Left {
    fn take(&self) -> Option<Pieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A response whose body is these pieces, for [`Answer::of`] to find.
pub(super) fn response(pieces: Pieces) -> Response {
    // Its length is not known, so nobody on the way states one.
    let mut response = Response::new(Body::from_stream(stream::pending::<io::Result<Bytes>>()));
    response.extensions_mut().insert(Left(Arc::new(Mutex::new(Some(pieces)))));
    response
}

/// An answer that was not begun yet.
pub(super) struct Answer {
    head: Bytes,
    pieces: Pieces,
    /// Whether the client knows chunks; otherwise the end of the connection is the end of the answer.
    chunked: bool,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("chunked", &self.chunked).finish_non_exhaustive()
    }
}

impl Answer {
    /// What is to be sent for this response to a request of this version; `None`: it is one with an end.
    pub(super) fn of<B>(response: &http::Response<B>, version: Version) -> Option<Self> {
        let pieces = response.extensions().get::<Left>()?.take()?;
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
        Some(Self { head: head.into(), pieces, chunked })
    }

    /// Sends it, to its end or that of the client.
    ///
    /// # Errors
    /// The client takes nothing any more.
    pub(super) async fn send(self, socket: Patient) -> io::Result<()> {
        let Self { head, pieces, chunked } = self;
        let mut sending = Sending { socket, pieces, chunked, unsent: head, ended: false };
        std::future::poll_fn(|cx| sending.poll(cx)).await
    }
}

struct Sending {
    socket: Patient,
    pieces: Pieces,
    chunked: bool,
    /// What has to be sent before the next piece.
    unsent: Bytes,
    ended: bool,
}

impl Sending {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(left) = self.left(cx) {
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
            match ready!(self.pieces.as_mut().poll_next(cx)) {
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
    fn left(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
