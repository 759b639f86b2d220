//! Tests of the sidecar over real sockets on loopback, with a scripted workload.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use testing::connection::{SOON, read_exactly, read_head};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{config::ProxyConfig, connection, serve::accept, state::ProxyContext};

mod aborts;
mod callers;
mod life;
mod local;
mod own_paths;
mod refusals;
mod slots;
mod traffic;
mod usage;

/// Proxy in front of a workload whose connections the test holds.
struct TestProxy {
    address: SocketAddr,
    shared: Arc<ProxyContext>,
    accepted: mpsc::UnboundedReceiver<TcpStream>,
}

impl TestProxy {
    async fn start(variables: &[(&str, &str)]) -> Self {
        let workload = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (sender, accepted) = mpsc::unbounded_channel();
        let address = workload.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((io, _)) = workload.accept().await {
                if sender.send(io).is_err() {
                    return;
                }
            }
        });
        Self { accepted, ..Self::before(address, variables).await }
    }

    /// Starts a proxy in front of this address, whether a workload listens there or not.
    async fn before(workload: SocketAddr, variables: &[(&str, &str)]) -> Self {
        let shared = shared(workload, variables);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(accept(listener, shared.clone()));
        Self { address, shared, accepted: mpsc::unbounded_channel().1 }
    }

    async fn client(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Returns the workload's end of the next connection that is not a mere probe, once a whole head has arrived on it.
    async fn workload(&mut self) -> (TcpStream, String) {
        loop {
            let mut io = timeout(SOON, self.accepted.recv()).await.unwrap().unwrap();
            if timeout(SOON, io.peek(&mut [0])).await.unwrap().unwrap() > 0 {
                let head = read_head(&mut io).await;
                return (io, head);
            }
        }
    }

    /// Sends these bytes on a new connection. Returns both ends, and the head that the workload got.
    async fn request(&mut self, bytes: &[u8]) -> (TcpStream, TcpStream, String) {
        let mut client = self.client().await;
        client.write_all(bytes).await.unwrap();
        let (workload, head) = self.workload().await;
        (client, workload, head)
    }

    /// Sends these bytes on a new connection, and returns everything that is received until it is closed.
    async fn answer(&self, bytes: &[u8]) -> String {
        let mut client = self.client().await;
        client.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        timeout(SOON, client.read_to_end(&mut answer)).await.unwrap().unwrap();
        String::from_utf8(answer).unwrap()
    }

    async fn until_in_flight(&self, expected: u32) {
        let reached = async {
            while self.shared.load.in_flight() != expected {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(SOON, reached).await.unwrap();
    }
}

/// Creates the state of a proxy in front of this workload.
fn shared(workload: SocketAddr, variables: &[(&str, &str)]) -> Arc<ProxyContext> {
    let upstream = format!("http://{workload}");
    let config = ProxyConfig::read(|name| match name {
        "RECIF_UPSTREAM_URL" => Some(upstream.clone()),
        "RECIF_KEY" => Some("key".to_owned()),
        _ => variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()),
    });
    ProxyContext::new(config.unwrap()).unwrap()
}

const GET: &[u8] = b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Returns the request of one of the Pod's hooks.
fn hook(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Recif-Key: key\r\nConnection: close\r\n\r\n")
}
