//! Fake MCP servers at one address: each has a path of its own, and the times of its discoveries are recorded.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use e2e::http1::{ReceivedRequest, respond};
use serde_json::{Value, json};
use tokio::{
    io::BufReader,
    net::{TcpListener, TcpStream},
};

/// Discovery as the server received it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedDiscovery {
    /// Number of the server.
    pub(crate) server: usize,
    /// Time of its `tools/list` request; there is only one page.
    pub(crate) at: Instant,
}

/// Many fake MCP servers behind one listener.
pub(crate) struct FakeMcpServers {
    address: SocketAddr,
    shared: Arc<FakeMcpState>,
}

struct FakeMcpState {
    discoveries: Mutex<Vec<ReceivedDiscovery>>,
    /// Number of the server that never responds; `usize::MAX` means none.
    hanging: AtomicUsize,
}

impl FakeMcpServers {
    /// Starts the servers, which run as long as the process.
    pub(crate) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(FakeMcpState { discoveries: Mutex::default(), hanging: AtomicUsize::new(usize::MAX) });
        let farm = Self { address, shared: shared.clone() };
        tokio::spawn(async move {
            while let Ok((io, _)) = listener.accept().await {
                let shared = shared.clone();
                // A client that disconnects ends its own connection only.
                tokio::spawn(async move { shared.serve(io).await });
            }
        });
        Ok(farm)
    }

    /// Returns the URL of a server.
    pub(crate) fn url(&self, server: usize) -> String {
        format!("http://{}/mcp/{server}", self.address)
    }

    /// Makes this server stop responding.
    pub(crate) fn hang(&self, server: usize) {
        self.shared.hanging.store(server, Ordering::Relaxed);
    }

    /// Returns the discoveries since the previous call, in order of arrival.
    pub(crate) fn drain_discoveries(&self) -> Vec<ReceivedDiscovery> {
        std::mem::take(&mut *self.shared.discoveries.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl FakeMcpState {
    async fn serve(&self, io: TcpStream) -> io::Result<()> {
        let mut io = BufReader::new(io);
        while let Some(request) = ReceivedRequest::read(&mut io).await? {
            let server = request.path().rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or_default();
            let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            if message["method"] == "tools/list" {
                let asked = ReceivedDiscovery { server, at: Instant::now() };
                self.discoveries.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
            }
            if self.hanging.load(Ordering::Relaxed) == server {
                std::future::pending::<()>().await;
            }
            respond(&mut io, "200 OK", "application/json", &response(&message).to_string(), false).await?;
        }
        Ok(())
    }
}

/// Returns the response of a server of the newer protocol era with ten tools.
fn response(request: &Value) -> Value {
    let result = match request["method"].as_str() {
        Some("server/discover") => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "ttlMs": 0, "cacheScope": "private",
        }),
        _ => {
            let tool = |number: usize| json!({"name": format!("tool-{number}"), "inputSchema": {"type": "object"}});
            let tools: Vec<Value> = (0..10).map(tool).collect();
            json!({"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"})
        }
    };
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
}
