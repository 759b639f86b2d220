//! preStop hook of the sidecar's container: the program is run once more, and announces the termination over loopback.
//!
//! An HTTP hook would come from the node, and so could a call by any client that can reach the Pod and read its
//! template.

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

/// Longest wait for the sidecar, which responds at once.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The termination was not announced.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The sidecar accepts no connection, or does not respond in time.
    #[error("notify the sidecar on {0} that the Pod is terminating: {1}")]
    Unreachable(SocketAddr, io::Error),
    /// The sidecar refuses the call.
    #[error("the sidecar on {0} answers `{1}`: RECIF_KEY must be the one that it was started with")]
    Refused(SocketAddr, String),
}

/// Announces the termination of the Pod to the sidecar with this configuration (lame duck).
///
/// # Errors
/// The sidecar was not reached, or refused.
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
