//! Tests of Ollama's API.

use std::sync::Arc;

use crds::usage::{Purpose, UsageKey, UsageTotals};
use serde_json::json;

use super::{
    super::{Chunk, Message, ModelErrorKind, ModelRequest, Part, Usage, open_embedder},
    Provider, ScriptedReply, collect, everything, read, token,
};
use crate::usage::UsageAccount;

/// Streamed answer "Hello there".
pub(super) const GOOD: &str = r#"{"model":"m","created_at":"2025-01-01T00:00:00Z","message":{"role":"assistant","content":"Hello"},"done":false}
{"model":"m","created_at":"2025-01-01T00:00:00Z","message":{"role":"assistant","content":" thére","thinking":"hm"},"done":false}
{"model":"m","created_at":"2025-01-01T00:00:00Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":1,"load_duration":1,"prompt_eval_count":26,"prompt_eval_duration":1,"eval_count":298,"eval_duration":1}
"#;

/// Failure of the provider within its answer.
pub(super) const FAILED: &str = "{\"error\":\"SECRET\"}\n";

/// Streamed answer with two tool calls.
pub(super) const CALLS: &str = r#"{"model":"m","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"weather","arguments":{"city":"Bern"}}},{"id":"given","function":{"index":1,"name":"time","arguments":{}}}]},"done":false}
{"model":"m","message":{"role":"assistant","content":""},"done_reason":"stop","done":true,"prompt_eval_count":1,"eval_count":2}"#;

#[tokio::test]
async fn text_and_tokens_are_read() {
    let usage = Chunk::Usage(Usage::new(26, 298));
    assert_eq!(read("ollama", GOOD).await.unwrap(), [token("Hello thére"), usage.clone()]);
    let cut = GOOD.replace("stop", "length");
    assert_eq!(read("ollama", &cut).await.unwrap(), [token("Hello thére"), Chunk::Truncated, usage]);
}

#[tokio::test]
async fn parallel_calls_are_read() {
    let found = read("ollama", CALLS).await.unwrap();
    let [Chunk::Call(first), Chunk::Call(second), Chunk::Usage(usage)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((first.name.as_str(), &first.arguments, first.id.len()), ("weather", &json!({"city": "Bern"}), 21));
    assert_eq!((second.name.as_str(), second.id.as_str(), usage.output), ("time", "given", 2));
}

#[tokio::test]
async fn a_request_with_everything() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    let mut reference = server.reference("ollama");
    reference.config = json!({"keepAlive": "5m", "numCtx": 8192, "temperature": 0.1}).as_object().unwrap().clone();
    collect(server.model_with(reference).respond(everything())).await.unwrap();
    let asked = server.only();
    assert_eq!((asked.path.as_str(), &asked.headers["authorization"]), ("/api/chat", &"Bearer KEY".parse().unwrap()));
    assert_eq!(
        asked.body,
        json!({
            "model": "model-1",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "what is this?", "images": ["iVBORw0KGgo="]},
                {"role": "assistant", "content": "a map"},
                {"role": "system", "content": "the user likes cats"},
                {"role": "user", "content": "and the weather?"},
                {"role": "assistant", "content": "I will look.", "tool_calls": [
                    {"function": {"name": "weather", "arguments": {"city": "Bern"}}},
                    {"function": {"name": "weather", "arguments": {"city": "Ulm"}}},
                ]},
                {"role": "tool", "tool_name": "weather", "content": "rain"},
                {"role": "tool", "tool_name": "weather", "content": "Error: no answer"},
            ],
            "tools": [{"type": "function", "function": {
                "name": "weather",
                "description": "tells the weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            }}],
            "format": {"type": "object"},
            "options": {
                "temperature": 0.5, "num_predict": 100, "top_p": 0.9, "top_k": 40, "stop": ["END"], "seed": 7,
                "num_ctx": 8192,
            },
            "keep_alive": "5m",
            "stream": true,
        })
    );
}

#[tokio::test]
async fn a_picture_elsewhere_is_the_users_error() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    let part = Part::Media { url: "https://h/x.png".into(), content_type: None };
    let messages = vec![Arc::new(Message::User(vec![part]))];
    let answer = collect(server.model("ollama").respond(ModelRequest { messages, ..ModelRequest::default() })).await;
    let error = answer.unwrap_err();
    assert!(error.kind == ModelErrorKind::BadRequest && error.to_string().contains("`data:` URL"), "{error}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_text_is_embedded() {
    let good = r#"{"model":"m","embeddings":[[0.5,-1,2e-3]],"total_duration":1,"prompt_eval_count":8}"#;
    let server = Provider::new([
        ScriptedReply::status(503),
        ScriptedReply::ok(good).pieces(3),
        ScriptedReply::ok(r#"{"embeddings":[]}"#),
    ])
    .await;
    let embedder = open_embedder(&server.reference("ollama"), &|_: &str| None, &server.http).unwrap();
    let account = UsageAccount::new("ada");
    assert_eq!(embedder.embed("where is Bern?", account.clone()).await.unwrap(), [0.5, -1.0, 0.002]);
    let asked = server.requests();
    assert_eq!((asked.len(), asked[1].path.as_str()), (2, "/api/embed"));
    assert_eq!(asked[1].body, json!({"model": "model-1", "input": "where is Bern?"}));
    assert_eq!(embedder.embed("", account.clone()).await.unwrap_err().kind, ModelErrorKind::Malformed);
    let report = server.http.usage.report("", 0);
    let [cell] = &report.cells[..] else { panic!("{report:?}") };
    let UsageKey { caller, provider, model, purpose, .. } = &cell.key;
    assert_eq!(
        (caller.as_str(), provider.as_str(), model.as_str(), *purpose),
        ("ada", "ollama", "model-1", Purpose::Embed)
    );
    let UsageTotals { calls, failed, input, output, estimated, .. } = cell.totals;
    assert_eq!((calls, failed, input, output, estimated), (1, 1, 8, 0, 0), "a refused request costs nothing");
    assert_eq!(account.json().unwrap()["calls"], 2, "they are part of the caller's request");
    assert!(open_embedder(&server.reference("openai"), &|_: &str| None, &server.http).is_err());
}
