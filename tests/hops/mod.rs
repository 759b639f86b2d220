//! Runs one MCP server behind all hops: `recif-proxy mcp-bridge` unless the server speaks HTTP itself, the sidecar in front
//! of that, and a gateway that routes to the sidecar. Or one agent, behind the latter two.
//!
//! The hops are processes, as in a cluster. The gateway watches a fake API server: one workload with one Pod, which never
//! change.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::State,
    http::Uri,
    response::{IntoResponse as _, Response},
};
use futures::stream;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::bridge::{Bridge, SOON};

/// Workload behind the hops.
#[derive(Debug, Clone, Copy)]
enum Workload {
    /// MCP server with this transport.
    Server(&'static str),
    /// Agent.
    Agent,
}

/// MCP server or agent behind all hops. All processes end when it is dropped.
pub(crate) struct Hops {
    /// Innermost entry point: its name and its endpoint.
    first: (&'static str, String),
    _bridge: Option<Bridge>,
    sidecar: SocketAddr,
    gateway: SocketAddr,
    _processes: [Child; 2],
    kubeconfig: PathBuf,
}

impl Hops {
    /// Starts the hops for a command that speaks MCP over its standard input and output.
    pub(crate) async fn of(flags: &[&str], command: &[&str]) -> Self {
        let bridge = Bridge::of(flags, command).await;
        let url = bridge.url.clone();
        Self::before("bridge", &url, Workload::Server("stdio"), Some(bridge)).await
    }

    /// Starts sidecar and gateway for a server that speaks Streamable HTTP at `/mcp` of this port itself.
    pub(crate) async fn http(port: u16) -> Self {
        Self::before("server", &format!("http://127.0.0.1:{port}"), Workload::Server("http"), None).await
    }

    /// Starts sidecar and gateway for the agent `team/peer` that listens on this port.
    pub(crate) async fn agent(port: u16) -> Self {
        Self::before("agent", &format!("http://127.0.0.1:{port}"), Workload::Agent, None).await
    }

    async fn before(name: &'static str, url: &str, workload: Workload, bridge: Option<Bridge>) -> Self {
        let sidecar = free_address();
        let mut proxy = Command::new(env!("CARGO_BIN_EXE_recif-proxy"));
        proxy.env("RECIF_LISTEN_ADDR", sidecar.to_string()).env("RECIF_UPSTREAM_URL", url);
        if let Workload::Server(_) = workload {
            // The operator sets the same variable for an MCPServer.
            proxy.env("RECIF_LISTEN_STREAMS", "true");
        }
        let proxy = spawn(proxy);
        let api = serve(sidecar, workload).await;
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let kubeconfig = std::env::temp_dir().join(format!("recif-hops-{}-{number}.yaml", std::process::id()));
        std::fs::write(&kubeconfig, kubeconfig_of(api)).unwrap();
        let (gateway, admin) = (free_address(), free_address());
        let mut command = Command::new(env!("CARGO_BIN_EXE_recif"));
        command.args(["gateway", "--auth", "none", "--listen", &gateway.to_string()]);
        command.args(["--admin-listen", &admin.to_string()]).env("KUBECONFIG", &kubeconfig);
        let processes = [proxy, spawn(command)];
        let first = (name, format!("{url}/mcp"));
        let hops = Self { first, _bridge: bridge, sidecar, gateway, _processes: processes, kubeconfig };
        // Only the first call in a process has an effect.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().build().unwrap();
        for address in [sidecar, admin] {
            ready(&client, address).await;
        }
        hops
    }

