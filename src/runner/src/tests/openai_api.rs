//! OpenAI's API over HTTP: cases that the official clients do not show, above all error responses.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::Runner;
use crate::models::{Chunk, Message, Model, ModelError, ModelErrorKind, ModelRequest, Usage};

impl Runner {
    async fn complete(&self, body: &Value) -> (u16, Value) {
        let request = self.client.post(self.url("/v1/chat/completions")).body(body.to_string());
        let response = request.send().await.unwrap();
        (response.status().as_u16(), serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
    }

    /// Returns the data of all events.
    async fn chunks(&self, body: &Value) -> Vec<String> {
        let request = self.client.post(self.url("/v1/chat/completions")).body(body.to_string());
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let text = response.text().await.unwrap();
        text.lines().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned)).collect()
    }
}

fn completion_body(text: &str) -> Value {
    json!({ "model": "tester", "messages": [{ "role": "user", "content": text }] })
}

/// Model that answers with the size and config of its request, reports usage, and truncates or fails on demand.
struct Mirror;

#[async_trait]
impl Model for Mirror {
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let Some(Message::User(parts)) = request.messages.last().map(|last| (**last).clone()) else {
            return stream::empty().boxed();
        };
        let message = format!("{parts:?}");
        let asleep = || Err(ModelError::new(ModelErrorKind::Unavailable, "it is asleep"));
        if message.contains("fail at once") {
            return stream::iter([asleep()]).boxed();
        }
        let seen =
            json!({ "messages": request.messages.len(), "config": *request.config, "json": request.output.is_some() });
        let mut chunks = vec![Ok(Chunk::Token(seen.to_string())), Ok(Chunk::Token("!".into()))];
        if message.contains("fail late") {
            chunks.push(asleep());
        }
        if message.contains("long") {
            chunks.push(Ok(Chunk::Truncated));
        }
        chunks.push(Ok(Chunk::Usage(Usage::new(3, 2))));
        stream::iter(chunks).boxed()
    }
}

#[tokio::test]
async fn an_agent_is_a_model_under_its_name() {
    let runner = Runner::with(&[("CORAIL_AGENT_NAME", "shop".into())]).await;
    let (status, list) = runner.get("/v1/models").await;
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((status, &list["object"], &list["data"][0]["id"]), (200, &json!("list"), &json!("shop")));
    let (status, one) = runner.get("/v1/models/shop").await;
    assert_eq!((status, serde_json::from_str::<Value>(&one).unwrap()), (200, list["data"][0].clone()));
}

