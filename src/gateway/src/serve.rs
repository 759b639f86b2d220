//! What all requests share, and the loop that takes connections.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use cluster::{Board, cache::Keys};
use daemon::tls::{Tls, chose_h2};
use futures::{FutureExt as _, future::join_all};
use http1::listen;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    answer::Answer,
    args::Settings,
    auth::Auth,
    clients::{Client, Clients},
    clock::Clock,
    connection::{self, Peer},
    h2,
    metrics::Metrics,
    pod::{POOLS, use_pool},
    routes::Routes,
    turn,
};

/// What all requests share.
#[derive(Debug)]
pub(super) struct Shared {
    /// What the command line says.
    pub(super) settings: Settings,
    /// Where requests go.
    pub(super) routes: Routes,
    /// Who may ask.
    pub(super) auth: Auth,
    /// What callers are vouched for with.
    pub(super) keys: Keys,
    /// What each client has in flight.
    pub(super) clients: Clients,
    /// The connections of each address.
    pub(super) connections: Clients,
    /// What is counted.
    pub(super) metrics: Metrics,
    /// The time.
    pub(super) clock: Clock,
    /// New after each start.
    pub(super) instance: String,
    /// What the watches know.
    pub(super) board: Arc<Board>,
    /// Whether clients are asked to go elsewhere with their next request.
    pub(super) leaving: AtomicBool,
    /// Cancelled when connections without a request end.
    pub(super) closing: CancellationToken,
    /// How often requests began to wait for a workload that had no ready Pod and for which none waited before.
    pub(super) cold: watch::Sender<u64>,
}

impl Shared {
    /// Whether this process is to end soon.
    pub(super) fn leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    /// There is no such workload, as far as is known.
    pub(super) fn unknown(&self, key: &[u8]) -> Answer {
        let namespace = key.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
        match self.board.knows(&String::from_utf8_lossy(namespace)) {
            true => turn::unknown(),
            false => Answer::new(503, "starting", "the gateway does not know yet which workloads there are"),
        }
    }

    /// Who is at the other end of a connection that speaks this protocol, `http` or `https`.
    pub(super) fn peer(&self, address: IpAddr, proto: &'static str) -> Peer {
        let address = address.to_canonical();
        let trusted = self.trusts(address);
        Peer { address, text: address.to_string().into(), proto, trusted }
    }

    /// Whether what this address says of those before it is believed.
    pub(super) fn trusts(&self, address: IpAddr) -> bool {
        self.settings.trusted_proxies.iter().any(|network| network.contains(address))
    }
}

/// Takes the port. The listener is of no runtime yet, so that several can share it.
///
/// # Errors
/// When it cannot be had.
pub(super) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    listen(address)?.into_std()
}

/// Serves the connections of each listener, by TLS where there is one, on a thread for each processor, until all have ended
/// as [`accept`] says. Threads do not share tasks: a request is served where its connection was taken, from its first byte to
/// its last.
///
/// # Errors
/// The system gives no more threads.
pub(super) async fn accept_on_all(
    listeners: Vec<(std::net::TcpListener, Option<Tls>)>,
    shared: Arc<Shared>,
    patience: Duration,
) -> io::Result<()> {
    let count = std::thread::available_parallelism().map_or(1, usize::from).min(POOLS);
    let mut threads = JoinSet::new();
    for number in 0..count {
        let copy = |(listener, tls): &(std::net::TcpListener, Option<Tls>)| Ok((listener.try_clone()?, tls.clone()));
        let (listeners, shared) = (listeners.iter().map(copy).collect::<io::Result<Vec<_>>>()?, shared.clone());
        threads.spawn_blocking(move || {
            use_pool(number);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let accepting = listeners.into_iter().map(|(listener, tls)| {
                    Ok(accept(TcpListener::from_std(listener)?, tls, shared.clone(), patience, count))
                });
                join_all(accepting.collect::<io::Result<Vec<_>>>()?).await;
                Ok::<_, io::Error>(())
            })
        });
    }
    drop(listeners);
    while let Some(ended) = threads.join_next().await {
        ended.map_err(io::Error::other)??;
    }
    Ok(())
}

/// Serves every connection, by TLS if there is one, until `closing` is cancelled and the last one has ended, or for
/// `patience` after that: then the others are aborted. `threads` do so and share what is allowed.
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<Tls>,
    shared: Arc<Shared>,
    patience: Duration,
    threads: usize,
) {
    let most = shared.settings.max_connections.div_ceil(threads);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = shared.closing.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < most => match accepted {
                Ok((io, peer)) => {
                    connections.spawn(serve(io, peer.ip(), tls.clone(), shared.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, usually: some will be given back.
                    tracing::warn!(%error, "accept a connection");
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    // Those that the kernel has taken already would be reset.
    while let Some(Ok((io, peer))) = listener.accept().now_or_never() {
        connections.spawn(serve(io, peer.ip(), tls.clone(), shared.clone()));
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(patience, ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests did not end in time: aborting them");
        connections.shutdown().await;
    }
}

/// Serves one connection, unless its address has as many as it may.
async fn serve(io: TcpStream, address: IpAddr, tls: Option<Tls>, shared: Arc<Shared>) {
    let address = address.to_canonical();
    let counted = match shared.trusts(address) {
        true => None,
        false => match shared.connections.begin(|| Client::Address(address)) {
            Some(ticket) => Some(ticket),
            None => return shared.metrics.connection_refused(),
        },
    };
    match tls {
        None => connection::serve(io, &shared.peer(address, "http"), &shared).await,
        Some(tls) => Box::pin(serve_tls(io, address, tls, shared.clone())).await,
    }
    drop(counted);
}

async fn serve_tls(io: TcpStream, address: IpAddr, tls: Tls, shared: Arc<Shared>) {
    // Whoever does not speak TLS was told so by it.
    let Ok(io) = tls.accept(io).await else { return };
    let peer = shared.peer(address, "https");
    if chose_h2(&io) {
        h2::serve(io, Vec::new(), peer, shared).await;
    } else {
        connection::serve(io, &peer, &shared).await;
    }
}
