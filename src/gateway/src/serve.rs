//! Accept loops, and the serving of one connection: limits, TLS, and the choice of the HTTP version by ALPN or preface.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use daemon::tls::{Tls, negotiated_h2};
use futures::{FutureExt as _, future::join_all};
use http1::{Connection, listen};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    clients::ClientId,
    h2,
    pod::{MAX_POOLS, use_pool},
    state::GatewayContext,
};
use crate::{
    connection::{ConnectionEnd, requests},
    peer::{ClientStream, Peer},
};

/// Binds an address. The listener is not registered with a runtime yet, so that several threads can share it.
///
/// # Errors
/// The address cannot be bound.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    listen(address)?.into_std()
}

/// Serves the connections of each listener, over TLS where configured, on one thread per processor, until all have
/// ended as [`accept`] says. Threads share no tasks: a request stays on the thread that accepted its connection.
///
/// # Errors
/// The system provides no more threads or file descriptors.
pub(super) async fn accept_on_all(
    listeners: Vec<(std::net::TcpListener, Option<Tls>)>,
    shared: Arc<GatewayContext>,
    patience: Duration,
) -> io::Result<()> {
    let count = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_POOLS);
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

/// Accepts and serves connections, over TLS if configured, until `closing` is cancelled; then drains them for
/// `patience` and aborts the rest. The limit on connections is divided by `threads`. At the limit it stops accepting,
/// so further connections wait in the kernel's backlog (backpressure).
pub(super) async fn accept(
    listener: TcpListener,
    tls: Option<Tls>,
    shared: Arc<GatewayContext>,
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
                    // Usually no file descriptor is left; some will be released.
                    tracing::warn!(%error, "accept a connection");
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    // Connections that are already in the kernel's backlog would be reset.
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

/// Serves one connection, unless its address is at its connection limit.
async fn serve(io: TcpStream, address: IpAddr, tls: Option<Tls>, shared: Arc<GatewayContext>) {
    let address = address.to_canonical();
    let counted = match shared.trusts(address) {
        true => None,
        false => match shared.connections.acquire(|| ClientId::Address(address)) {
            Some(ticket) => Some(ticket),
            None => return shared.metrics.connection_refused(),
        },
    };
    match tls {
        None => serve_connection(io, &shared.peer(address, "http"), &shared).await,
        Some(tls) => Box::pin(serve_tls(io, address, tls, shared.clone())).await,
    }
    drop(counted);
}

async fn serve_tls(io: TcpStream, address: IpAddr, tls: Tls, shared: Arc<GatewayContext>) {
    // The TLS alert reports a failed handshake to the client.
    let Ok(io) = tls.accept(io).await else { return };
    let peer = shared.peer(address, "https");
    if negotiated_h2(&io) {
        h2::serve(io, Vec::new(), peer, shared).await;
    } else {
        serve_connection(io, &peer, &shared).await;
    }
}

/// Serves a connection to its end, over HTTP/1.1 or HTTP/2, as the client chooses.
pub(super) async fn serve_connection<S: ClientStream + 'static>(io: S, peer: &Peer, shared: &Arc<GatewayContext>) {
    let mut client = Connection::new(io);
    if let ConnectionEnd::SpeaksH2 = requests(&mut client, peer, shared).await {
        Box::pin(h2::serve(client.io, client.incoming, peer.clone(), shared.clone())).await;
    }
}
