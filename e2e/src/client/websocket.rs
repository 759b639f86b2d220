//! WebSocket client that uses tokio-tungstenite, so it shares no code with the proxies under test.

use anyhow::{Context as _, Result, ensure};
use futures::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest as _, http::HeaderValue},
};

use super::{ClientTarget, connection::with_timeout};

/// Checks that a WebSocket echoes text and binary messages, also large ones, and closes with a close frame.
pub(crate) async fn check_websocket_echo(target: &ClientTarget, path: &str) -> Result<()> {
    let mut request = format!("ws://{}{}{path}", target.address, target.prefix).into_client_request()?;
    for line in target.headers.lines() {
        let (name, value) = line.split_once(": ").context("a header line")?;
        let name: http::HeaderName = name.parse()?;
        request.headers_mut().insert(name, HeaderValue::from_str(value)?);
    }
    let io = with_timeout("a connection", TcpStream::connect(target.address)).await??;
    let (mut socket, _) = with_timeout("the WebSocket's handshake", client_async(request, io)).await??;
    for message in [Message::text("hello"), Message::binary(vec![7; 100_000]), Message::text("")] {
        socket.send(message.clone()).await?;
        let back = with_timeout("the echo", socket.next()).await?.context("the WebSocket was closed")??;
        ensure!(back == message, "another message came back");
    }
    socket.close(None).await?;
    let end = with_timeout("the close frame", socket.next()).await?;
    ensure!(matches!(end, Some(Ok(Message::Close(_)))), "the WebSocket ended with {end:?}");
    Ok(())
}
