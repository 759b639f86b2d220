//! Discoveries at the reference server, and at servers that misbehave.

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
use futures::{FutureExt, StreamExt, stream};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use url::Url;

use super::tests::Reference;
use super::{Answer, Cidr, DENIED, Era, Failed, McpTool, Places, Question, Reach, Trust, discover};

fn reach(denied: &[&str]) -> Reach {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Reach::new(denied.iter().map(|range| range.parse::<Cidr>().unwrap()).collect())
}

fn question(url: &str) -> Question {
    let url = Url::parse(url).unwrap();
    let timeout = Duration::from_secs(20);
    let silence = Duration::from_secs(300);
    Question {
        url,
        headers: HashMap::new(),
        timeout,
        end: Instant::now() + timeout,
        era: None,
        most: 1000,
        terminates: true,
        sse: false,
        silence,
    }
}

async fn ask_by(client: reqwest::Client, question: &Question) -> Result<Answer<McpTool>, Failed> {
    discover(client, Places::default(), question, |tool| tool).await
}

async fn ask(question: &Question) -> Result<Answer<McpTool>, Failed> {
    ask_by(reach(DENIED).client(Trust::System).unwrap(), question).await
}

async fn failure(url: &str) -> Failed {
    ask(&question(url)).await.unwrap_err()
}

