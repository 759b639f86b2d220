//! Finds the API server and makes clients for it.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, header::USER_AGENT};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{Client, Config, client::ConfigExt as _};
use tower::{BoxError, ServiceBuilder};

use super::{crash::CrashPoint, lease::Authority, metrics::Metrics, transport::Transport};

/// How long a connection that nobody uses is kept.
const IDLE: Duration = Duration::from_secs(20);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a service account.
    #[error("no cluster configured: set KUBECONFIG or run inside a Pod: {0}")]
    Config(#[from] kube::config::InferConfigError),
    /// The configuration cannot be used.
    #[error("the cluster configuration cannot be used: {0}")]
    Client(#[from] kube::Error),
}

/// A transport to the cluster of the kubeconfig, or of the Pod this runs in, on which a call may take `deadline`. Nothing is sent yet.
///
/// # Errors
/// When no cluster is configured, or its configuration cannot be used.
pub async fn connect(
    authority: Authority,
    crash: CrashPoint,
    metrics: Metrics,
    deadline: Duration,
) -> Result<Arc<Transport>, ConnectError> {
    let mut config = Config::infer().await?;
    config.connect_timeout = Some(Duration::from_secs(3));
    config.default_retry = false;
    let agent = concat!("recif/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    let client = make(&config)?;
    let renew = move || {
        let fresh = make(&config);
        fresh.inspect_err(|error| tracing::error!(%error, "cannot make a new client")).ok()
    };
    Ok(Arc::new(Transport::new(client, renew, authority, crash, metrics).within(deadline)))
}

/// A client without a connection yet. It is kube's own, but for three things: connections left over from a busy time, of some
/// 50 KB each, are closed; nothing waits in the kernel for more to send; and no span is made for each request, which the
/// transport reports already.
fn make(config: &Config) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        return Client::try_from(config.clone());
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(connector)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace.clone()))
}
