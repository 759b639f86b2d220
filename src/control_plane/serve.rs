//! Serves connections, small ones: thousands of clients may do nothing but follow the changes.

use std::{net::IpAddr, time::Duration};

use axum::Router;
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::patient::Patient;

/// How long a client may take nothing of what is sent to it before it is dropped.
const UNREAD: Duration = Duration::from_secs(30);
/// How long a client may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(30);
/// The most that is kept of a connection on the way in and out, in bytes, what the system keeps aside.
const BUFFER: usize = 16 * 1024;
/// How long connections may take to end.
const END: Duration = Duration::from_secs(5);

/// Who is at the other end of the connection that a request came on: an extension of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer(pub(super) IpAddr);

/// Serves until `stop`, and then what is under way for a while.
pub(super) async fn run(listener: TcpListener, router: Router, stop: CancellationToken) {
    run_patiently(listener, router, stop, UNREAD).await;
}

async fn run_patiently(listener: TcpListener, router: Router, stop: CancellationToken, unread: Duration) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let peer = Peer(address.ip().to_canonical());
                    connections.spawn(connection(stream, peer, router.clone(), stop.clone(), unread));
                }
                Err(error) => {
                    // No files are left, or the client has gone already.
                    tracing::warn!(%error, "a connection cannot be taken");
                    sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(END, ended).await;
}

async fn connection(stream: TcpStream, peer: Peer, router: Router, stop: CancellationToken, unread: Duration) {
    // Where it is not to be had, the connection works without.
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(BUFFER).pipeline_flush(false);
    let connection = builder.serve_connection(TokioIo::new(Patient::new(stream, unread)), service).with_upgrades();
    tokio::pin!(connection);
    // A connection that breaks is the client's affair.
    tokio::select! {
        _ = &mut connection => {}
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::{body::Body, routing::get};
    use bytes::Bytes;
    use futures::stream;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        sync::mpsc,
    };

    use super::*;

    async fn start(router: Router, unread: Duration) -> (std::net::SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        tokio::spawn(run_patiently(listener, router, stop.clone(), unread));
        (address, stop)
    }

    /// Says when it is dropped.
    struct Held(mpsc::Sender<()>);

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.try_send(());
        }
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_dropped() {
        let (held, mut gone) = mpsc::channel(1);
        let endless = move || {
            let held = Held(held.clone());
            let piece = |held| async { Some((Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 4096])), held)) };
            async move { Body::from_stream(stream::unfold(held, piece)) }
        };
        let (address, stop) = start(Router::new().route("/", get(endless)), Duration::from_millis(300)).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        let dropped = timeout(Duration::from_secs(60), gone.recv()).await;
        assert_eq!(dropped, Ok(Some(())), "the server still sends");
        stop.cancel();
    }

    #[tokio::test]
    async fn what_is_under_way_ends_before_the_process() {
        let (reached, mut is_reached) = mpsc::channel(1);
        let (go, may) = tokio::sync::watch::channel(false);
        let slow = move || {
            let (mut may, reached) = (may.clone(), reached.clone());
            async move {
                reached.send(()).await.unwrap();
                may.wait_for(|may| *may).await.unwrap();
                "done"
            }
        };
        let (address, stop) = start(Router::new().route("/", get(slow)), UNREAD).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        is_reached.recv().await.unwrap();
        stop.cancel();
        go.send(true).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("done"), "{answer}");
    }
}
