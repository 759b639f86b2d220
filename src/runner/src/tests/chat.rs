//! Routes, events, conversations and failing models of an agent.

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::{Value, json};

use super::Runner;
use crate::caller::CallerKey;
use crate::models::{Chunk, Model, ModelError, ModelErrorKind, ModelRequest, ToolCall};
use crate::usage::UsageAccount;

#[tokio::test]
async fn every_route_has_its_status_and_every_error_its_text() {
    let runner = Runner::with(&[]).await;
    let big = json!({ "message": "x".repeat(1 << 20) }).to_string();
    for (method, path, body, status, text) in [
        ("POST", "/chat", r#"{"message":"hi"}"#, 200, r#""reply":"echo: hi""#),
        ("POST", "/chat", "{", 400, "the body must be JSON like"),
        ("POST", "/chat", "{}", 400, "missing field `message`"),
        ("POST", "/chat", r#"{"message":" "}"#, 400, "`message` is empty"),
        ("POST", "/chat", r#"{"message":"a","conversation_id":"a b"}"#, 400, "`conversation_id` must be"),
        ("POST", "/chat", &big, 413, "larger than 1 MiB"),
        ("GET", "/chat", "", 405, "GET is not allowed here"),
        ("POST", "/nothing", "", 404, "unknown route"),
        ("GET", "/healthz", "", 200, "ok"),
        ("GET", "/readyz", "", 200, "ok"),
        ("POST", "/readyz", "", 405, "POST is not allowed here"),
    ] {
        let request = runner.client.request(method.parse().unwrap(), runner.url(path)).body(body.to_owned());
        let response = request.send().await.unwrap();
        let found = response.status().as_u16();
        let allow = response.headers().contains_key("allow");
        let answer = response.text().await.unwrap();
        assert_eq!(found, status, "{method} {path}: {answer}");
        assert!(answer.contains(text), "{method} {path}: {answer}");
        let error: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(error["error"].is_string(), status >= 400, "{answer}");
        assert_eq!(allow, status == 405, "{method} {path}");
    }
    let (_, metrics) = runner.get("/metrics").await;
    for line in [
        r#"recif_runner_requests_total{code="200"} 1"#,
        r#"recif_runner_requests_total{code="400"} 4"#,
        r#"recif_runner_requests_total{code="404"} 1"#,
        r#"recif_runner_requests_total{code="405"} 1"#,
        r#"recif_runner_requests_total{code="413"} 1"#,
        "recif_runner_requests_in_flight 0",
        "recif_runner_request_duration_seconds_count 8",
        "# EOF",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn a_turn_is_a_line_of_the_log_without_what_was_said() {
    let (log, _kept) = super::log::Log::capture();
    let runner = Runner::with_tools(json!([{ "name": "calculator", "type": "builtin" }])).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let body = json!({ "message": r#"/tool calculator {"expression": "6*7"}"#, "conversation_id": "c1" });
    let request = runner.client.post(runner.url("/chat")).header("x-recif-user", "alice");
    let request = request.header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"));
    assert_eq!(request.body(body.to_string()).send().await.unwrap().status(), 200);
    let logged = log.drain();
    let line = logged.lines().find(|line| line.contains("took_ms=")).unwrap_or_else(|| panic!("{logged}"));
    for field in ["user=\"alice\"", trace, "tools=\"calculator\"", "outcome=\"answered\""] {
        assert!(line.contains(field), "{field} is not in {line}");
    }
    assert!(!logged.contains("6*7"), "{logged}");
}

#[tokio::test]
async fn a_stream_is_tokens_and_then_done() {
    let runner = Runner::with(&[]).await;
    let mut events = runner.events("hello there\nline two").await;
    let (name, last) = events.pop().unwrap();
    assert_eq!((name.as_str(), &last["title"]), ("done", &json!("hello there")));
    assert_eq!(last["conversation_id"].as_str().unwrap().len(), 32);
    assert!(events.len() > 2 && events.iter().all(|(name, _)| name.is_empty()));
    let text: String = events.iter().map(|(_, data)| data["token"].as_str().unwrap()).collect();
    assert_eq!(text, "echo: hello there\nline two");
}

#[tokio::test]
async fn a_stream_tells_which_tools_are_called_and_how_that_went() {
    let runner = Runner::with_tools(json!([{ "name": "calculator", "type": "builtin" }])).await;
    for (message, arguments, ok, text) in [
        (r#"/tool calculator {"expression": "6*7"}"#, json!({ "expression": "6*7" }), true, "42"),
        ("/tool nothing", Value::Null, false, "tool nothing failed"),
    ] {
        let events = runner.events(message).await;
        let [(call, called), (result, outcome), rest @ ..] = &events[..] else { panic!("{events:?}") };
        assert_eq!((call.as_str(), result.as_str()), ("tool_call", "tool_result"));
        assert_eq!((&called["arguments"], &called["id"]), (&arguments, &outcome["id"]));
        assert!(outcome["ok"] == ok && outcome["tookMs"].is_u64(), "{outcome}");
        let sentence: String = rest.iter().filter_map(|(_, data)| data["token"].as_str()).collect();
        assert!(sentence.contains(text), "{sentence}");
    }
}

#[tokio::test]
async fn a_model_type_that_is_not_supported_leaves_the_process_alive_and_not_ready() {
    let runner = Runner::with(&[("CORAIL_MODEL_TYPE", "soap".into())]).await;
    assert_eq!(runner.get("/healthz").await.0, 200);
    let (status, why) = runner.get("/readyz").await;
    assert!(status == 503 && why.contains("unknown model provider `soap`; use openai"), "{status} {why}");
    let response = runner.client.get(runner.url("/readyz")).send().await.unwrap();
    assert_eq!(response.headers()["x-recif-ready"], "never");
    assert_eq!(runner.chat(json!({"message": "hi"})).await.0, 503);
}

/// Model that says how many messages it got; `fail` makes it fail after one token.
struct Counter;

#[async_trait]
impl Model for Counter {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let last = format!("{:?}", request.messages.last());
        let mut chunks = vec![Ok(Chunk::Token(request.messages.len().to_string()))];
        if last.contains("fail") {
            chunks.push(Err(ModelError::new(ModelErrorKind::Unavailable, "it is asleep")));
        }
        stream::iter(chunks).boxed()
    }

    async fn title(&self, _: &str, _: Option<CallerKey>, _: UsageAccount) -> String {
        "counting".into()
    }
}

#[tokio::test]
async fn a_conversation_goes_on_and_a_failed_turn_leaves_no_trace() {
    let runner = Runner::with_model(Counter).await;
    let (_, first) = runner.chat(json!({"message": "a"})).await;
    assert_eq!((&first["reply"], &first["title"]), (&json!("1"), &json!("counting")));
    let id = &first["conversation_id"];
    let (status, failed) = runner.chat(json!({"message": "fail", "conversation_id": id})).await;
    assert_eq!((status, &failed["error"]), (502, &json!("the model did not answer: it is asleep")));
    let (_, second) = runner.chat(json!({"message": "b", "conversation_id": id})).await;
    assert_eq!((&second["reply"], second.get("title"), &second["conversation_id"]), (&json!("3"), None, id));
    let (_, other) = runner.chat(json!({"message": "b", "conversation_id": "mine"})).await;
    assert_eq!((&other["reply"], &other["conversation_id"]), (&json!("1"), &json!("mine")));
    let (status, never) = runner.chat(json!({"message": "b", "conversation_id": "0".repeat(32)})).await;
    let why = never["error"].as_str().unwrap();
    assert!(status == 404 && why.starts_with("unknown conversation `0000"), "{never}");
}

#[tokio::test]
async fn a_conversation_is_its_users_alone() {
    let runner = Runner::with(&[]).await;
    let say = async |user: &str, accept: &str| {
        let mut request = runner.client.post(runner.url("/chat")).header("accept", accept);
        if !user.is_empty() {
            request = request.header("x-recif-user", user);
        }
        let response =
            request.body(json!({"message": "hi", "conversation_id": "c1"}).to_string()).send().await.unwrap();
        response.status().as_u16()
    };
    assert_eq!(say("alice", "*/*").await, 200);
    for other in ["mallory", ""] {
        assert_eq!((say(other, "*/*").await, say(other, "text/event-stream").await), (404, 404), "{other}");
    }
    assert_eq!(say("alice", "text/event-stream").await, 200);
}

#[tokio::test]
async fn a_web_page_of_another_origin_is_refused_and_its_own_must_send_json() {
    let runner = Runner::with(&[]).await;
    let host = runner.address.to_string();
    let own = format!("http://{host}");
    let plain = "text/plain";
    for (path, origin, prefix, kind, status) in [
        ("/chat", "", "", plain, 200),
        ("/chat", "http://evil.example", "", plain, 403),
        ("/chat", "http://evil.example", "", "application/json", 403),
        ("/chat", "null", "", plain, 403),
        ("/v1/chat/completions", "http://evil.example", "", plain, 403),
        ("/chat", &own, "", plain, 415),
        ("/chat", &own, "", "application/json", 200),
        ("/chat", "http://evil.example", "/v1/agents/ns/a", plain, 415),
        ("/chat", "https://ui.example", "/v1/agents/ns/a", "application/json", 200),
    ] {
        let mut request = runner.client.post(runner.url(path)).header("content-type", kind);
        for (name, value) in [("origin", origin), ("x-forwarded-prefix", prefix)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        let response = request.body(r#"{"message":"hi"}"#).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path} {origin} {prefix} {kind}");
    }
}

#[tokio::test]
async fn a_model_that_fails_in_a_stream_ends_it_with_an_error() {
    let events = Runner::with_model(Counter).await.events("fail").await;
    assert_eq!(events[0], (String::new(), json!({"token": "1"})));
    assert_eq!(events[1], ("error".into(), json!({"error": "the model did not answer: it is asleep"})));
    assert_eq!(events.len(), 2);
}

/// Model that always calls another tool.
struct Greedy;

#[async_trait]
impl Model for Greedy {
    fn respond(&self, _: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let call = ToolCall { name: "datetime".into(), ..ToolCall::default() };
        stream::iter([Ok(Chunk::Token(".".into())), Ok(Chunk::Call(call))]).boxed()
    }

    async fn title(&self, _: &str, _: Option<CallerKey>, _: UsageAccount) -> String {
        String::new()
    }
}

#[tokio::test]
async fn a_model_gets_five_tool_turns() {
    let runner = Runner::with_model(Greedy).await;
    assert_eq!(runner.say("go").await, "......[stopped: the model asked for tools more than 5 times]");
    let (_, metrics) = runner.get("/metrics").await;
    assert!(metrics.contains(r#"recif_runner_tool_calls_total{type="builtin",outcome="ok"} 5"#), "{metrics}");
}
