//! A listener on loopback before the API server, for clients that are other processes.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use kube::{Client, Config, client::Body};
use tokio::{net::TcpListener, task::AbortHandle};
use tower::{Layer as _, service_fn};

use super::FaultLayer;

/// A proxy. It ends when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    /// Where it listens: plain HTTP/1.1, without a credential of its own.
    pub address: SocketAddr,
    /// What it does to calls, and what passed.
    pub faults: FaultLayer,
    accepting: AbortHandle,
}

impl FaultProxy {
    /// One that forwards as the user of `upstream`, which says where the API server is.
    ///
    /// # Errors
    /// No port, or a configuration that no client can be made of.
    pub async fn start(mut upstream: Config, faults: FaultLayer) -> Result<Self> {
        // What is refused is refused once.
        upstream.default_retry = false;
        // A watch may be silent for as long as its client bears it.
        upstream.read_timeout = None;
        let client = Client::try_from(upstream).context("make the proxy's client")?;
        let listener = TcpListener::bind("127.0.0.1:0").await.context("find a port for the proxy")?;
        let address = listener.local_addr()?;
        let forward = service_fn(move |request: http::Request<bytes::Bytes>| {
            let client = client.clone();
            async move { client.send(request.map(Body::from)).await }
        });
        let service = faults.layer(forward);
        let accepting = tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                // A call that is lost ends its connection, and the client sees a reset.
                let _ = io.set_zero_linger();
                let service = TowerToHyperService::new(service.clone());
                tokio::spawn(async move {
                    let mut http = hyper::server::conn::http1::Builder::new();
                    http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(600));
                    let _ = http.serve_connection(TokioIo::new(io), service).await;
                });
            }
        });
        Ok(Self { address, faults, accepting: accepting.abort_handle() })
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
