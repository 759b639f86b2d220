//! Headers of a caller that calls of tools have too.

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::any,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{Runner, a2a::message, log::Log};

/// Value that must be nowhere but in the requests of tools.
pub(super) const CANARY: &str = "canary-7c1e";

/// Starts a server with an http tool or flow, agents of both protocols and an MCP server, which tell what they have seen.
/// Returns its URL.
pub(super) async fn witnesses() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new()
        .route("/shop", any(|headers: HeaderMap| async move { seen(&headers) }))
        .route("/agent/chat", any(|headers: HeaderMap| async move { json!({ "reply": seen(&headers) }).to_string() }))
        .route("/far/.well-known/agent-card.json", any(|headers: HeaderMap| async move { card(&headers, false) }))
        .route("/strict/.well-known/agent-card.json", any(|headers: HeaderMap| async move { card(&headers, true) }))
        .route("/far/rpc", any(a2a_agent))
        .route("/strict/rpc", any(a2a_agent))
        .route("/mcp", any(mcp));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

/// Returns what a request has in the headers `x-tenant` and `x-own`, without the value of the first.
fn seen(headers: &HeaderMap) -> String {
    let tenant = match headers.get("x-tenant") {
        Some(value) if value == CANARY => "the tenant",
        Some(_) => "another tenant",
        None => "no tenant",
    };
    let own = headers.get("x-own").map_or("nothing", |value| value.to_str().unwrap());
    format!("{tenant} and {own}")
}

/// Answers with an agent card if the request has a tenant exactly where one is wanted.
fn card(headers: &HeaderMap, wants_tenant: bool) -> Response {
    match headers.contains_key("x-tenant") == wants_tenant {
        true => json!({ "url": "http://localhost/rpc", "protocolVersion": "0.3.0" }).to_string().into_response(),
        false => StatusCode::UNAUTHORIZED.into_response(),
    }
}

/// Answers as an agent of Agent2Agent 0.3.
async fn a2a_agent(headers: HeaderMap, body: Bytes) -> String {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let said = json!({ "kind": "message", "role": "agent", "parts": [{ "kind": "text", "text": seen(&headers) }] });
    json!({ "jsonrpc": "2.0", "id": request["id"], "result": said }).to_string()
}

/// Answers as an MCP server of the newer era.
async fn mcp(headers: HeaderMap, body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else { return ().into_response() };
    let result = match request["method"].as_str() {
        Some("server/discover") => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
            "ttlMs": 0, "cacheScope": "private",
        }),
        Some("tools/call") => {
            json!({ "resultType": "complete", "content": [{ "type": "text", "text": seen(&headers) }] })
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
    ([("content-type", "application/json")], answer.to_string()).into_response()
}

async fn runner() -> Runner {
    let at = witnesses().await;
    let names = json!(["X-Tenant", "X-Own"]);
    let own = json!({ "x-own": "its own" });
    let far = |name: &str, headers: Value| {
        let endpoint = format!("{at}/{name}");
        json!({ "name": name, "type": "agent", "endpoint": endpoint, "agentProtocol": "a2a", "headers": headers,
                "forwardHeaders": names })
    };
    Runner::with_tools(json!([
        far("far", own.clone()),
        far("strict", json!({})),
        { "name": "http", "type": "http", "endpoint": format!("{at}/shop"), "headers": own, "forwardHeaders": names },
        { "name": "flow", "type": "flow", "endpoint": format!("{at}/shop"), "forwardHeaders": names },
        { "name": "agent", "type": "agent", "endpoint": format!("{at}/agent"), "forwardHeaders": names },
        { "name": "mcp", "type": "mcp", "mcpEndpoint": format!("{at}/mcp"), "headers": own, "forwardHeaders": names },
        { "name": "plain", "type": "http", "endpoint": format!("{at}/shop") },
    ]))
    .await
}

#[tokio::test]
async fn a_tool_has_the_headers_of_the_caller_that_it_names_and_no_log_has_their_values() {
    let (log, _kept) = Log::capture();
    let runner = runner().await;
    let say = async |call: &str, tenant: Option<&str>| {
        let body = json!({ "message": format!("/tool {call}") }).to_string();
        let mut request = runner.client.post(runner.url("/chat")).header("x-own", "the caller's").body(body);
        if let Some(tenant) = tenant {
            request = request.header("x-tenant", tenant);
        }
        let answer: Value = serde_json::from_slice(&request.send().await.unwrap().bytes().await.unwrap()).unwrap();
        answer["reply"].as_str().unwrap().to_owned()
    };
    for (call, own) in [
        ("http {}", "its own"),
        ("flow {}", "the caller's"),
        (r#"agent {"message": "hi"}"#, "the caller's"),
        (r#"far {"message": "hi"}"#, "its own"),
        (r#"strict {"message": "hi"}"#, "the caller's"),
        ("mcp {}", "its own"),
    ] {
        assert_eq!(say(call, Some(CANARY)).await, format!("the tenant and {own}"), "{call}");
        assert_eq!(say(call, None).await, format!("no tenant and {own}"), "{call}: nothing is kept of another turn");
        assert_eq!(say(call, Some("blue")).await, format!("another tenant and {own}"), "{call}");
    }
    assert_eq!(say("plain", Some(CANARY)).await, "no tenant and nothing");
    let logged = log.drain();
    assert!(logged.contains("tools=\"mcp\"") && !logged.contains(CANARY), "{logged}");
}

#[tokio::test]
async fn a_task_forwards_headers_and_keeps_none() {
    let runner = runner().await;
    let rpc = async |method: &str, params: Value| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = runner.client.post(runner.url("/")).header("x-tenant", CANARY).body(body.to_string());
        request.send().await.unwrap().text().await.unwrap()
    };
    let answer = rpc("SendMessage", message("/tool flow {}")).await;
    assert!(answer.contains("the tenant and nothing") && !answer.contains(CANARY), "{answer}");
    let task: Value = serde_json::from_str(&answer).unwrap();
    let kept = rpc("GetTask", json!({ "id": task["result"]["task"]["id"] })).await;
    assert!(kept.contains("the tenant and nothing") && !kept.contains(CANARY), "{kept}");
}

#[tokio::test]
async fn openais_api_forwards_headers() {
    let runner = runner().await;
    let models: Value = serde_json::from_str(&runner.get("/v1/models").await.1).unwrap();
    let messages = json!([{ "role": "user", "content": "/tool flow {}" }]);
    let body = json!({ "model": models["data"][0]["id"], "messages": messages }).to_string();
    let request = runner.client.post(runner.url("/v1/chat/completions")).header("x-tenant", CANARY).body(body);
    let answer = request.send().await.unwrap().text().await.unwrap();
    assert!(answer.contains("the tenant and nothing"), "{answer}");
}
