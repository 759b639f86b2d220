//! Agents as tools in Agent2Agent: this runtime asks itself, and agents of either version that answer by a script.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::RawQuery,
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, time::timeout};

use super::Runner;

/// Longest wait for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the response to the request of this method and number, with its `httpStatus` if that is not 200.
type Script = fn(&str, usize) -> Value;

/// Agent that answers by a script, and tells what it was asked.
struct ScriptedAgent {
    address: SocketAddr,
    requests: mpsc::UnboundedReceiver<String>,
}

impl ScriptedAgent {
    /// Starts an agent below `/base` whose requests go to `/base/rpc`.
    async fn start(card: Value, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let (cards, count) = (sender.clone(), Arc::new(AtomicUsize::new(0)));
        let show = move || {
            let _ = cards.send("card".to_owned());
            let card = card.to_string();
            async move { card }
        };
        let call = move |headers: HeaderMap, body: Bytes| {
            let request: Value = serde_json::from_slice(&body).unwrap();
            let method = request["method"].as_str().unwrap();
            let header = |name: &str| headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
            let _ = sender.send(format!("{method} {} {}", header("a2a-version"), header("x-key")));
            let mut response = script(method, count.fetch_add(1, Ordering::SeqCst));
            let status = response.as_object_mut().and_then(|fields| fields.remove("httpStatus"));
            let status = status.and_then(|status| StatusCode::from_u16(u16::try_from(status.as_u64()?).ok()?).ok());
            response["jsonrpc"] = json!("2.0");
            response["id"] = request["id"].clone();
            async move { (status.unwrap_or(StatusCode::OK), response.to_string()) }
        };
        let routes = Router::new();
        let routes = routes.route("/base/.well-known/agent-card.json", get(show)).route("/base/rpc", post(call));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { address, requests }
    }

    /// Returns a tool that asks the agent at this path.
    fn tool(&self, path: &str, timeout: u64) -> Value {
        let endpoint = format!("http://{}{path}", self.address);
        json!({"name": "ask", "type": "agent", "endpoint": endpoint, "agentProtocol": "a2a",
               "headers": {"x-key": "secret"}, "timeout": timeout})
    }

    /// Returns the next request.
    async fn next(&mut self) -> String {
        timeout(REQUEST_TIMEOUT, self.requests.recv()).await.unwrap().unwrap()
    }

    /// Returns the requests so far that were not returned yet.
    fn so_far(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).collect()
    }
}

