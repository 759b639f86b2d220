//! The life of the process: bind, accept, end.

use crate::state::ProxyContext;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use daemon::runtime::{Runtime, RuntimeError};
use http1::listen;
use tokio::net::TcpListener;

use super::{config::ProxyConfig, connection};

/// The process cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours to bind.
    #[error("listen on {address}: {source}; set RECIF_LISTEN_ADDR to a free address")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The process has no frame.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// No name for this instance.
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// Serves until SIGTERM or SIGINT. Nothing hangs on those: the workload has exited when they come.
///
/// # Errors
/// The address cannot be bound or signals cannot be handled.
pub async fn run(config: ProxyConfig) -> Result<(), ServeError> {
    let runtime = Runtime::new()?;
    let shutdown = runtime.shutdown();
    let address = config.listen;
    let listener = bind(address).map_err(|source| ServeError::Bind { address, source })?;
    let address = listener.local_addr().map_err(|source| ServeError::Bind { address, source })?;
    tracing::info!(%address, upstream = %config.upstream, workload = config.workload, "listening");
    let shared = ProxyContext::new(config)?;
    let main = async {
        tokio::select! { () = accept(listener, shared) => {}, () = shutdown.cancelled() => {} }
        Ok(())
    };
    runtime.run(main).await
}

/// Every address of both families, or of IPv4 alone where the node has no IPv6.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    listen(address).or_else(|error| match address.ip().is_unspecified() && address.is_ipv6() {
        true => listen(SocketAddr::from(([0, 0, 0, 0], address.port()))),
        false => Err(error),
    })
}

/// Serves every connection, for as long as this is polled; those that it has accepted go on.
pub(super) async fn accept(listener: TcpListener, shared: Arc<ProxyContext>) {
    loop {
        match listener.accept().await {
            Ok((io, peer)) => {
                let shared = shared.clone();
                tokio::spawn(async move { connection::serve(io, peer.ip(), &shared).await });
            }
            Err(error) => {
                // Out of file descriptors, usually: some will be given back.
                tracing::warn!(%error, "accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
