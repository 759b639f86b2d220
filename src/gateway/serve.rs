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

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    answer::Answer,
    args::Settings,
    auth::Auth,
    clients::Clients,
    clock::Clock,
    connection::{self, Peer},
    metrics::Metrics,
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
    /// What each client has in flight.
    pub(super) clients: Clients,
    /// What is counted.
    pub(super) metrics: Metrics,
    /// The time.
    pub(super) clock: Clock,
    /// New after each start.
    pub(super) instance: String,
    /// Whether every watch has had a complete list.
    pub(super) synced: AtomicBool,
    /// Whether clients are asked to go elsewhere with their next request.
    pub(super) leaving: AtomicBool,
    /// Cancelled when connections without a request end.
    pub(super) closing: CancellationToken,
}

impl Shared {
    /// Whether this process is to end soon.
    pub(super) fn leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    /// There is no such workload, as far as is known.
    pub(super) fn unknown(&self) -> Answer {
        match self.synced.load(Relaxed) {
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

/// Takes the port.
///
/// # Errors
/// When it cannot be had.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(4096)
}

/// Serves every connection until `closing` is cancelled and the last one has ended, or for `patience` after that: then the
/// others are aborted.
pub(super) async fn accept(listener: TcpListener, shared: Arc<Shared>, patience: Duration) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = shared.closing.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < shared.settings.max_connections => match accepted {
                Ok((io, peer)) => {
                    connections.spawn(serve(io, peer.ip(), shared.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, usually: some will be given back.
                    tracing::warn!(%error, "accept a connection");
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(patience, ended).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests did not end in time: aborting them");
        connections.shutdown().await;
    }
}

/// Serves one connection.
async fn serve(io: TcpStream, address: IpAddr, shared: Arc<Shared>) {
    // Tokens are small writes that must not wait for each other.
    if io.set_nodelay(true).is_ok() {
        connection::serve(io, &shared.peer(address, "http"), &shared).await;
    }
}
