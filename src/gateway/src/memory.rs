//! HTTP/1.1 connections in memory: what comes in another form is served as a request of HTTP/1.1 like any other, on one
//! path with one set of rules.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use ::http1::{Connection, MAX_FIELDS};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    task::JoinHandle,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    connection,
    peer::{ClientStream, Peer},
    state::GatewayContext,
};

/// Bytes buffered between the two ends.
const BUFFER_SIZE: usize = 16 * 1024;

/// Serves a request as if it came from `peer` over a connection of its own. Dropping the response, or its body, cancels
/// the request.
pub(super) async fn send<B>(
    request: Request<B>,
    peer: Arc<Peer>,
    shared: Arc<GatewayContext>,
) -> hyper::Result<Response<MemoryBody>>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (ours, theirs) = tokio::io::duplex(BUFFER_SIZE);
    let cut = Arc::new(AtomicBool::new(false));
    let left = CancellationToken::new();
    let stream = Connection::new(MemoryStream { io: theirs, cut: cut.clone(), closed: left.clone() });
    let wanted = left.drop_guard();
    tokio::spawn(serve(stream, peer, shared));
    let (mut sender, connection) = http1::Builder::new().max_headers(MAX_FIELDS).handshake(TokioIo::new(ours)).await?;
    let carried = tokio::spawn(async move {
        // The request itself reports the error.
        let _ = connection.await;
    });
    let carrier = Carrier { carried, _wanted: wanted };
    let response = sender.send_request(request).await?;
    Ok(response.map(|body| MemoryBody { body, cut, _carrier: carrier }))
}

/// Serves the far end. A request that is served so may send another one in the same way: the type of its future is hidden,
/// or it would contain itself.
fn serve(
    mut stream: Connection<MemoryStream>,
    peer: Arc<Peer>,
    shared: Arc<GatewayContext>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        connection::requests(&mut stream, &peer, &shared).await;
    })
}

/// Task that drives the near end. Dropping it aborts the task and cancels the request.
struct Carrier {
    carried: JoinHandle<()>,
    _wanted: DropGuard,
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.carried.abort();
    }
}

/// Body of a response.
pub(super) struct MemoryBody {
    body: Incoming,
    /// Set if the response was cut off: the end of `body` is then an error, not a clean end.
    cut: Arc<AtomicBool>,
    _carrier: Carrier,
}

impl Body for MemoryBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        Poll::Ready(match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
            Some(frame) => Some(frame.map_err(io::Error::other)),
            None if this.cut.load(Relaxed) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && !self.cut.load(Relaxed)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Far end of the connection.
struct MemoryStream {
    io: DuplexStream,
    cut: Arc<AtomicBool>,
    /// Cancelled when the response is no longer wanted.
    closed: CancellationToken,
}

impl ClientStream for MemoryStream {
    fn abort(&mut self) {
        self.cut.store(true, Relaxed);
    }

    async fn closed(&mut self) {
        self.closed.cancelled().await;
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
