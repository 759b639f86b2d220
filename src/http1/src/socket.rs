//! TCP sockets of a relay: options of listeners and connections.

use std::{io, net::SocketAddr, time::Duration};

use socket2::TcpKeepalive;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::timeout,
};

use super::Connection;

/// Time of network silence after which a peer counts as dead.
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// Binds a listener. Accepted connections inherit its options: no delay for small writes (`TCP_NODELAY`), and an end
/// after 30 s without a sign of life from the peer (keep-alive and, on Linux, `TCP_USER_TIMEOUT`).
///
/// # Errors
/// The address cannot be bound.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
    socket.set_reuseaddr(true)?;
    let options = socket2::SockRef::from(&socket);
    options.set_tcp_nodelay(true)?;
    options.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(DEAD_PEER_TIMEOUT / 2).with_interval(DEAD_PEER_TIMEOUT / 6),
    )?;
    // On other systems than Linux, keep-alive alone must do.
    #[cfg(target_os = "linux")]
    options.set_tcp_user_timeout(Some(DEAD_PEER_TIMEOUT))?;
    socket.bind(address)?;
    socket.listen(4096)
}

/// Connects to a server within `patience`.
///
/// # Errors
/// The server does not accept the connection in time.
pub async fn connect(address: SocketAddr, patience: Duration) -> io::Result<Connection<TcpStream>> {
    let io = timeout(patience, TcpStream::connect(address)).await??;
    // Tokens are small writes that must not be delayed.
    io.set_nodelay(true)?;
    Ok(Connection::new(io))
}

impl Connection<TcpStream> {
    /// Reports whether an idle connection received neither data nor its end. Unrequested data must not be taken for the
    /// next response. Calls the kernel only if something happened since the last read.
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
