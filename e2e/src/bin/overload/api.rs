//! Fake API server: one agent with its Pods, which never change.

use std::net::SocketAddr;

use anyhow::Result;
use e2e::http1::{ReceivedRequest, respond};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    time::{Duration, sleep},
};

/// Starts the server on a free port.
pub(crate) async fn serve(pods: &[SocketAddr]) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (agent, slices) = (agent(), slices(pods));
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let (agent, slices) = (agent.clone(), slices.clone());
            tokio::spawn(async move {
                // A client that disconnects ends its own connection only.
                let _ = connection(io, &agent, &slices).await;
            });
        }
    });
    Ok(address)
}

async fn connection(io: TcpStream, agent: &Value, slices: &[Value]) -> Result<()> {
    let mut io = BufReader::new(io);
    while let Some(request) = ReceivedRequest::read(&mut io).await? {
        let list = |items: &[Value]| json!({"metadata": {"resourceVersion": "1"}, "items": items});
        let answer = match request.line.as_str() {
            line if line.contains("watch=true") => {
                io.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
                sleep(Duration::from_secs(25)).await;
                io.write_all(b"0\r\n\r\n").await?;
                continue;
            }
            line if line.starts_with("PATCH") => agent.clone(),
            line if line.contains("/agents?") => list(std::slice::from_ref(agent)),
            line if line.contains("/endpointslices?") => list(slices),
            _ => list(&[]),
        };
        respond(&mut io, "200 OK", "application/json", &answer.to_string(), false).await?;
    }
    Ok(())
}

fn agent() -> Value {
    let metadata = json!({
        "name": "bench", "namespace": "default", "uid": "agent", "resourceVersion": "1", "generation": 1,
    });
    let spec = json!({"name": "bench", "framework": "corail"});
    let children = json!([{"kind": "Service", "name": "bench", "uid": "service"}]);
    let status = json!({"phase": "Running", "observedGeneration": 1, "children": children});
    json!({
        "apiVersion": format!("{}/{}", crds::GROUP, crds::VERSION), "kind": "Agent",
        "metadata": metadata, "spec": spec, "status": status,
    })
}

/// Returns one EndpointSlice per Pod, because each Pod has a port of its own.
fn slices(pods: &[SocketAddr]) -> Vec<Value> {
    let slice = |(number, pod): (usize, &SocketAddr)| {
        let labels = json!({
            "app.kubernetes.io/managed-by": "recif-operator", "recif.dev/agent": "bench", "kubernetes.io/service-name": "bench",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        });
        let owner =
            json!({"apiVersion": "v1", "kind": "Service", "name": "bench", "uid": "service", "controller": true});
        let metadata = json!({
            "name": format!("bench-{number}"), "namespace": "default", "uid": format!("slice-{number}"),
            "resourceVersion": "1", "labels": labels, "ownerReferences": [owner],
        });
        let conditions = json!({"ready": true, "serving": true, "terminating": false});
        let endpoint = json!({
            "addresses": [pod.ip()], "conditions": conditions,
            "targetRef": {"kind": "Pod", "name": format!("pod-{number}"), "uid": format!("pod-{number}")},
        });
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "metadata": metadata,
            "endpoints": [endpoint], "ports": [{"name": "http", "port": pod.port(), "protocol": "TCP"}],
        })
    };
    pods.iter().enumerate().map(slice).collect()
}