/// Serves until the test ends.
pub(super) async fn serve(routes: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

#[tokio::test]
async fn the_reference_server_tells_its_tools() {
    let server = Reference::start(0);
    let answer = ask(&question(server.url().as_str())).await.unwrap();
    let echo = answer.tools.iter().find(|tool| tool.name == "echo").unwrap();
    assert_eq!(echo.input_schema["properties"]["message"]["type"], "string");
    assert!(!echo.description.is_empty() && !answer.more);
    assert!(answer.tools.iter().any(|tool| tool.output_schema.is_some()));
    assert_eq!((answer.era, answer.revision.as_str()), (Era::Initialize, "2025-11-25"));
    assert!(answer.server.0.contains("everything"), "{:?}", answer.server);
    assert!(answer.changes.is_some(), "it says that it tells of changes");
    let again = Question { era: Some(Era::Initialize), ..question(server.url().as_str()) };
    assert_eq!(ask(&again).await.unwrap().tools, answer.tools);
}

/// What a server was asked, in order: the method of HTTP, that of the message, and the session.
type Asked = Arc<Mutex<Vec<(Method, String, String)>>>;

/// A server of the older era with `pages` pages of `each` tools, which knows one token.
#[derive(Clone)]
struct Older {
    asked: Asked,
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

async fn start_older(pages: usize, each: usize) -> (Question, Asked) {
    let server = Older { asked: Asked::default(), pages, each };
    let asked = server.asked.clone();
    let url = serve(Router::new().route("/mcp", any(older)).with_state(server)).await + "/mcp";
    let mut token = HeaderValue::from_static("Bearer sesame");
    token.set_sensitive(true);
    let headers = HashMap::from([(HeaderName::from_static("authorization"), token)]);
    (Question { headers, ..question(&url) }, asked)
}

#[tokio::test]
async fn all_pages_are_read_with_the_headers_and_the_session_is_ended() {
    let (question, asked) = start_older(3, 2).await;
    let answer = ask(&question).await.unwrap();
    assert_eq!((answer.tools.len(), answer.more, answer.era), (6, false, Era::Initialize));
    assert_eq!(answer.server, ("old".to_owned(), "1".to_owned()));
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    let methods: Vec<_> =
        asked.iter().map(|(_, method, _)| method.as_str()).filter(|method| !method.is_empty()).collect();
    let expected =
        ["server/discover", "initialize", "notifications/initialized", "tools/list", "tools/list", "tools/list"];
    assert_eq!(methods, expected);
    assert_eq!(asked.last().unwrap(), &(Method::DELETE, String::new(), "s1".to_owned()));
}

#[tokio::test]
async fn what_worked_is_asked_first_the_next_time() {
    let (question, asked) = start_older(1, 1).await;
    ask(&Question { era: Some(Era::Initialize), ..question }).await.unwrap();
    assert!(asked.lock().unwrap().iter().all(|(_, method, _)| method != "server/discover"));
}

#[tokio::test]
async fn more_tools_than_are_taken_are_said() {
    let (question, _) = start_older(20, 500).await;
    let answer = ask(&question).await.unwrap();
    assert_eq!((answer.tools.len(), answer.more), (1000, true));
    let (question, _) = start_older(2, 500).await;
    let answer = ask(&question).await.unwrap();
    assert_eq!((answer.tools.len(), answer.more), (1000, false));
}

#[tokio::test]
async fn a_server_that_wants_other_credentials_says_so_and_nobody_reads_them() {
    let (mut question, _) = start_older(1, 1).await;
    question.headers =
        HashMap::from([(HeaderName::from_static("authorization"), HeaderValue::from_static("Bearer hunter2"))]);
    let failed = ask(&question).await.unwrap_err();
    assert_eq!(failed.reason, "ServerRefused");
    assert!(failed.message.contains("401") && failed.message.contains("headersFrom"), "{failed:?}");
    assert!(!format!("{failed:?}").contains("hunter2"));
}

/// A server at which every path behaves in its own way.
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
    let host = || async { (StatusCode::FORBIDDEN, "Forbidden: Host header is not allowed") };
    let routes = Router::new()
        .route("/hangs", any(pending::<()>))
        .route("/drips", any(drips))
        .route("/html", any(|| async { ([(header::CONTENT_TYPE, "text/html")], "<html>") }))
        .route("/json", any(|| async { ([(header::CONTENT_TYPE, "application/json")], "{}") }))
        .route("/endless", any(endless("application/json", b' ')))
        .route("/endless-events", any(endless("text/event-stream", b'd')))
        .route("/elsewhere", any(to("http://localhost:1/mcp")))
        .route("/circle", any(to("/circle")))
        .route("/host", any(host))
        .route("/down", any(|| async { StatusCode::SERVICE_UNAVAILABLE }));
    serve(routes).await
}

#[tokio::test]
async fn a_server_that_is_none_is_told_by_what_it_does() {
    let base = odd().await;
    for (path, reason, words) in [
        ("html", "InvalidServerAnswer", "neither JSON nor a stream of events"),
        ("json", "InvalidServerAnswer", "no message of JSON-RPC"),
        ("endless", "InvalidServerAnswer", "it sent more than 2 MiB"),
        ("endless-events", "InvalidServerAnswer", "it sent more than 2 MiB"),
        ("elsewhere", "ServerRefused", "redirects to another place"),
        ("circle", "ServerRefused", "redirects to another place"),
        ("host", "ServerRefused", "does not take the host of spec.url in the Host header"),
        ("not-there", "ServerRefused", "HTTP 404 Not Found: see whether spec.url has the right path"),
        ("down", "ServerUnreachable", "HTTP 503"),
    ] {
        let failed = failure(&format!("{base}/{path}")).await;
        assert_eq!(failed.reason, reason, "{path}: {failed:?}");
        assert!(failed.message.contains(words), "{path}: {failed:?}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let failed = failure(&format!("http://{closed}/?key=SECRET")).await;
    assert_eq!(failed.reason, "ServerUnreachable");
    assert!(failed.message.contains("refused") && !failed.message.contains("SECRET"), "{failed:?}");
}

#[tokio::test]
async fn one_deadline_is_around_all_of_it() {
    let base = odd().await;
    for path in ["hangs", "drips"] {
        let timeout = Duration::from_secs(1);
        let question = Question { timeout, end: Instant::now() + timeout, ..question(&format!("{base}/{path}")) };
        let failed = ask(&question).await.unwrap_err();
        assert_eq!(failed.reason, "ServerTimeout", "{path}: {failed:?}");
        assert_eq!(failed.message, "it did not tell its tools within 1 s (spec.timeout)");
    }
}

#[tokio::test]
async fn a_name_is_judged_by_the_address_that_it_has_when_it_is_connected_to() {
    let (question, asked) = start_older(1, 1).await;
    let url = question.url.as_str().replace("127.0.0.1", "localhost");
    let question = Question { url: Url::parse(&url).unwrap(), ..question };
    let denying = reach(&["127.0.0.0/8", "::1/128"]);
    denying.admit(&question.url).unwrap();
    let failed = ask_by(denying.client(Trust::System).unwrap(), &question).await.unwrap_err();
    assert_eq!(failed.reason, "AddressDenied", "{failed:?}");
    assert!(failed.message.contains("which --mcp-deny-cidr of the operator denies"), "{failed:?}");
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn credentials_do_not_leave_with_a_redirect() {
    let (other, asked) = start_older(1, 1).await;
    let place = other.url.to_string();
    let redirect = move |_: Method| {
        let place = place.clone();
        async move { (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, place)]).into_response() }
    };
    let url = serve(Router::new().route("/mcp", any(redirect))).await + "/mcp";
    let question = Question { url: Url::parse(&url).unwrap(), ..other };
    assert_eq!(ask(&question).await.unwrap_err().reason, "ServerRefused");
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn certificates_that_are_none_are_told() {
    let error = reach(&[]).client(Trust::Also(b"not a certificate")).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn nothing_that_a_server_says_in_an_error_is_repeated() {
    const SECRET: &str = "sk-hunter2";
    // At which method it refuses, and how: as JSON-RPC, by a status, or by what is no answer at all.
    for (at, how) in [
        ("initialize", "rpc"),
        ("tools/list", "rpc"),
        ("tools/list", "status"),
        ("initialize", "status"),
        ("initialize", "type"),
        ("initialize", "other"),
        ("tools/list", "other"),
        ("tools/list", "text"),
    ] {
        let answer = move |method: Method, body: Bytes| async move {
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let name = request["method"].as_str().unwrap_or_default();
            if name == at {
                let error = json!({"code": -32042, "message": SECRET, "data": SECRET});
                let refusal = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
                return match how {
                    "rpc" => json_answer(refusal),
                    "status" => (StatusCode::BAD_REQUEST, json_answer(refusal)).into_response(),
                    "type" => ([(header::CONTENT_TYPE, SECRET)], SECRET).into_response(),
                    "text" => ([(header::CONTENT_TYPE, "application/json")], SECRET).into_response(),
                    _ => json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": {SECRET: SECRET}})),
                };
            }
            let result = match name {
                "initialize" => json!({
                    "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "n", "version": "1"},
                }),
                "server/discover" => return (StatusCode::BAD_REQUEST, SECRET).into_response(),
                _ if method == Method::GET => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
        };
        let url = serve(Router::new().route("/mcp", any(answer))).await + "/mcp";
        for era in [None, Some(Era::Initialize), Some(Era::Discover)] {
            let failed = ask(&Question { era, ..question(&url) }).await.unwrap_err();
            assert!(!format!("{failed:?}").contains("hunter2"), "{at} {how}: {failed:?}");
            if how == "rpc" && era.is_none() {
                assert!(failed.message.contains("JSON-RPC error -32042"), "{at} {era:?}: {failed:?}");
            }
        }
    }
}

/// A server of the first revision: `/sse` opens the stream, `/messages` takes what is said to it.
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

#[tokio::test]
async fn a_server_of_the_first_revision_is_asked_over_its_stream_of_events() {
    let question = |url: String| Question { sse: true, ..question(&url) };
    let answer = ask(&question(first_revision("/messages?session=1", None).await)).await.unwrap();
    assert_eq!((answer.tools[0].name.as_str(), answer.revision.as_str()), ("old", "2024-11-05"));
    assert_eq!(answer.era, Era::Initialize);
    let failed = ask(&question(first_revision("http://elsewhere.example/messages", None).await)).await.unwrap_err();
    assert_eq!(failed.reason, "ServerRefused");
    assert!(failed.message.contains("to another place"), "{failed:?}");
    let failed = ask(&question(format!("{}/html", odd().await))).await.unwrap_err();
    assert!(failed.message.contains("no stream of events"), "{failed:?}");
    let failed = ask(&question(format!("{}/endless-events", odd().await))).await.unwrap_err();
    assert!(failed.message.contains("it sent more than 2 MiB"), "{failed:?}");
    let failed = ask(&question(format!("{}/not-there", odd().await))).await.unwrap_err();
    assert!(failed.message.contains("HTTP 404"), "{failed:?}");
}

#[tokio::test]
async fn a_server_that_says_that_its_tools_changed_is_heard_and_its_session_is_ended_then() {
    let (changed, deleted) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, ended) = (changed.clone(), deleted.clone());
    let answer = move |method: Method, body: Bytes| {
        let (tell, ended) = (tell.clone(), ended.clone());
        async move {
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let result = match (method, request["method"].as_str()) {
                (Method::GET, _) => {
                    let event = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                    let told = stream::once(async move {
                        tell.notified().await;
                        Ok::<_, Infallible>(format!("event: message\ndata: {event}\n\n"))
                    });
                    let body = Body::from_stream(told.chain(stream::pending()));
                    return ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response();
                }
                (Method::DELETE, _) => {
                    ended.notify_one();
                    return StatusCode::OK.into_response();
                }
                (_, Some("initialize")) => json!({
                    "protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "talks", "version": "1"},
                }),
                (_, Some("tools/list")) => json!({"tools": []}),
                (_, Some("server/discover")) => return StatusCode::BAD_REQUEST.into_response(),
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            let mut answer = json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
            answer.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s1"));
            answer
        }
    };
    let url = serve(Router::new().route("/mcp", any(answer))).await + "/mcp";
    let mut changes = ask(&question(&url)).await.unwrap().changes.unwrap();
    assert!(changes.next().now_or_never().is_none(), "nothing changed yet");
    changed.notify_one();
    timeout(Duration::from_secs(20), changes.next()).await.unwrap();
    changes.close().await;
    timeout(Duration::from_secs(20), deleted.notified()).await.unwrap();
}

/// A server of the newer era that tells when its tools change, which is when `change` is told.
async fn newer(change: Arc<Notify>, left: Arc<Notify>) -> String {
    let answer = move |body: Bytes| {
        let (change, left) = (change.clone(), left.clone());
        async move {
            let request: Value = serde_json::from_slice(&body).unwrap_or_default();
            let id = request["id"].clone();
            let result = match request["method"].as_str() {
                Some("server/discover") => json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {"listChanged": true}}, "ttlMs": 0, "cacheScope": "private",
                }),
                Some("tools/list") => json!({
                    "resultType": "complete", "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
                    "ttlMs": 90_000, "cacheScope": "private",
                }),
                Some("subscriptions/listen") => return listened(id, change, Left(left)),
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            json_answer(json!({"jsonrpc": "2.0", "id": id, "result": result}))
        }
    };
    serve(Router::new().route("/mcp", any(answer))).await + "/mcp"
}

/// Tells when a client has left.
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

#[tokio::test]
async fn a_server_of_the_newer_era_is_listened_to_and_says_how_long_its_list_holds() {
    let (change, left) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let url = newer(change.clone(), left.clone()).await;
    let answer = ask(&question(&url)).await.unwrap();
    assert_eq!((answer.era, answer.holds), (Era::Discover, Some(Duration::from_secs(90))));
    assert_eq!(answer.tools[0].name, "t");
    let mut changes = answer.changes.unwrap();
    assert!(changes.next().now_or_never().is_none(), "nothing changed yet");
    change.notify_one();
    timeout(Duration::from_secs(20), changes.next()).await.unwrap();
    changes.close().await;
    timeout(Duration::from_secs(20), left.notified()).await.unwrap();
}

#[tokio::test]
async fn tools_that_are_there_in_time_are_told_though_nobody_answers_the_wish_to_listen() {
    let answer = |body: Bytes| async move {
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let result = match request["method"].as_str() {
            Some("server/discover") => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {"listChanged": true}}, "ttlMs": 0, "cacheScope": "private",
            }),
            Some("tools/list") => json!({
                "resultType": "complete", "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
                "ttlMs": 90_000, "cacheScope": "private",
            }),
            Some("subscriptions/listen") => pending().await,
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        json_answer(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
    };
    let url = serve(Router::new().route("/mcp", any(answer))).await + "/mcp";
    let client = reach(DENIED).client(Trust::System).unwrap();
    // Less than a wish to listen may take.
    let end = Instant::now() + Duration::from_millis(1900);
    let question = Question { era: Some(Era::Discover), end, ..question(&url) };
    let answer = ask_by(client, &question).await.unwrap();
    assert_eq!(answer.tools.len(), 1);
    assert!(answer.changes.is_none());
}

/// A server behind TLS, with a certificate that no authority of the system signed.
async fn secured(folder: &str) -> String {
    let file = |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name);
    let certificate = CertificateDer::from_pem_file(file("one.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("one.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    // Who is let in is passed on to a server without TLS.
    let plain = newer(Arc::default(), Arc::default()).await;
    let plain = plain.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let (acceptor, plain) = (acceptor.clone(), plain.clone());
            tokio::spawn(async move {
                let mut client = acceptor.accept(io).await.ok()?;
                let mut server = TcpStream::connect(plain).await.ok()?;
                copy_bidirectional(&mut client, &mut server).await.ok()
            });
        }
    });
    format!("https://localhost:{port}/mcp")
}

#[tokio::test]
async fn a_certificate_is_taken_by_its_authority_or_because_nobody_looks_and_else_refused() {
    const CERTS: &str = "src/gateway/tests/certs";
    let url = secured(CERTS).await;
    let pem =
        |name: &str| std::fs::read(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(CERTS).join(name)).unwrap();
    let (own, other) = (pem("one.crt"), pem("two.crt"));
    let reach = reach(DENIED);
    for (trust, taken) in
        [(Trust::System, false), (Trust::Also(&other), false), (Trust::Also(&own), true), (Trust::Anyone, true)]
    {
        let asked = ask_by(reach.client(trust).unwrap(), &question(&url)).await;
        assert_eq!(asked.is_ok(), taken, "{trust:?}: {asked:?}");
        if let Err(failed) = asked {
            assert_eq!(failed.reason, "ServerUnreachable");
            assert!(failed.message.contains("certificate"), "{failed:?}");
        }
    }
}
