//! What the connections of a relay have from the system.

use std::{io, net::SocketAddr, time::Duration};

use socket2::TcpKeepalive;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

use super::Connection;

/// A client that is silent on the network for so long is gone.
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// Takes a port. Connections have from their listener that small writes do not wait for each other, and that they end after
/// 30 s without a sign of life from the other side.
///
/// # Errors
/// The port cannot be had.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.set_reuseaddr(true)?;
    let options = socket2::SockRef::from(&socket);
    options.set_tcp_nodelay(true)?;
    options.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(DEAD_PEER_TIMEOUT / 2).with_interval(DEAD_PEER_TIMEOUT / 6),
    )?;
    // Elsewhere than on Linux the keep-alive alone has to do.
    #[cfg(target_os = "linux")]
    options.set_tcp_user_timeout(Some(DEAD_PEER_TIMEOUT))?;
    socket.bind(address)?;
    socket.listen(4096)
}

/// Connects to a server, at most for so long.
///
/// # Errors
/// Nobody accepts.
pub async fn connect(address: SocketAddr, patience: Duration) -> io::Result<Connection<TcpStream>> {
    let io = timeout(patience, TcpStream::connect(address)).await??;
    // Tokens are small writes that must not wait for each other.
    io.set_nodelay(true)?;
    Ok(Connection::new(io))
}

impl Connection<TcpStream> {
    /// Whether nothing came on an idle connection: data that nobody asked for is not to be taken for the next answer, and the
    /// end is the end. This is a call to the kernel only if something happened since the last read.
    pub fn is_silent(&self) -> bool {
        self.io.try_read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_connection_has_what_its_listener_was_given() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let accepted = socket2::SockRef::from(&accepted);
        assert!(accepted.tcp_nodelay().unwrap() && accepted.keepalive().unwrap());
        #[cfg(target_os = "linux")]
        assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(DEAD_PEER_TIMEOUT));
    }
}
