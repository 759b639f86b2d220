//! Byte stream of a client, and the address of its peer.

use std::{net::IpAddr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// Byte stream of a client: a TCP socket, TLS over one, or an HTTP/2 stream.
pub(super) trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send {
    /// Makes dropping the stream an abort (TCP reset or stream reset), which no client takes for a clean end.
    fn abort(&mut self);

    /// Waits until the client has shut down its side or left, without consuming what it sent.
    fn closed(&mut self) -> impl Future<Output = ()> + Send;
}

/// Peer of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// IP address of the peer.
    pub(super) address: IpAddr,
    /// Same address, as written in `X-Forwarded-For`.
    pub(super) text: Box<str>,
    /// Scheme that the peer uses: `http` or `https`.
    pub(super) proto: &'static str,
    /// Set if the peer is a trusted proxy, whose `X-Forwarded-*` fields are believed.
    pub(super) trusted: bool,
}

/// Interval at which a client that sent urgent data is checked for its end.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(100);

impl ClientStream for TcpStream {
    fn abort(&mut self) {
        // The kernel sends RST instead of FIN. If setting the option fails, nothing else can be done.
        let _ = self.set_zero_linger();
    }

    async fn closed(&mut self) {
        // HTTP clients send no urgent data, so only the end of the stream makes this ready, even behind unread bytes. A
        // stream that cannot be polled counts as closed.
        while self.ready(Interest::PRIORITY).await.is_ok_and(|ready| !ready.is_read_closed()) {
            tokio::time::sleep(CLOSE_POLL_INTERVAL).await;
        }
    }
}

impl ClientStream for TlsStream<TcpStream> {
    fn abort(&mut self) {
        // Without a close_notify, and with RST, no client takes this for a clean end.
        let _ = self.get_ref().0.set_zero_linger();
    }

    async fn closed(&mut self) {
        self.get_mut().0.closed().await;
    }
}
