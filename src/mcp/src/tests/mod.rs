//! Sessions with the reference server, and with servers that misbehave.

mod discovery;

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures::stream;
use serde_json::{Map, Value, json};
use testing::mcp_server::ReferenceServer;
use tokio::net::TcpListener;
use url::Url;

use self::discovery::{first_revision, json_answer, serve};
use super::{McpError, McpSession, ServerEndpoint, Sessions};

/// Deadline that is enough for any server on loopback; tests end long before.
const DEADLINE: Duration = Duration::from_secs(60);

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[tokio::test]
async fn the_reference_server_is_called_and_listed() {
    let server = ReferenceServer::start(0);
    let session = McpSession::connect(client(), &ServerEndpoint::at(&server.url()), DEADLINE).await.unwrap();
    let call = async |name: &str, arguments: Value| session.call_tool(name, object(arguments), DEADLINE, None).await;
    assert_eq!(call("echo", json!({"message": "hi"})).await.unwrap(), "Echo: hi");
    assert_eq!(call("get-sum", json!({"a": 2, "b": 3})).await.unwrap(), "The sum of 2 and 3 is 5.");
    let image = call("get-tiny-image", json!({})).await.unwrap();
    assert!(image.contains("[an image of type image/png, which cannot be shown]"), "{image}");
    let wrong = call("echo", json!({})).await.unwrap_err();
    assert!(matches!(&wrong, McpError::Tool(text) if text.contains("message")), "{wrong:?}");
    let unknown = call("surely-not-there", json!({})).await.unwrap_err();
    assert!(unknown.to_string().contains("surely-not-there"), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_kept_and_opened_again_after_the_server_restarted() {
    let (sessions, client) = (Sessions::default(), client());
    let server = ReferenceServer::start(0);
    let url = server.url();
    let echo = async || {
        sessions
            .call_tool(&client, &ServerEndpoint::at(&url), "echo", object(json!({"message": "x"})), DEADLINE, None)
            .await
    };
    assert_eq!(echo().await.unwrap(), "Echo: x");
    assert_eq!(echo().await.unwrap(), "Echo: x");
    let port = server.port();
    drop(server);
    assert!(matches!(echo().await.unwrap_err(), McpError::Broken { .. }));
    let _server = ReferenceServer::start(port);
    assert_eq!(echo().await.unwrap(), "Echo: x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_its_sessions_gets_a_new_one() {
    let (sessions, client) = (Sessions::default(), client());
    let server = ReferenceServer::start(0);
    let (url, port) = (server.url(), server.port());
    let echo = async || {
        sessions
            .call_tool(&client, &ServerEndpoint::at(&url), "echo", object(json!({"message": "x"})), DEADLINE, None)
            .await
    };
    assert_eq!(echo().await.unwrap(), "Echo: x");
    drop(server);
    let _server = ReferenceServer::start(port);
    assert_eq!(echo().await.unwrap(), "Echo: x");
}

/// Starts a server at which every path behaves in its own way.
async fn odd() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let endless = || async {
        let body = Body::from_stream(stream::repeat(Ok::<_, Infallible>(Bytes::from(vec![b' '; 1 << 16]))));
        ([("content-type", "application/json")], body)
    };
    let endless_events = || async {
        let body = Body::from_stream(stream::repeat(Ok::<_, Infallible>(Bytes::from(vec![b'd'; 1 << 16]))));
        ([("content-type", "text/event-stream")], body)
    };
    let routes = Router::new()
        .route("/hangs", any(pending::<()>))
        .route("/html", any(|| async { ([("content-type", "text/html")], "<html>") }))
        .route("/json", any(|| async { ([("content-type", "application/json")], "{}") }))
        .route("/no-id", any(no_id))
        .route("/endless", any(endless))
        .route("/endless-events", any(endless_events))
        .route("/modern", any(modern));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

/// Answers with a refusal that lacks the request's id.
async fn no_id() -> Response {
    let refusal = json!({"jsonrpc": "2.0", "error": {"code": -32000, "message": "not you"}});
    ([("content-type", "application/json")], refusal.to_string()).into_response()
}

/// Answers as a server of the newer era: no handshake, each request alone; its list of tools never ends, and one tool hangs.
async fn modern(body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<Value>(&body) else { return ().into_response() };
    let result = match request["method"].as_str() {
        Some("server/discover") => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
            "ttlMs": 0, "cacheScope": "private",
        }),
        Some("tools/call") if request["params"]["name"] == "hang" => return pending().await,
        Some("tools/call") if request["params"]["name"] == "structured" => json!({
            "resultType": "complete", "content": [], "structuredContent": {"n": 1},
        }),
        Some("tools/call") => json!({
            "resultType": "complete", "isError": true, "content": [{"type": "text", "text": "it is broken"}],
        }),
        Some("tools/list") => {
            let tools: Vec<_> = (0..100).map(|n| json!({"name": format!("t{n}"), "inputSchema": {}})).collect();
            json!({"resultType": "complete", "tools": tools, "nextCursor": "on", "ttlMs": 0, "cacheScope": "private"})
        }
        _ => return axum::http::StatusCode::ACCEPTED.into_response(),
    };
    let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    ([("content-type", "application/json")], answer.to_string()).into_response()
}

#[tokio::test]
async fn a_server_of_the_newer_era_is_called_without_a_handshake() {
    let url = Url::parse(&format!("{}/modern", odd().await)).unwrap();
    let session = McpSession::connect(client(), &ServerEndpoint::at(&url), DEADLINE).await.unwrap();
    let call = async |name: &str| session.call_tool(name, Map::new(), DEADLINE, None).await;
    assert_eq!(call("structured").await.unwrap(), r#"{"n":1}"#);
    assert_eq!(call("other").await.unwrap_err(), McpError::Tool("it is broken".into()));
}

#[tokio::test]
async fn a_server_that_is_none_is_an_error() {
    let base = odd().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for url in [
        format!("{base}/html"),
        format!("{base}/json"),
        format!("{base}/not-there"),
        format!("{base}/no-id"),
        format!("{base}/endless"),
        format!("{base}/endless-events"),
        format!("http://user:SECRET@{closed}/?key=SECRET"),
    ] {
        let error = McpSession::connect(client(), &ServerEndpoint::at(&Url::parse(&url).unwrap()), DEADLINE)
            .await
            .err()
            .unwrap();
        assert!(matches!(error, McpError::Broken { .. }), "{url}: {error:?}");
        let text = error.to_string();
        assert!(text.starts_with("the MCP server at 127.0.0.1:") && text.len() < 1000, "{text}");
        assert!(!text.contains("SECRET") && !text.contains("rmcp"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_given_up() {
    let base = odd().await;
    let deadline = Duration::from_secs(20);
    let url = Url::parse(&format!("{base}/hangs")).unwrap();
    let error = McpSession::connect(client(), &ServerEndpoint::at(&url), deadline).await.err().unwrap();
    assert!(matches!(error, McpError::Timeout { after, .. } if after == deadline), "{error:?}");

    let url = Url::parse(&format!("{base}/modern")).unwrap();
    let error = Sessions::default()
        .call_tool(&client(), &ServerEndpoint::at(&url), "hang", Map::new(), deadline, None)
        .await
        .unwrap_err();
    assert!(matches!(error, McpError::Timeout { .. }), "{error:?}");
}

#[tokio::test]
async fn calls_at_once_share_one_session() {
    let opened = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let count = opened.clone();
    let routes = Router::new().fallback(async move |body: Bytes| {
        if String::from_utf8_lossy(&body).contains("server/discover") {
            count.fetch_add(1, Ordering::Relaxed);
        }
        modern(body).await
    });
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let (sessions, client) = (Sessions::default(), client());
    let server = ServerEndpoint::at(&url);
    let calls = (0..8).map(|_| sessions.call_tool(&client, &server, "structured", Map::new(), DEADLINE, None));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.unwrap(), r#"{"n":1}"#);
    }
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}

fn with_token(url: &str, sse: bool) -> ServerEndpoint {
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", HeaderValue::from_static("sesame"));
    ServerEndpoint { headers, sse, ..ServerEndpoint::at(&Url::parse(url).unwrap()) }
}

#[tokio::test]
async fn a_server_of_the_first_revision_is_called_over_its_stream_of_events() {
    let (sessions, client) = (Sessions::default(), client());
    let url = first_revision("/messages?session=1", Some("sesame")).await;
    let call =
        async |server: &ServerEndpoint| sessions.call_tool(&client, server, "old", Map::new(), DEADLINE, None).await;
    for _ in 0..2 {
        assert_eq!(call(&with_token(&url, true)).await.unwrap(), "as ever");
    }
    let refused =
        call(&ServerEndpoint { sse: true, ..ServerEndpoint::at(&Url::parse(&url).unwrap()) }).await.unwrap_err();
    assert!(refused.to_string().contains("HTTP 401"), "{refused}");
}

#[tokio::test]
async fn headers_are_sent_with_every_request_and_others_mean_another_session() {
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let answer = move |headers: HeaderMap, body: Bytes| {
        let count = count.clone();
        async move {
            if headers.get("x-api-key").is_none_or(|key| key != "sesame") {
                return StatusCode::UNAUTHORIZED.into_response();
            }
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let result = match request["method"].as_str() {
                Some("initialize") => {
                    count.fetch_add(1, Ordering::Relaxed);
                    json!({"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}})
                }
                Some("tools/call") => json!({"content": [{"type": "text", "text": "in"}]}),
                Some("server/discover") => return StatusCode::BAD_REQUEST.into_response(),
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
        }
    };
    let url = serve(Router::new().route("/mcp", any(answer))).await + "/mcp";
    let (sessions, client) = (Sessions::default(), client());
    let call =
        async |server: &ServerEndpoint| sessions.call_tool(&client, server, "t", Map::new(), DEADLINE, None).await;
    for _ in 0..2 {
        assert_eq!(call(&with_token(&url, false)).await.unwrap(), "in");
    }
    let refused = call(&ServerEndpoint::at(&Url::parse(&url).unwrap())).await.unwrap_err();
    assert!(!refused.to_string().contains("sesame"), "{refused}");
    assert_eq!(call(&with_token(&url, false)).await.unwrap(), "in");
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}
