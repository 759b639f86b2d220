//! Clients that call the workloads through the gateways, without a pause longer than a moment.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::fleet::{AGENTS, CALLER, FLOWS, SERVER, STREAMS, streamer, talker};
use crate::{
    client::{ClientTarget, Exchange, HttpClientConnection, LoadClient},
    kinds::{AGENT, FLOW_SET, MCP_SERVER},
    namespace::Namespace,
};

/// Duration of a stream.
pub(super) const STREAM: Duration = Duration::from_secs(8);
/// Pause of a client between two requests: all together send two hundred a second at most.
const PAUSE: Duration = Duration::from_millis(250);
/// Version of MCP that the client speaks.
const MCP_VERSION: &str = "2025-11-25";

/// Returns the clients: for each workload one that keeps its connection and one that opens a new one for each request, for some
/// agents one that reads streams.
pub(super) async fn clients(ns: &Namespace) -> Result<Vec<LoadClient>> {
    let mut all = Vec::new();
    for number in 0..STREAMS {
        let target = ClientTarget::gateway(ns, AGENT, &streamer(number)).await?;
        all.push(client(target.clone(), Exchange::Stream(STREAM), false));
        all.extend(both(&target, &Exchange::sleep()));
    }
    for number in 1..AGENTS - STREAMS {
        let target = ClientTarget::gateway(ns, AGENT, &talker(number)).await?;
        all.extend(both(&target, &post("/chat", &json!({"message": "hi"}), "echo: hi")));
    }
    let target = ClientTarget::gateway(ns, AGENT, CALLER).await?;
    let message = json!({"message": r#"/tool echo {"message": "hello"}"#});
    all.extend(both(&target, &post("/chat", &message, "echo says hello")));
    let target = ClientTarget::gateway(ns, FLOW_SET, FLOWS).await?;
    all.extend(both(&target, &post("/greet", &json!({"name": "Ada"}), "Greet Ada")));
    let call = message_of("tools/call", json!({"name": "echo", "arguments": {"message": "hello"}}));
    for keeps_connection in [true, false] {
        // Each has a session of its own, in which no id of a request may be used twice at a time.
        let target = mcp_session(ns).await?;
        all.push(client(target, post("/mcp", &call, "echo says hello"), keeps_connection));
    }
    Ok(all)
}

fn client(target: ClientTarget, exchange: Exchange, keeps_connection: bool) -> LoadClient {
    LoadClient { target, exchange, keeps_connection, pause: PAUSE, retry_on: None }
}

fn both(target: &ClientTarget, exchange: &Exchange) -> [LoadClient; 2] {
    [true, false].map(|keeps_connection| client(target.clone(), exchange.clone(), keeps_connection))
}

fn post(path: &str, body: &Value, answer: &str) -> Exchange {
    Exchange::Request { method: "POST", path: path.into(), body: body.to_string(), answer: answer.into() }
}

/// Opens a session with the MCP server and returns the target of requests within it.
async fn mcp_session(ns: &Namespace) -> Result<ClientTarget> {
    let mut target = ClientTarget::gateway(ns, MCP_SERVER, SERVER).await?;
    target.headers += "Accept: application/json, text/event-stream\r\n";
    let client = json!({"name": "e2e", "version": "1"});
    let parameters = json!({"protocolVersion": MCP_VERSION, "capabilities": {}, "clientInfo": client});
    let (to, body) = (target.clone(), message_of("initialize", parameters).to_string());
    let open = async move { HttpClientConnection::request(&to, "POST", "/mcp", &body).await };
    let opened = ns.env.netns().await?.run(open).await?;
    ensure!(opened.status == 200, "{opened:?}");
    let session = opened.header("mcp-session-id").with_context(|| format!("no session: {opened:?}"))?;
    target.headers += &format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {MCP_VERSION}\r\n");
    Ok(target)
}

fn message_of(method: &str, parameters: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters})
}
