//! Readings of a `recif dev`, which has neither nodes nor installed parts.

use std::time::Duration;

use tokio::{net::TcpStream, time::timeout};
use url::Url;

use super::{
    KindCount, Scope,
    api::{ApiReader, Read},
    objects,
};
use crate::{
    cluster::{DevCluster, ServerTime, UserClient},
    error::CliError,
};

/// Longest wait for a connection to a part, which is on this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Everything that was read of a `recif dev`.
#[derive(Debug)]
pub(in crate::doctor) struct LocalReadings {
    /// Its addresses.
    pub dev: DevCluster,
    /// Names of the parts that accept no connection.
    pub silent: Vec<&'static str>,
    /// Response times of the API server.
    pub times: Read<Vec<ServerTime>>,
    /// Counts of the objects per kind.
    pub objects: Read<Vec<KindCount>>,
}

/// Reads everything of a `recif dev`.
///
/// # Errors
/// It does not run.
pub(in crate::doctor) async fn read_local(
    live: &UserClient,
    dev: &DevCluster,
    scope: &Scope,
) -> Result<LocalReadings, CliError> {
    let api = ApiReader::new(live, scope.timeout);
    api.version().await?;
    let mut silent = Vec::new();
    for (part, url) in [("gateway", &dev.gateway), ("control plane", &dev.control_plane)] {
        if !accepts(url).await {
            silent.push(part);
        }
    }
    let (times, objects) = (api.times().await, objects::read(&api, &scope.namespace).await);
    Ok(LocalReadings { dev: dev.clone(), silent, times, objects })
}

/// Reports whether a process accepts connections at a URL.
async fn accepts(url: &Url) -> bool {
    let Ok(addresses) = url.socket_addrs(|| None) else { return false };
    timeout(CONNECT_TIMEOUT, TcpStream::connect(addresses.as_slice())).await.is_ok_and(|connected| connected.is_ok())
}
