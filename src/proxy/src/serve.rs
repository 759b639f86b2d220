//! Process of the sidecar: binds, accepts, and serves until a signal.

use crate::state::ProxyContext;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use daemon::runtime::{Runtime, RuntimeError};
use http1::listen;
use tokio::net::TcpListener;

use super::{config::ProxyConfig, connection};

/// Reasons why the process cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is in use, or must not be bound.
    #[error("listen on {address}: {source}; set RECIF_LISTEN_ADDR to a free address")]
    Bind {
        /// Address to listen on.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The runtime of the process could not be set up.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// No random instance id could be generated.
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// Serves until SIGTERM or SIGINT. No request depends on the signal: the workload has exited by then.
///
/// # Errors
/// The address cannot be bound, or signals cannot be handled.
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

/// Binds all addresses of both families, or those of IPv4 alone where the node has no IPv6.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    listen(address).or_else(|error| match address.ip().is_unspecified() && address.is_ipv6() {
        true => listen(SocketAddr::from(([0, 0, 0, 0], address.port()))),
        false => Err(error),
    })
}

/// Accepts and serves connections for as long as this is polled. Accepted connections go on afterwards.
pub(super) async fn accept(listener: TcpListener, shared: Arc<ProxyContext>) {
    loop {
        match listener.accept().await {
            Ok((io, peer)) => {
                let shared = shared.clone();
                tokio::spawn(async move { connection::serve(io, peer.ip(), &shared).await });
            }
            Err(error) => {
                // Usually no file descriptor is left; some will be released.
                tracing::warn!(%error, "accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
