//! Finds the API server and makes clients for it.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, header::USER_AGENT};
use kube::{Client, Config};

use super::{crash::CrashPoint, lease::Authority, metrics::Metrics, transport::Transport};

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

/// A transport to the cluster of the kubeconfig, or of the Pod this runs in. Nothing is sent yet.
///
/// # Errors
/// When no cluster is configured, or its configuration cannot be used.
pub async fn connect(
    authority: Authority,
    crash: CrashPoint,
    metrics: Metrics,
) -> Result<Arc<Transport>, ConnectError> {
    let mut config = Config::infer().await?;
    config.connect_timeout = Some(Duration::from_secs(3));
    config.default_retry = false;
    let agent = concat!("recif/", env!("CARGO_PKG_VERSION"));
    config.headers.push((USER_AGENT, HeaderValue::from_static(agent)));
    let client = Client::try_from(config.clone())?;
    let renew = move || {
        let fresh = Client::try_from(config.clone());
        fresh.inspect_err(|error| tracing::error!(%error, "cannot make a new client")).ok()
    };
    Ok(Arc::new(Transport::new(client, renew, authority, crash, metrics)))
}
