//! Sends one request per connection.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Sends a GET and reads to the end of the connection: the status code, and the text after the head.
pub(crate) async fn get(io: &mut TcpStream, path: &str) -> Result<(u16, String)> {
    io.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut bytes = Vec::new();
    io.read_to_end(&mut bytes).await?;
    let text = String::from_utf8_lossy(&bytes);
    let status = text.get(9..12).and_then(|code| code.parse().ok()).with_context(|| format!("{text:?}"))?;
    Ok((status, text.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned()))
}

/// Sends a GET on a new connection.
pub(crate) async fn get_from(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    get(&mut TcpStream::connect(address).await?, path).await
}
