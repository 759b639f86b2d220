//! HTTP/2 termination: hyper speaks HTTP/2 with the client, and every stream is downgraded to an HTTP/1.1 connection in
//! [memory], which is served like any other. So requests have one path with one set of rules, and HTTP/2 exists only at
//! the edge.
//!
//! A client selects HTTP/2 by the connection preface (prior knowledge) or by ALPN. WebSocket over HTTP/2 (RFC 8441) is
//! not offered. Trailers of a request are dropped, as those of HTTP/1.1 are; trailers of a response reach a client that sends
//! `te: trailers`, as gRPC does.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use ::http1::MAX_HEAD;
use bytes::{Buf as _, Bytes};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, interval_at},
};

use super::{
    local_response::LocalResponse,
    memory::{self, ResponseBody},
    peer::{ClientStream, Peer},
    state::GatewayContext,
};

/// Most concurrent streams of one connection.
const MAX_STREAMS: u32 = 250;
/// Flow-control windows for request bodies, in bytes: of one stream, and of all streams of a connection.
const WINDOW: (u32, u32) = (256 * 1024, 1024 * 1024);
/// Most bytes of a response that are buffered for a slow client.
const MAX_UNSENT: usize = 64 * 1024;
/// Interval of keep-alive PINGs to a silent client, and longest wait for the acknowledgement.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));
/// Interval at which a connection is checked for idleness and shutdown.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of checks without a stream after which a connection is shut down.
const MAX_IDLE_CHECKS: usize = 75;

/// Serves an HTTP/2 connection to its end. `taken` holds the bytes that were already read from it.
pub(super) async fn serve<S: ClientStream + 'static>(io: S, taken: Vec<u8>, peer: Peer, shared: Arc<GatewayContext>) {
    let (peer, streams) = (Arc::new(peer), Arc::new(AtomicUsize::new(0)));
    let service = {
        let (shared, streams) = (shared.clone(), streams.clone());
        service_fn(move |request| {
            let under_way = StreamGuard::new(streams.clone());
            respond(request, peer.clone(), shared.clone(), under_way)
        })
    };
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        .initial_stream_window_size(WINDOW.0)
        .initial_connection_window_size(WINDOW.1)
        .max_send_buf_size(MAX_UNSENT)
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1);
    let io = TokioIo::new(Rewound { prefix: taken.into(), io });
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let mut looks = interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
    let mut idle = 0;
    let mut ending = false;
    loop {
        tokio::select! {
            // The client broke the connection, or it ended: there is no peer left to report to.
            _ = connection.as_mut() => return,
            _ = looks.tick() => {}
        }
        idle = if streams.load(Relaxed) == 0 { idle + 1 } else { 0 };
        if !ending && (idle > MAX_IDLE_CHECKS || shared.leaving()) {
            ending = true;
            connection.as_mut().graceful_shutdown();
        } else if idle > 2 * MAX_IDLE_CHECKS {
            return;
        }
    }
}

/// Counts a stream until it is dropped.
struct StreamGuard(Arc<AtomicUsize>);

impl StreamGuard {
    fn new(streams: Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Relaxed);
        Self(streams)
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Responds to one request. An error resets the stream.
async fn respond(
    request: Request<Incoming>,
    peer: Arc<Peer>,
    shared: Arc<GatewayContext>,
    under_way: StreamGuard,
) -> hyper::Result<Response<Downstream>> {
    let request = match downgrade(request) {
        Ok(request) => request,
        Err(refusal) => {
            shared.metrics.refused(None, &refusal);
            return Ok(refused(&refusal));
        }
    };
    let (mut parts, body) = memory::send(request, peer, shared).await?.into_parts();
    for name in CONNECTION_FIELDS {
        parts.headers.remove(name);
    }
    parts.version = Version::HTTP_2;
    let body = Downstream { body: DownstreamContent::Stream(body), _under_way: Some(under_way) };
    Ok(Response::from_parts(parts, body))
}

/// Connection-specific header fields of HTTP/1.1, which HTTP/2 forbids (RFC 9113, section 8.2.2).
const CONNECTION_FIELDS: [HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, HeaderName::from_static("keep-alive")];

/// Converts a request to HTTP/1.1 form (RFC 9113, section 8.3.1).
fn downgrade(request: Request<Incoming>) -> Result<Request<Incoming>, LocalResponse> {
    let (mut parts, body) = request.into_parts();
    if parts.method == Method::CONNECT {
        return Err(LocalResponse::new(501, "bad-request", "CONNECT is not served"));
    }
    let authority = parts.uri.authority().and_then(|it| HeaderValue::from_str(it.as_str()).ok());
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    match (authority, hosts.next(), hosts.next()) {
        (Some(authority), None, _) => {
            parts.headers.insert(header::HOST, authority);
        }
        (Some(authority), Some(host), None) if authority.as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {}
        (None, Some(_), None) => {}
        _ => {
            return Err(LocalResponse::new(
                400,
                "bad-request",
                "`:authority` and `host` must name one and the same host",
            ));
        }
    }
    // Clients may split `Cookie` into one field per cookie pair (RFC 9113, section 8.2.3).
    let crumbs: Vec<&[u8]> = parts.headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() > 1
        && let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..]))
    {
        parts.headers.insert(header::COOKIE, cookie);
    }
    let mut target = http::uri::Parts::default();
    target.path_and_query = parts.uri.path_and_query().cloned();
    parts.uri = Uri::from_parts(target).map_err(|_| LocalResponse::new(400, "bad-path", "`:path` cannot be read"))?;
    parts.version = Version::HTTP_11;
    Ok(Request::from_parts(parts, body))
}

/// Converts a refusal to an HTTP/2 response.
fn refused(refusal: &LocalResponse) -> Response<Downstream> {
    let text = serde_json::json!({ "error": refusal.error, "reason": refusal.reason }).to_string();
    let mut response = Response::new(Downstream { body: DownstreamContent::Text(Some(text.into())), _under_way: None });
    *response.status_mut() = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("x-recif-reason", HeaderValue::from_static(refusal.reason));
    response
}

/// Body of a response.
struct Downstream {
    body: DownstreamContent,
    _under_way: Option<StreamGuard>,
}

enum DownstreamContent {
    Text(Option<Bytes>),
    Stream(ResponseBody),
}

impl Body for Downstream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.get_mut().body {
            DownstreamContent::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            DownstreamContent::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            DownstreamContent::Text(text) => text.is_none(),
            DownstreamContent::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            DownstreamContent::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            DownstreamContent::Stream(body) => body.size_hint(),
        }
    }
}

/// Connection with a prefix of bytes that were already read from it.
struct Rewound<S> {
    prefix: Bytes,
    io: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.prefix.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buffer);
        }
        let length = this.prefix.len().min(buffer.remaining());
        buffer.put_slice(&this.prefix[..length]);
        this.prefix.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
