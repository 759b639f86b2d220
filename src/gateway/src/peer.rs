//! Says what carries the bytes of a client, and who it is.

use std::{net::IpAddr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite, Interest},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// What carries a client's bytes: a socket, TLS over one, or a stream of HTTP/2.
pub(super) trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send {
    /// Makes the end that dropping it will bring one that nobody takes for a clean end.
    fn abort(&mut self);

    /// Waits until the client has ended its side or left, without reading what it sent.
    fn closed(&mut self) -> impl Future<Output = ()> + Send;
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// Its address.
    pub(super) address: IpAddr,
    /// The same, as it is written in `X-Forwarded-For`.
    pub(super) text: Box<str>,
    /// `http` or `https`: what it speaks to us.
    pub(super) proto: &'static str,
    /// Whether what it says of those before it is believed.
    pub(super) trusted: bool,
}

/// How often a client that did send urgent data is looked at.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(100);

impl ClientStream for TcpStream {
    fn abort(&mut self) {
        // The kernel sends a reset instead of an end. There is nothing left to do if it will not.
        let _ = self.set_zero_linger();
    }

    async fn closed(&mut self) {
        // Nobody sends urgent data, so only the end makes this ready, also behind bytes that nobody reads. One that cannot be
        // watched is as good as gone.
        while self.ready(Interest::PRIORITY).await.is_ok_and(|ready| !ready.is_read_closed()) {
            tokio::time::sleep(CLOSE_POLL_INTERVAL).await;
        }
    }
}

impl ClientStream for TlsStream<TcpStream> {
    fn abort(&mut self) {
        // Without a close_notify, and reset besides, nobody takes this for the end.
        let _ = self.get_ref().0.set_zero_linger();
    }

    async fn closed(&mut self) {
        self.get_mut().0.closed().await;
    }
}
