//! The preStop hook of the sidecar's own container: its program is run once more and tells it over loopback that the Pod is going.
//!
//! A hook by HTTP comes from the node, and so may anybody's who can reach the Pod and read its template.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::config::ProxyConfig;

/// Longest wait for the sidecar, which answers at once.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The sidecar was not told.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// Nobody listens, or it says nothing in time.
    #[error("tell the sidecar on {0} that the Pod is going: {1}")]
    Unreachable(SocketAddr, io::Error),
    /// It does not do as it is told.
    #[error("the sidecar on {0} answers `{1}`: RECIF_KEY must be the one that it was started with")]
    Refused(SocketAddr, String),
}

/// Tells the sidecar of this configuration that the Pod is going.
///
/// # Errors
/// It was not told.
pub async fn lame_duck(config: &ProxyConfig) -> Result<(), HookError> {
    let host = config.listen.ip();
    let host = if host.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { host };
    let address = SocketAddr::new(host, config.listen.port());
    let ask = async {
        let mut io = TcpStream::connect(address).await?;
        let key = config.key.as_str();
        let head = format!("GET /_recif/lame-duck HTTP/1.1\r\nHost: localhost\r\nX-Recif-Key: {key}\r\n");
        io.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        io.read_to_end(&mut answer).await?;
        Ok(answer)
    };
    let answer = timeout(RESPONSE_TIMEOUT, ask).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let answer = answer.map_err(|error| HookError::Unreachable(address, error))?;
    match answer.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(()),
        false => {
            let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
            Err(HookError::Refused(address, line))
        }
    }
}
