//! Serves connections, small ones; those of clients that follow the changes, of which there may be thousands, are taken from
//! the server of HTTP (see [`super::endless`]).

use std::{
    convert::Infallible,
    future::poll_fn,
    net::IpAddr,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    task::Poll,
    time::Duration,
};

use axum::Router;
use daemon::tls::Tls;
use hyper::{
    Method, Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::TcpListener,
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    stream_body::StreamedResponse,
    write_timeout::{Socket, WriteTimeoutStream},
};

/// Connections at most; further ones wait to be accepted. Those that follow the changes are among them.
const MAX_CONNECTIONS: usize = 10_000;
/// How long a client may take nothing of what is sent to it before it is dropped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The most that is kept of a connection on the way in and out, in bytes, what the system keeps aside.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long connections may take to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Who is at the other end of the connection that a request came on: an extension of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its address.
    pub(super) address: IpAddr,
    /// `http` or `https`: what it speaks to us.
    pub(super) proto: &'static str,
}

/// Serves until `stop`, by TLS if there is one, and then what is under way for a while.
pub(super) async fn run(listener: TcpListener, tls: Option<Tls>, router: Router, stop: CancellationToken) {
    run_bounded(listener, tls, router, stop, (MAX_CONNECTIONS, WRITE_TIMEOUT)).await;
}

/// As [`run`], with so many connections at most, of which none may read nothing for so long.
async fn run_bounded(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    stop: CancellationToken,
    (most, unread): (usize, Duration),
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept(), if connections.len() < most => match accepted {
                Ok((stream, address)) => {
                    // Where it is not to be had, the connection works without.
                    let _ = stream.set_nodelay(true);
                    let address = address.ip().to_canonical();
                    let (tls, router, stop) = (tls.clone(), router.clone(), stop.clone());
                    connections.spawn(async move {
                        let (socket, proto) = match tls {
                            None => (Socket::Plain(stream), "http"),
                            // A client that does not speak TLS was told so by it.
                            Some(tls) => (Socket::Tls(Box::new(Box::pin(tls.accept(stream)).await.ok()?)), "https"),
                        };
                        connection(WriteTimeoutStream::new(socket, unread), Peer { address, proto }, router, stop).await
                    });
                }
                Err(error) => {
                    // No files are left, or the client has gone already.
                    tracing::warn!(%error, "a connection cannot be taken");
                    sleep(Duration::from_millis(100)).await;
                }
            },
            Some(ended) = connections.join_next() => spawn_detached(&mut connections, ended),
        }
    }
    let ended = async {
        while let Some(ended) = connections.join_next().await {
            spawn_detached(&mut connections, ended);
        }
    };
    let _ = timeout(DRAIN_TIMEOUT, ended).await;
}

/// A connection that was taken from the server, for an answer without an end.
type DetachedStream = (StreamedResponse, WriteTimeoutStream);

/// Sends an answer without an end in a task of its own: that of the server would stay as large as it was.
fn spawn_detached(connections: &mut JoinSet<Option<DetachedStream>>, ended: Result<Option<DetachedStream>, JoinError>) {
    if let Ok(Some((answer, socket))) = ended {
        connections.spawn(async {
            // A connection that breaks is the client's affair.
            let _ = answer.send(socket).await;
            None
        });
    }
}

async fn connection(
    socket: WriteTimeoutStream,
    peer: Peer,
    router: Router,
    stop: CancellationToken,
) -> Option<DetachedStream> {
    let router = TowerToHyperService::new(router);
    let (sent, left) = (socket.flushed(), Arc::new(Mutex::new(None)));
    let place = left.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let version = (request.method() == Method::GET).then_some(request.version());
        let (response, place) = (router.call(request), place.clone());
        async move {
            let response = response.await?;
            if let Some(answer) = version.and_then(|version| StreamedResponse::of(&response, version)) {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                // The server answers nothing: the connection is taken from it.
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BUFFER_BYTES).pipeline_flush(false);
    let mut connection = builder.serve_connection(TokioIo::new(socket), service).with_upgrades();
    let (mut stopped, mut ends) = (pin!(stop.cancelled()), false);
    let answer = poll_fn(|cx| {
        if !ends && stopped.as_mut().poll(cx).is_ready() {
            ends = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        // A connection that breaks is the client's affair.
        if Pin::new(&mut connection).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        // Answers to earlier requests go first.
        let taken = sent.load(Relaxed).then(|| left.lock().unwrap_or_else(PoisonError::into_inner).take()).flatten();
        if taken.is_some() { Poll::Ready(taken) } else { Poll::Pending }
    });
    let answer = answer.await?;
    Some((answer, connection.into_parts()?.io.into_inner()))
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
