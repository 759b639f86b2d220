//! Proxy on loopback in front of the API server, for clients in other processes.

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

/// Running proxy. It ends when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    /// Address on which it listens: plain HTTP/1.1, without authentication.
    pub address: SocketAddr,
    /// Layer with the schedule and the log.
    pub faults: FaultLayer,
    accepting: AbortHandle,
}

impl FaultProxy {
    /// Starts a proxy that forwards to the API server of `upstream`, with the credentials of `upstream`.
    ///
    /// # Errors
    /// No port is free, or the configuration makes no client.
    pub async fn start(mut upstream: Config, faults: FaultLayer) -> Result<Self> {
        // A refused request is not retried by the proxy.
        upstream.default_retry = false;
        // A watch may be silent for as long as its client accepts it.
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
                // A lost call ends its connection, and the client sees a reset (RST).
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