/// Returns a card as frameworks publish it: with an address that leads nowhere from here.
fn card(version: &str) -> Value {
    let listed = json!([{"url": "http://localhost:8000/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]);
    match version {
        "1.0" => json!({"name": "a", "supportedInterfaces": listed}),
        _ => json!({"name": "a", "url": "http://localhost:8000/rpc", "protocolVersion": version}),
    }
}

/// Returns a task as the result of a method of 0.3.
fn task(state: &str, text: &str) -> Value {
    let said = json!({"kind": "message", "role": "agent", "parts": [{"kind": "text", "text": text}]});
    json!({"result": {"kind": "task", "id": "t", "contextId": "c", "status": {"state": state, "message": said}}})
}

async fn ask(tool: Value) -> String {
    Runner::with_tools(json!([tool])).await.say(r#"/tool ask {"message": "hi"}"#).await
}

#[tokio::test]
async fn an_agent_of_this_runtime_is_asked_in_agent2agent() {
    let asked = Runner::with(&[]).await;
    let tool = json!({"name": "ask", "type": "agent", "endpoint": asked.url(""), "agentProtocol": "a2a"});
    let runner = Runner::with_tools(json!([tool])).await;
    for message in ["hello", "again"] {
        let call = format!(r#"/tool ask {{"message": "{message}"}}"#);
        assert_eq!(runner.say(call).await, format!("echo: {message}"), "each call is a context of its own");
    }
}

#[tokio::test]
async fn the_query_of_an_endpoint_goes_with_the_card_and_with_each_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let only_for = |query: &Option<String>| match query.as_deref() {
        Some("assistant_id=a%2F1") => StatusCode::OK,
        _ => StatusCode::NOT_FOUND,
    };
    let show = move |RawQuery(query): RawQuery| async move {
        let card = json!({"name": "a", "url": "http://localhost:2024/a2a/1", "protocolVersion": "0.3.0"});
        (only_for(&query), card.to_string())
    };
    let call =
        move |RawQuery(query): RawQuery| async move { (only_for(&query), task("completed", "done").to_string()) };
    let routes = Router::new().route("/.well-known/agent-card.json", get(show)).route("/a2a/1", post(call));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let tool = |query: &str| {
        let endpoint = format!("http://{address}{query}");
        json!({"name": "ask", "type": "agent", "endpoint": endpoint, "agentProtocol": "a2a"})
    };
    assert_eq!(ask(tool("?assistant_id=a%2F1")).await, "done");
    assert_eq!(ask(tool("/?assistant_id=a%2F1")).await, "done");
    let answer = ask(tool("?assistant_id=hunter2")).await;
    assert!(answer.ends_with("has no agent card: is it an A2A agent?") && !answer.contains("hunter2"), "{answer}");
}

#[tokio::test]
async fn a_task_that_works_is_asked_for_and_the_card_is_kept() {
    let script: Script = |method, number| match (method, number) {
        ("message/send", _) | ("tasks/get", 1) => task("working", "thinking"),
        _ => task("completed", "done"),
    };
    let mut agent = ScriptedAgent::start(card("0.3.0"), script).await;
    let runner = Runner::with_tools(json!([agent.tool("/base/", 30)])).await;
    assert_eq!(runner.say(r#"/tool ask {"message": "hi"}"#).await, "done");
    assert_eq!(
        agent.so_far(),
        ["card", "message/send - secret", "tasks/get - secret", "tasks/get - secret"],
        "0.3 has no header for its version"
    );
    assert_eq!(runner.say(r#"/tool ask {"message": "hi"}"#).await, "done");
    assert_eq!(agent.so_far(), ["message/send - secret", "tasks/get - secret"]);
}

#[tokio::test]
async fn a_task_is_asked_for_again_after_an_error_of_the_server_and_not_after_a_refusal() {
    let script: Script = |method, number| match (method, number) {
        ("message/send", _) => task("working", "thinking"),
        ("tasks/get", 1) => json!({"httpStatus": 503}),
        _ => task("completed", "done"),
    };
    let mut agent = ScriptedAgent::start(card("0.3.0"), script).await;
    assert_eq!(ask(agent.tool("/base", 30)).await, "done");
    assert_eq!(agent.so_far(), ["card", "message/send - secret", "tasks/get - secret", "tasks/get - secret"]);
    let script: Script = |method, _| match method {
        "message/send" => task("working", "thinking"),
        _ => json!({"httpStatus": 404}),
    };
    let agent = ScriptedAgent::start(card("0.3.0"), script).await;
    let answer = ask(agent.tool("/base", 30)).await;
    assert!(answer.starts_with("tool ask failed: HTTP 404"), "{answer}");
}

#[tokio::test]
async fn a_task_that_takes_longer_than_the_tool_is_cancelled() {
    let script: Script = |method, _| match method {
        "SendMessage" => json!({"result": {"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}}}),
        _ => json!({"result": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}}),
    };
    let mut agent = ScriptedAgent::start(card("1.0"), script).await;
    assert_eq!(ask(agent.tool("/base", 2)).await, "tool ask failed: no answer within 2 s");
    let mut requests = vec![agent.next().await];
    while requests.last().is_some_and(|last| !last.starts_with("CancelTask")) {
        requests.push(agent.next().await);
    }
    let first = ["card", "SendMessage 1.0 secret", "GetTask 1.0 secret"];
    assert_eq!(
        (&requests[..3], requests.last().unwrap().as_str()),
        (&first.map(str::to_owned)[..], "CancelTask 1.0 secret")
    );
}

#[tokio::test]
async fn an_agent_that_asks_back_answers_and_one_that_fails_says_why() {
    let cases: [(Script, &str); 5] = [
        (|_, _| task("input-required", "Which city?"), "Which city?"),
        (|_, _| task("failed", "no seat"), "tool ask failed: the agent failed: no seat"),
        (|_, _| task("auth-required", ""), "tool ask failed: the agent requires credentials"),
        (
            |_, _| json!({"error": {"code": -32004, "message": "not today"}}),
            "tool ask failed: not today (error -32004)",
        ),
        (
            |_, _| json!({"result": {}}),
            "tool ask failed: the answer is not one of A2A: its result is neither a task nor a message",
        ),
    ];
    for (script, expected) in cases {
        let agent = ScriptedAgent::start(card("0.3.0"), script).await;
        assert_eq!(ask(agent.tool("/base", 30)).await, expected);
    }
}

#[tokio::test]
async fn what_has_no_card_to_use_says_so() {
    let none: Script = |_, _| Value::Null;
    let agent = ScriptedAgent::start(json!({"detail": "hello"}), none).await;
    for path in ["/base", "/elsewhere"] {
        let expected =
            format!("tool ask failed: http://{}{path} has no agent card: is it an A2A agent?", agent.address);
        assert_eq!(ask(agent.tool(path, 30)).await, expected);
    }
    let newer = ScriptedAgent::start(json!({"url": "http://a/", "protocolVersion": "2.0"}), none).await;
    let expected = "/base has an agent card without an interface JSONRPC of version 1.0 or 0.3, it offers JSONRPC 2.0";
    let answer = ask(newer.tool("/base", 30)).await;
    assert!(answer.ends_with(expected), "{answer}");
}
