//! Discoveries at the reference server, and at servers that misbehave.

mod eras;
mod limits;
pub(crate) mod tls;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::Instant;
use url::Url;

use crate::{
    Cidr, DENIED_RANGES, DiscoveryRequest, EgressClients, Era, McpTool, ReadPermits, ServerFailure, ServerTools, Trust,
    discover,
};

fn reach(denied: &[&str]) -> EgressClients {
    let _ = rustls::crypto::ring::default_provider().install_default();
    EgressClients::new(denied.iter().map(|range| range.parse::<Cidr>().unwrap()).collect())
}

fn question(url: &str) -> DiscoveryRequest {
    let url = Url::parse(url).unwrap();
    let timeout = Duration::from_secs(20);
    let silence = Duration::from_secs(300);
    DiscoveryRequest {
        url,
        headers: HashMap::new(),
        timeout,
        deadline: Instant::now() + timeout,
        era: None,
        max_tools: 1000,
        terminates_session: true,
        sse: false,
        idle_timeout: silence,
    }
}

async fn ask_by(client: reqwest::Client, question: &DiscoveryRequest) -> Result<ServerTools<McpTool>, ServerFailure> {
    discover(client, ReadPermits::default(), question, |tool| tool).await
}

async fn ask(question: &DiscoveryRequest) -> Result<ServerTools<McpTool>, ServerFailure> {
    ask_by(reach(DENIED_RANGES).client(&Trust::System).unwrap(), question).await
}

async fn failure(url: &str) -> ServerFailure {
    ask(&question(url)).await.unwrap_err()
}

/// Serves `routes` until the test ends, and returns the base URL.
pub(super) async fn serve(routes: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

/// Requests that a server received, in order: the HTTP method, the method of the message, and the session.
type RecordedRequests = Arc<Mutex<Vec<(Method, String, String)>>>;

/// Server of the older era with `pages` pages of `each` tools, which accepts one token.
#[derive(Clone)]
struct Older {
    asked: RecordedRequests,
    pages: usize,
    each: usize,
}

async fn older(State(server): State<Older>, method: Method, headers: HeaderMap, body: Bytes) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let name = request["method"].as_str().unwrap_or_default();
    server.asked.lock().unwrap().push((method.clone(), name.to_owned(), text("mcp-session-id")));
    if text("authorization") != "Bearer sesame" {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response();
    }
    let result = match name {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"},
        }),
        "tools/list" => {
            let page: usize = request["params"]["cursor"].as_str().unwrap_or("0").parse().unwrap();
            let tools: Vec<_> = (0..server.each)
                .map(|n| json!({"name": format!("t{page}-{n}"), "inputSchema": {"type": "object"}}))
                .collect();
            let next = (page + 1 < server.pages).then(|| (page + 1).to_string());
            json!({"tools": tools, "nextCursor": next})
        }
        "server/discover" => {
            let error = json!({"code": -32601, "message": "Method not found"});
            return json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "error": error}));
        }
        _ if method == Method::GET => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let mut answer = json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    answer.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s1"));
    answer
}

pub(super) fn json_answer(value: Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn start_older(pages: usize, each: usize) -> (DiscoveryRequest, RecordedRequests) {
    let server = Older { asked: RecordedRequests::default(), pages, each };
    let asked = server.asked.clone();
    let url = serve(Router::new().route("/mcp", any(older)).with_state(server)).await + "/mcp";
    let mut token = HeaderValue::from_static("Bearer sesame");
    token.set_sensitive(true);
    let headers = HashMap::from([(HeaderName::from_static("authorization"), token)]);
    (DiscoveryRequest { headers, ..question(&url) }, asked)
}

/// Starts a server at which every path behaves in its own way.
async fn odd() -> String {
    let endless = |type_: &'static str, byte: u8| {
        move || async move {
            let body = Body::from_stream(stream::repeat(Ok::<_, Infallible>(Bytes::from(vec![byte; 1 << 16]))));
            ([(header::CONTENT_TYPE, type_)], body)
        }
    };
    let drips = || async {
        let drops = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b" ")), ()))
        });
        ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(drops.boxed()))
    };
    let to = |place: &'static str| {
        move || async move { (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, place)]).into_response() }
    };
    let nested = || async {
        let deep =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        ([(header::CONTENT_TYPE, "application/json")], deep)
    };
    let host = || async { (StatusCode::FORBIDDEN, "Forbidden: Host header is not allowed") };
    let routes = Router::new()
        .route("/hangs", any(pending::<()>))
        .route("/drips", any(drips))
        .route("/html", any(|| async { ([(header::CONTENT_TYPE, "text/html")], "<html>") }))
        .route("/json", any(|| async { ([(header::CONTENT_TYPE, "application/json")], "{}") }))
        .route("/nested", any(nested))
        .route("/endless", any(endless("application/json", b' ')))
        .route("/endless-events", any(endless("text/event-stream", b'd')))
        .route("/elsewhere", any(to("http://localhost:1/mcp")))
        .route("/circle", any(to("/circle")))
        .route("/host", any(host))
        .route("/down", any(|| async { StatusCode::SERVICE_UNAVAILABLE }));
    serve(routes).await
}

