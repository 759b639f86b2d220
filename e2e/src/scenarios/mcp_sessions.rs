//! Tests sessions of the Model Context Protocol through the gateways: each stays with its Pod.

use std::{collections::BTreeSet, net::IpAddr, time::Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{gateway_auth::send_request, mcp_servers::run};
use crate::{
    client::{ClientTarget, HttpClientResponse},
    gateway,
    kinds::MCP_SERVER,
    namespace::{Namespace, START_TIMEOUT},
    object::ObjectExt as _,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    a_session_through_the_gateway_stays_with_its_pod,
);

/// Sends a message of MCP, or none, through a gateway.
async fn send(ns: &Namespace, target: &ClientTarget, method: &'static str, body: &Value) -> Result<HttpClientResponse> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send_request(ns, target, method, "/mcp", &body).await
}

fn rpc(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// Opens a session, and returns the target of its requests, and the tag of its Pod.
async fn open_session(ns: &Namespace, gateway: &ClientTarget) -> Result<(ClientTarget, String)> {
    let client = json!({"name": "e2e", "version": "1"});
    let open = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let opened = send(ns, gateway, "POST", &rpc("initialize", open)).await?;
    let session = opened.header("mcp-session-id").with_context(|| format!("no session: {opened:?}"))?;
    let mut inside_it = gateway.clone();
    inside_it.headers += &format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
    Ok((inside_it, session.split('.').next().unwrap_or_default().to_owned()))
}

async fn end_session(ns: &Namespace, session: &ClientTarget) -> Result<()> {
    let ended = send(ns, session, "DELETE", &Value::Null).await?;
    ensure!(ended.status == 200, "{ended:?}");
    Ok(())
}

/// Waits until each gateway leads to both Pods. Each has a watch of its own, and a session of a Pod of which it has not heard is gone.
async fn await_both_pods(ns: &Namespace, target: &ClientTarget) -> Result<()> {
    for pod in gateway::pods(&ns.env).await? {
        let ip: IpAddr = pod.text("/status/podIP").parse().context("the gateway's Pod has no address")?;
        let target = ClientTarget { address: (ip, 8080).into(), ..target.clone() };
        poll(START_TIMEOUT, "sessions of both Pods through one gateway", || async {
            let mut tags = BTreeSet::new();
            for _ in 0..4 {
                let (session, tag) = open_session(ns, &target).await?;
                end_session(ns, &session).await?;
                tags.insert(tag);
            }
            Ok((tags.len() == 2).then_some(()))
        })
        .await?;
    }
    Ok(())
}

async fn a_session_through_the_gateway_stays_with_its_pod(ns: Namespace) -> Result<()> {
    let pipes = json!({"cmd": "/workload", "args": ["mcp", "echo"], "replicas": 2});
    ns.start(&run("pipes", "stdio", pipes)).await?;
    let mut gateway = ClientTarget::gateway(&ns, MCP_SERVER, "pipes").await?;
    gateway.headers += "Accept: application/json, text/event-stream\r\n";
    await_both_pods(&ns, &gateway).await?;
    let call = rpc("tools/call", json!({"name": "echo", "arguments": {"message": "hello"}}));
    let begun = Instant::now();
    let mut pods = BTreeSet::new();
    while pods.len() < 2 {
        ensure!(begun.elapsed() < START_TIMEOUT, "all sessions were of one Pod: {pods:?}");
        let (session, pod) = open_session(&ns, &gateway).await?;
        pods.insert(pod);
        for _ in 0..4 {
            let answer = send(&ns, &session, "POST", &call).await?;
            ensure!(answer.status == 200 && answer.text.contains("echo says hello"), "{answer:?}");
        }
        end_session(&ns, &session).await?;
        let after = send(&ns, &session, "POST", &call).await?;
        ensure!(after.status == 404 && after.text.contains("jsonrpc"), "{after:?}");
    }
    Ok(())
}
