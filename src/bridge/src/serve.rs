//! The life of the bridge: bind, accept, drain.
//!
//! On SIGTERM nothing new begins, streams that only listen end, and requests in flight have some time to finish; then the
//! children end. All of that stays within the ten seconds that a workload has for it.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use daemon::runtime::{Runtime, RuntimeError};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    args::{Args, BridgeOptions},
    command::ArgsError,
    http::{self, Overload},
    memory::MemoryBudget,
    reaper::Reaper,
    sessions::Sessions,
    stateless::StatelessChild,
};

/// How long requests in flight may take to finish.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(6);
/// How long connections may take to send what is written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a head may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head, and what is written ahead of a client.
const MAX_BUFFER: usize = 64 << 10;
/// Connections at the same time; and up to how many more are told so, or answered if they are probes.
const MAX_CONNECTIONS: usize = 1024;
const MAX_OVERLOADED_CONNECTIONS: usize = MAX_CONNECTIONS + 64;
/// A client that is silent on the network for so long is gone.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// What everything in the bridge shares.
#[derive(Debug)]
pub(super) struct Bridge {
    pub(super) options: BridgeOptions,
    pub(super) reaper: Arc<Reaper>,
    pub(super) sessions: Sessions,
    pub(super) stateless: Arc<StatelessChild>,
    /// The room for messages.
    pub(super) memory: MemoryBudget,
    /// What serves children; each ends with its child.
    pub(super) tasks: TaskTracker,
    /// Nothing new begins.
    pub(super) closing: CancellationToken,
    /// Children end.
    pub(super) children_end: CancellationToken,
}

/// The bridge cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An argument is refused.
    #[error(transparent)]
    Args(#[from] ArgsError),
    /// The port is taken or not ours to bind.
    #[error("listen on {address}: {source}; set --port to a free port")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The process has no frame.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl Bridge {
    /// How long a child may take for each step of its end.
    pub(super) fn stop_timeout(&self) -> Duration {
        if self.closing.is_cancelled() { Duration::from_secs(1) } else { Duration::from_secs(2) }
    }
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
    let bridge = Arc::new(Bridge {
        reaper: Reaper::start().map_err(RuntimeError::Signals)?,
        sessions: Sessions::new(options.max_sessions),
        stateless: Arc::default(),
        memory: MemoryBudget::default(),
        tasks: TaskTracker::new(),
        closing: CancellationToken::new(),
        children_end: CancellationToken::new(),
        options,
    });
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

/// Every address of both families, or of IPv4 alone where the node has no IPv6.
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
            // Each may hold memory, be it for nothing.
            Ok((io, _)) => match connections.len() {
                0..MAX_CONNECTIONS => drop(connections.spawn(connection(io, bridge.clone(), Overload::No))),
                MAX_CONNECTIONS..MAX_OVERLOADED_CONNECTIONS => {
                    drop(connections.spawn(connection(io, bridge.clone(), Overload::Yes)))
                }
                _ => drop(io),
            },
            Err(error) => {
                // Out of file descriptors, usually: some will be given back.
                tracing::warn!(%error, "accept a connection");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(io: TcpStream, bridge: Arc<Bridge>, crowd: Overload) {
    let keepalive = TcpKeepalive::new().with_time(USER_TIMEOUT / 2).with_interval(USER_TIMEOUT / 6);
    if io.set_nodelay(true).and_then(|()| SockRef::from(&io).set_tcp_keepalive(&keepalive)).is_err() {
        return;
    }
    let closing = bridge.closing.clone();
    let service = service_fn(move |request| {
        let bridge = bridge.clone();
        async move { Ok::<_, Infallible>(http::handle(bridge, request, crowd).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_BUFFER);
    let mut serving = std::pin::pin!(server.serve_connection(TokioIo::new(io), service));
    // One that comes while the bridge ends is told so.
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

/// Ends everything, in order.
async fn close(bridge: &Bridge, connections: &TaskTracker) {
    tracing::info!("ending");
    bridge.closing.cancel();
    bridge.sessions.end_listening();
    bridge.stateless.end_subscriptions();
    connections.close();
    if timeout(DRAIN_TIMEOUT, connections.wait()).await.is_err() {
        tracing::warn!("requests in flight are cut off: they did not end within {} s", DRAIN_TIMEOUT.as_secs());
    }
    bridge.children_end.cancel();
    bridge.tasks.close();
    bridge.tasks.wait().await;
    // What failed for that reason is still to be sent.
    let _ = timeout(FLUSH_TIMEOUT, connections.wait()).await;
}