/// Starts a server of the first revision: `/sse` opens the stream, messages are posted to `/messages`.
pub(super) async fn first_revision(endpoint: &'static str, token: Option<&'static str>) -> String {
    let admits = move |headers: &HeaderMap| {
        token.is_none_or(|token| headers.get("x-api-key").is_some_and(|given| given == token))
    };
    let (sender, _) = tokio::sync::broadcast::channel::<String>(16);
    let events = sender.clone();
    let open = move |headers: HeaderMap| {
        let receiver = events.subscribe();
        async move {
            if !admits(&headers) {
                return StatusCode::UNAUTHORIZED.into_response();
            }
            let first =
                stream::once(async move { Ok::<_, Infallible>(format!("event: endpoint\ndata: {endpoint}\n\n")) });
            let rest = stream::unfold(receiver, |mut receiver| async move {
                let text = receiver.recv().await.ok()?;
                Some((Ok(format!("event: message\ndata: {text}\n\n")), receiver))
            });
            ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(first.chain(rest))).into_response()
        }
    };
    let take = move |headers: HeaderMap, body: Bytes| async move {
        if !admits(&headers) {
            return StatusCode::UNAUTHORIZED;
        }
        let request: Value = serde_json::from_slice(&body).unwrap();
        let tool = json!({"name": "old", "description": "As old as it gets", "inputSchema": {"type": "object"}});
        let result = match request["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {"name": "first", "version": "0"},
            }),
            Some("tools/list") => json!({"tools": [tool]}),
            Some("tools/call") => json!({"content": [{"type": "text", "text": "as ever"}]}),
            _ => return StatusCode::ACCEPTED,
        };
        let _ = sender.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string());
        StatusCode::ACCEPTED
    };
    serve(Router::new().route("/sse", any(open)).route("/messages", any(take))).await + "/sse"
}

/// Returns the answer of a server of the newer era that has one tool and can notify of its changes.
fn one_tool(request: &Value) -> Response {
    let result = match request["method"].as_str() {
        Some("server/discover") => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": true}}, "ttlMs": 0, "cacheScope": "private",
        }),
        Some("tools/list") => json!({
            "resultType": "complete", "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
            "ttlMs": 90_000, "cacheScope": "private",
        }),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
}

/// Starts a server of the newer era that notifies of a change of its tools when `change` is notified.
async fn newer(change: Arc<Notify>, left: Arc<Notify>) -> String {
    let answer = move |body: Bytes| {
        let (change, left) = (change.clone(), left.clone());
        async move {
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            if request["method"] == "subscriptions/listen" {
                return listened(request["id"].clone(), change, Left(left));
            }
            one_tool(&request)
        }
    };
    serve(Router::new().route("/mcp", any(answer))).await + "/mcp"
}

/// Guard that notifies when a client has left.
struct Left(Arc<Notify>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn listened(id: Value, change: Arc<Notify>, left: Left) -> Response {
    let event = move |method: &str, params: Value| {
        let mut params = params;
        params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id.clone()});
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        Ok::<_, Infallible>(format!("event: message\ndata: {message}\n\n"))
    };
    let first = event("notifications/subscriptions/acknowledged", json!({"notifications": {"toolsListChanged": true}}));
    let rest = stream::once(async move {
        change.notified().await;
        event("notifications/tools/list_changed", json!({}))
    });
    let silent = stream::once(async move {
        let _left = left;
        pending().await
    });
    let body = Body::from_stream(stream::iter([first]).chain(rest).chain(silent));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}