#[tokio::test]
async fn the_request_is_the_whole_conversation_and_nothing_is_kept() {
    let runner = Runner::with_model(Mirror).await;
    let mut body = completion_body("hello");
    body["max_tokens"] = 9.into();
    body["response_format"] = json!({ "type": "json_object" });
    for _ in 0..2 {
        let (status, answer) = runner.complete(&body).await;
        let choice = &answer["choices"][0];
        assert_eq!((status, &answer["object"]), (200, &json!("chat.completion")));
        assert_eq!((&choice["finish_reason"], &choice["message"]["role"]), (&json!("stop"), &json!("assistant")));
        let seen = r#"{"config":{"maxOutputTokens":9},"json":true,"messages":1}!"#;
        assert_eq!(choice["message"]["content"], seen);
        assert_eq!(answer["usage"], json!({ "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5 }));
    }
    let (_, long) = runner.complete(&completion_body("long")).await;
    assert_eq!(long["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn a_tool_is_called_here_and_its_result_answered() {
    let runner = Runner::with_tools(json!([{ "name": "calculator", "type": "builtin" }])).await;
    let mut body = completion_body(r#"/tool calculator {"expression": "6*7"}"#);
    body["model"] = "agent".into();
    let (_, answer) = runner.complete(&body).await;
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().contains("42"), "{answer}");
    assert_eq!(answer["usage"]["estimated"], true, "the stub does not count: {answer}");
    assert!(answer["usage"]["prompt_tokens"].as_u64() > Some(0) && answer["usage"]["total_tokens"].as_u64() > Some(1));
}

#[tokio::test]
async fn a_stream_is_chunks_then_usage_then_done() {
    let runner = Runner::with_model(Mirror).await;
    let mut body = completion_body("long");
    body["stream"] = true.into();
    let plain = runner.chunks(&body).await;
    assert_eq!((plain.len(), plain.last().unwrap().as_str()), (5, "[DONE]"));
    assert!(!plain[0].contains("usage"), "{}", plain[0]);

    body["stream_options"] = json!({ "include_usage": true });
    let mut chunks = runner.chunks(&body).await;
    assert_eq!(chunks.pop().unwrap(), "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    assert_eq!(chunks[2]["choices"][0]["delta"], json!({ "content": "!" }));
    assert_eq!(chunks[3]["choices"][0]["finish_reason"], "length");
    assert_eq!((&chunks[4]["choices"], &chunks[4]["usage"]["total_tokens"]), (&json!([]), &json!(5)));
    for chunk in &chunks {
        assert_eq!((&chunk["id"], &chunk["model"]), (&chunks[0]["id"], &json!("tester")));
        assert!(chunk.get("usage").is_some());
    }
}

#[tokio::test]
async fn a_model_that_fails_is_a_502_or_the_last_event_of_a_stream() {
    let runner = Runner::with_model(Mirror).await;
    let error = json!({ "error": {
        "message": "the model did not answer: it is asleep", "type": "server_error", "param": null, "code": null,
    } });
    for (text, stream) in [("fail at once", false), ("fail late", false), ("fail at once", true)] {
        let mut body = completion_body(text);
        body["stream"] = stream.into();
        assert_eq!(runner.complete(&body).await, (502, error.clone()), "{text}");
    }
    let mut body = completion_body("fail late");
    body["stream"] = true.into();
    let chunks = runner.chunks(&body).await;
    assert_eq!(serde_json::from_str::<Value>(chunks.last().unwrap()).unwrap(), error);
}

/// Model that never answers; notifies when its stream is dropped.
struct Silent(Arc<Notify>);

struct Guard(Arc<Notify>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[async_trait]
impl Model for Silent {
    fn respond(&self, _: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>> {
        let guard = Guard(self.0.clone());
        let never = stream::once(async move {
            std::future::pending::<()>().await;
            drop(guard);
            Ok(Chunk::Token(String::new()))
        });
        stream::iter([Ok(Chunk::Token("one".into()))]).chain(never).boxed()
    }
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_turn() {
    let dropped = Arc::new(Notify::new());
    let runner = Runner::with_model(Silent(dropped.clone())).await;
    let mut body = completion_body("go");
    body["stream"] = true.into();
    let request = runner.client.post(runner.url("/v1/chat/completions")).body(body.to_string());
    let response = request.send().await.unwrap();
    drop(response);
    dropped.notified().await;
}

#[tokio::test]
async fn every_error_has_openai_s_form() {
    let runner = Runner::with_model(Mirror).await;
    let big = json!({ "model": "tester", "messages": ["x".repeat(1 << 20)] }).to_string();
    let other = json!({ "model": "gpt", "messages": [{ "role": "user", "content": "a" }] }).to_string();
    let alone = json!({ "model": "tester", "messages": [{ "role": "system", "content": "a" }] }).to_string();
    let chat = "/v1/chat/completions";
    for (method, path, body, status, code, text) in [
        ("POST", chat, "{", 400, Value::Null, "chat completion request in JSON"),
        ("POST", chat, "[]", 400, Value::Null, "chat completion request in JSON"),
        ("POST", chat, "{}", 400, Value::Null, "missing field"),
        ("POST", chat, &alone, 400, Value::Null, "has no user message"),
        ("POST", chat, &other, 404, json!("model_not_found"), "known models: tester"),
        ("POST", chat, &big, 413, Value::Null, "larger than 1 MiB"),
        ("GET", chat, "", 405, Value::Null, "GET is not allowed here"),
        ("POST", "/v1/models", "", 405, Value::Null, "POST is not allowed here"),
        ("GET", "/v1/models/gpt", "", 404, json!("model_not_found"), "unknown model `gpt`"),
        ("POST", "/v1/embeddings", "{}", 404, Value::Null, "unknown route"),
        ("POST", "/v1/responses", "{}", 400, Value::Null, "missing field `model`"),
        (
            "POST",
            "/v1/responses",
            r#"{"model": "gpt", "input": "a"}"#,
            404,
            json!("model_not_found"),
            "known models: tester",
        ),
        ("GET", "/v1/responses", "", 405, Value::Null, "GET is not allowed here"),
    ] {
        let request = runner.client.request(method.parse().unwrap(), runner.url(path)).body(body.to_owned());
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{method} {path}");
        assert_eq!(response.headers().contains_key("allow"), status == 405, "{method} {path}");
        let answer: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        let error = &answer["error"];
        assert_eq!((&error["type"], &error["code"]), (&json!("invalid_request_error"), &code), "{answer}");
        assert!(error["message"].as_str().unwrap().contains(text), "{answer}");
    }
    let unready = Runner::with(&[("CORAIL_MODEL_TYPE", "nothing".into())]).await;
    let (status, answer) = unready.complete(&completion_body("hi")).await;
    assert_eq!((status, &answer["error"]["type"]), (503, &json!("server_error")));
}
