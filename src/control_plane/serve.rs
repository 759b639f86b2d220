//! Serves connections, small ones: thousands of clients may do nothing but follow the changes.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// How long a client may leave what was sent to it unacknowledged, or not read it, before the system drops it.
const UNREAD: Duration = Duration::from_secs(30);
/// How long a client may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(30);
/// The most that is kept of a connection on the way in and out, in bytes, what the system keeps aside.
const BUFFER: usize = 16 * 1024;
/// How long connections may take to end.
const END: Duration = Duration::from_secs(5);

/// Serves until `stop`, and then what is under way for a while.
pub(super) async fn run(listener: TcpListener, router: Router, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(connection(stream, router.clone(), stop.clone()))),
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

async fn connection(stream: TcpStream, router: Router, stop: CancellationToken) {
    let socket = SockRef::from(&stream);
    // Where either is not to be had, the connection works without.
    let _ = socket.set_tcp_user_timeout(Some(UNREAD));
    let _ = socket.set_tcp_nodelay(true);
    let service = TowerToHyperService::new(router);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(BUFFER).pipeline_flush(false);
    let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
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