    /// Returns the entry points by name: at the bridge or the server itself, the sidecar and the gateway.
    pub(crate) fn entry_points(&self) -> [(&'static str, String); 3] {
        [self.first.clone(), ("sidecar", format!("http://{}/mcp", self.sidecar)), ("gateway", self.outermost())]
    }

    /// Returns the address of the gateway.
    pub(crate) fn root(&self) -> String {
        format!("http://{}", self.gateway)
    }

    /// Returns the entry point before all hops.
    pub(crate) fn outermost(&self) -> String {
        format!("http://{}/v1/mcp/team/server/mcp", self.gateway)
    }
}

async fn ready(client: &Client, address: SocketAddr) {
    let asked = async {
        let url = format!("http://{address}/readyz");
        while !client.get(&url).send().await.is_ok_and(|answer| answer.status() == 200) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, asked).await.unwrap();
}

impl Drop for Hops {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).env("RUST_LOG", "error").kill_on_drop(true).spawn().unwrap()
}

/// Returns a free port of loopback; no other process of the machine takes them on purpose.
fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Serves the API of a cluster with one workload, whose Pod is at this address.
async fn serve(pod: SocketAddr, workload: Workload) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new().fallback(respond).with_state((pod, workload));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

async fn respond(State((pod, workload)): State<(SocketAddr, Workload)>, uri: Uri) -> Response {
    if uri.query().is_some_and(|query| query.contains("watch=true")) {
        // No event is sent until the timeout of the watch is over.
        let silence = stream::once(async {
            sleep(Duration::from_secs(20)).await;
            Ok::<_, std::io::Error>(Bytes::new())
        });
        return Body::from_stream(silence).into_response();
    }
    let list = |items: Vec<Value>| json!({"metadata": {"resourceVersion": "1"}, "items": items});
    let path = uri.path();
    Json(match path.rsplit('/').next().unwrap_or_default() {
        kind if kind == workload.plural() => list(vec![workload.object()]),
        "endpointslices" => list(vec![slice(pod, workload)]),
        // The gateway writes the time of the last call.
        _ if path.ends_with("/status") => workload.object(),
        _ => list(Vec::new()),
    })
    .into_response()
}

impl Workload {
    /// Returns kind, name and plural of its object.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Server(_) => ("MCPServer", "server", "mcpservers"),
            Self::Agent => ("Agent", "peer", "agents"),
        }
    }

    fn plural(self) -> &'static str {
        self.names().2
    }

    fn object(self) -> Value {
        let (kind, name, _) = self.names();
        let metadata = json!({"name": name, "namespace": "team", "uid": "s", "resourceVersion": "1", "generation": 1});
        let spec = match self {
            Self::Server(transport) => {
                json!({"transportType": transport, "deployment": {"image": "i", "cmd": "c"}})
            }
            Self::Agent => json!({"name": "Peer", "framework": "corail"}),
        };
        let children = json!([{"kind": "Service", "name": name, "uid": "service"}]);
        let status = json!({"phase": "Running", "observedGeneration": 1, "children": children});
        let version = format!("{}/{}", crds::GROUP, crds::VERSION);
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, "status": status})
    }
}

fn slice(pod: SocketAddr, workload: Workload) -> Value {
    let (kind, name, _) = workload.names();
    let labels = json!({
        "app.kubernetes.io/managed-by": "recif-operator", format!("recif.dev/{}", kind.to_lowercase()): name,
        "kubernetes.io/service-name": name,
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    });
    let owner = json!({"apiVersion": "v1", "kind": "Service", "name": name, "uid": "service", "controller": true});
    let metadata = json!({
        "name": "server-x", "namespace": "team", "uid": "x", "resourceVersion": "1", "labels": labels,
        "ownerReferences": [owner],
    });
    let endpoint = json!({
        "addresses": [pod.ip()], "conditions": {"ready": true, "serving": true, "terminating": false},
        "targetRef": {"kind": "Pod", "name": "server-0", "uid": "p"},
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "metadata": metadata,
        "endpoints": [endpoint], "ports": [{"name": "http", "port": pod.port(), "protocol": "TCP"}],
    })
}

fn kubeconfig_of(api: SocketAddr) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": format!("http://{api}")}}],
        "users": [{"name": "test", "user": {"token": "test"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    })
    .to_string()
}
