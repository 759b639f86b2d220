//! Life cycle of the bridge: bind, accept, drain.
//!
//! On SIGTERM no new request begins, streams that only listen end, and requests in flight have some time to finish;
//! then the children end. All of that stays within the ten seconds that a workload has for it.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use daemon::runtime::{Runtime, RuntimeError};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;

use super::{
    args::Args,
    command::ArgsError,
    http::{self, Overload},
    resources::Resources,
    state::Bridge,
};

/// Longest time for requests in flight to finish.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(6);
/// Longest time for connections to send the bytes that are written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time to receive the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head of a request, and most bytes that are buffered for a client.
const MAX_BUFFER: usize = 64 << 10;
/// Most connections at the same time; the second number includes those over the limit that still get a refusal, or an
/// answer if they are probes.
const MAX_CONNECTIONS: usize = 1024;
const MAX_OVERLOADED_CONNECTIONS: usize = MAX_CONNECTIONS + 64;
/// Silence on the network after which a client counts as gone.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// The bridge cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An argument is refused.
    #[error(transparent)]
    Args(#[from] ArgsError),
    /// The port is in use, or this process may not bind it.
    #[error("listen on {address}: {source}; set --port to a free port")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// Signals cannot be handled, or a task of the process ended.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// The arguments are refused, the port cannot be bound, or signals cannot be handled.
pub async fn run(args: Args) -> Result<(), ServeError> {
    let options = args.options()?;
    let runtime = Runtime::new()?;
    let shutdown = runtime.shutdown();
    let address = SocketAddr::new(options.address, options.port);
    let bad = |source| ServeError::Bind { address, source };
    let listener = bind(address).await.map_err(bad)?;
    let address = listener.local_addr().map_err(bad)?;
    tracing::info!(%address, path = options.path, "listening");
    let resources = Resources::new(options).map_err(RuntimeError::Signals)?;
    let bridge = Arc::new(Bridge::new(resources));
    let connections = TaskTracker::new();
    let stop = async {
        shutdown.cancelled().await;
        close(&bridge, &connections).await;
    };
    let main = async {
        tokio::select! {
            () = accept(listener, &bridge, &connections) => {}
            () = stop => {}
        }
        Ok(())
    };
    runtime.run(main).await
}

/// Binds all addresses of both families, or of IPv4 alone where the node has no IPv6.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(_) if address.is_ipv6() && address.ip().is_unspecified() => {
            TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], address.port()))).await
        }
        bound => bound,
    }
}

async fn accept(listener: TcpListener, bridge: &Arc<Bridge>, connections: &TaskTracker) {
    loop {
        match listener.accept().await {
            // Connections over the second limit are closed at once: each may hold memory, even if it is idle.
            Ok((io, _)) => match connections.len() {
                0..MAX_CONNECTIONS => drop(connections.spawn(connection(io, bridge.clone(), Overload::No))),
                MAX_CONNECTIONS..MAX_OVERLOADED_CONNECTIONS => {
                    drop(connections.spawn(connection(io, bridge.clone(), Overload::Yes)))
                }
                _ => drop(io),
            },
            Err(error) => {
                // Usually too many open files: some will be closed soon.
                tracing::warn!(%error, "accept a connection");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(io: TcpStream, bridge: Arc<Bridge>, overload: Overload) {
    let keepalive = TcpKeepalive::new().with_time(USER_TIMEOUT / 2).with_interval(USER_TIMEOUT / 6);
    if io.set_nodelay(true).and_then(|()| SockRef::from(&io).set_tcp_keepalive(&keepalive)).is_err() {
        return;
    }
    let closing = bridge.resources.closing.clone();
    let service = service_fn(move |request| {
        let bridge = bridge.clone();
        async move { Ok::<_, Infallible>(http::handle(bridge, request, overload).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_BUFFER);
    let mut serving = std::pin::pin!(server.serve_connection(TokioIo::new(io), service));
    // A connection that comes while the bridge ends still gets a refusal.
    let ended = if closing.is_cancelled() {
        serving.await
    } else {
        tokio::select! {
            ended = serving.as_mut() => ended,
            () = closing.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection broke: {error}");
    }
}

/// Shuts everything down, in order.
async fn close(bridge: &Bridge, connections: &TaskTracker) {
    tracing::info!("ending");
    bridge.resources.closing.cancel();
    bridge.sessions.end_listening();
    bridge.stateless.end_subscriptions();
    connections.close();
    if timeout(DRAIN_TIMEOUT, connections.wait()).await.is_err() {
        tracing::warn!("requests in flight are cut off: they did not end within {} s", DRAIN_TIMEOUT.as_secs());
    }
    bridge.resources.children_end.cancel();
    bridge.resources.tasks.close();
    bridge.resources.tasks.wait().await;
    // Responses that failed because of the shutdown still have to be sent.
    let _ = timeout(FLUSH_TIMEOUT, connections.wait()).await;
}
