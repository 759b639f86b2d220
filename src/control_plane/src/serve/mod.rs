//! Serves connections with small buffers. Connections with an event stream, of which there may be thousands, are detached from
//! the HTTP server (see [`super::stream_body`]).

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

/// Limit of open connections, event streams included; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 10_000;
/// Longest time in which a client may read nothing of a response before the connection is dropped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time in which a client may send the head of a request; a limit against [slow
/// clients](https://en.wikipedia.org/wiki/Slowloris_(cyber_attack)).
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Read and write buffer of a connection, in bytes, besides those of the operating system.
const BUFFER_BYTES: usize = 16 * 1024;
/// Longest time for open connections to drain at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Client at the other end of a connection; an extension of each request on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    /// IP address of the client.
    pub(super) address: IpAddr,
    /// `http` or `https`: the protocol of this connection.
    pub(super) proto: &'static str,
}

/// Serves until `stop`, over TLS if `tls` is given, and then drains the open connections for at most 5 s.
pub(super) async fn run(listener: TcpListener, tls: Option<Tls>, router: Router, stop: CancellationToken) {
    run_bounded(listener, tls, router, stop, (MAX_CONNECTIONS, WRITE_TIMEOUT)).await;
}

/// Serves as [`run`] does, with a limit of connections and a write timeout.
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
                    // Without TCP_NODELAY the connection works, too.
                    let _ = stream.set_nodelay(true);
                    let address = address.ip().to_canonical();
                    let (tls, router, stop) = (tls.clone(), router.clone(), stop.clone());
                    connections.spawn(async move {
                        let (socket, proto) = match tls {
                            None => (Socket::Plain(stream), "http"),
                            // The TLS stack has sent its alert to a client that does not speak TLS.
                            Some(tls) => (Socket::Tls(Box::new(Box::pin(tls.accept(stream)).await.ok()?)), "https"),
                        };
                        connection(WriteTimeoutStream::new(socket, unread), Peer { address, proto }, router, stop).await
                    });
                }
                Err(error) => {
                    // Out of file descriptors, or the client has gone already.
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

/// Connection that was detached from the HTTP server, with the streamed response to send on it.
type DetachedStream = (StreamedResponse, WriteTimeoutStream);

/// Sends a streamed response in a new task: the task of the HTTP server would keep its size for as long as the stream lasts.
fn spawn_detached(connections: &mut JoinSet<Option<DetachedStream>>, ended: Result<Option<DetachedStream>, JoinError>) {
    if let Ok(Some((answer, socket))) = ended {
        connections.spawn(async {
            // An I/O error only ends this client's connection.
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
                // The HTTP server never answers this request: its connection is detached.
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
        // An I/O error only ends this client's connection.
        if Pin::new(&mut connection).poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        // Responses to earlier requests are flushed first.
        let taken = sent.load(Relaxed).then(|| left.lock().unwrap_or_else(PoisonError::into_inner).take()).flatten();
        if taken.is_some() { Poll::Ready(taken) } else { Poll::Pending }
    });
    let answer = answer.await?;
    Some((answer, connection.into_parts()?.io.into_inner()))
}

#[cfg(test)]
mod tests;
