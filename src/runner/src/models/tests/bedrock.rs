//! Tests of Bedrock's Converse API.

use std::sync::Arc;

use futures::TryStreamExt;
use serde_json::{Value, json};

use super::{
    super::{Chunk, Message, ModelErrorKind, ModelRef, ModelRequest, Part, Thought, ToolCall, Usage},
    Provider, ReplyEnd, ScriptedReply, call, collect, everything, hello, read, token,
};

/// Returns a message of a stream of events with headers that are texts.
pub(in crate::models) fn message(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut encoded: Vec<u8> = Vec::new();
    for (name, value) in headers {
        encoded.push(u8::try_from(name.len()).unwrap());
        encoded.extend(name.as_bytes());
        encoded.push(7);
        encoded.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        encoded.extend(value.as_bytes());
    }
    let mut message: Vec<u8> = Vec::new();
    message.extend(u32::try_from(16 + encoded.len() + payload.len()).unwrap().to_be_bytes());
    message.extend(u32::try_from(encoded.len()).unwrap().to_be_bytes());
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message.extend(encoded);
    message.extend(payload.as_bytes());
    message.extend(crc32fast::hash(&message).to_be_bytes());
    message
}

/// Returns an answer with these events.
fn events(events: &[(&str, Value)]) -> Vec<u8> {
    let event = |(name, payload): &(&str, Value)| {
        let headers = [(":event-type", *name), (":content-type", "application/json"), (":message-type", "event")];
        message(&headers, &payload.to_string())
    };
    events.iter().flat_map(event).collect()
}

fn exception(name: &str) -> Vec<u8> {
    let headers = [(":exception-type", name), (":content-type", "application/json"), (":message-type", "exception")];
    message(&headers, r#"{"message":"SECRET"}"#)
}

fn text(text: &str) -> (&'static str, Value) {
    ("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"text": text}, "p": "abcdef"}))
}

/// Returns the answer "Hello there" that stops for this reason.
pub(super) fn good(stop: &str) -> Vec<u8> {
    events(&[
        ("messageStart", json!({"role": "assistant", "p": "abc"})),
        text("Hello"),
        text(" thére"),
        ("contentBlockStop", json!({"contentBlockIndex": 0})),
        ("somethingNew", json!({"x": [1]})),
        ("messageStop", json!({"stopReason": stop})),
        (
            "metadata",
            json!({
                "usage": {
                    "inputTokens": 9, "outputTokens": 3, "totalTokens": 17,
                    "cacheReadInputTokens": 4, "cacheWriteInputTokens": 1,
                },
                "metrics": {"latencyMs": 10},
            }),
        ),
    ])
}

/// Returns an answer with reasoning, text and two calls, whose arguments come in pieces.
fn calls() -> Vec<u8> {
    let delta = |index: u64, delta: Value| ("contentBlockDelta", json!({"contentBlockIndex": index, "delta": delta}));
    let start = |index: u64, id: &str, name: &str| {
        let start = json!({"toolUse": {"toolUseId": id, "name": name}});
        ("contentBlockStart", json!({"contentBlockIndex": index, "start": start}))
    };
    let mut all = vec![
        ("messageStart", json!({"role": "assistant"})),
        delta(0, json!({"reasoningContent": {"text": "h"}})),
        delta(0, json!({"reasoningContent": {"text": "m"}})),
        delta(0, json!({"reasoningContent": {"signature": "c2ln"}})),
        delta(1, json!({"reasoningContent": {"redactedContent": "c2VjcmV0"}})),
        delta(2, json!({"text": "I look."})),
        start(3, "tooluse_1", "weather"),
        start(4, "tooluse_2", "time"),
    ];
    all.extend(r#"{"city":"Bern"}"#.chars().map(|c| delta(3, json!({"toolUse": {"input": c}}))));
    all.push(("messageStop", json!({"stopReason": "tool_use"})));
    events(&all)
}

fn reasoning() -> Vec<Value> {
    vec![
        json!({"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}),
        json!({"reasoningContent": {"redactedContent": "c2VjcmV0"}}),
    ]
}

#[tokio::test]
async fn text_and_tokens_are_read() {
    let usage = Chunk::Usage(Usage { cache_read: 4, cache_write: 1, ..Usage::new(14, 3) });
    assert_eq!(read("bedrock", good("end_turn")).await.unwrap(), [token("Hello thére"), usage.clone()]);
    let cut = read("bedrock", good("max_tokens")).await.unwrap();
    assert_eq!(cut, [token("Hello thére"), Chunk::Truncated, usage]);
    for (stop, kind) in [
        ("content_filtered", ModelErrorKind::Refused),
        ("guardrail_intervened", ModelErrorKind::Refused),
        ("malformed_tool_use", ModelErrorKind::Malformed),
    ] {
        assert_eq!(read("bedrock", good(stop)).await.unwrap_err().kind, kind, "{stop}");
    }
}

#[tokio::test]
async fn parallel_calls_are_put_together() {
    let thought = Some(Thought::Reasoning(reasoning()));
    let (id, name, arguments) = ("tooluse_1".into(), "weather".into(), json!({"city": "Bern"}));
    let first = Chunk::Call(ToolCall { id, name, arguments, thought });
    assert_eq!(
        read("bedrock", calls()).await.unwrap(),
        [token("I look."), first, call("tooluse_2", "time", json!({}))]
    );
}

#[tokio::test]
async fn a_request_with_everything() {
    let server = Provider::new([ScriptedReply::ok(good("end_turn"))]).await;
    let id = "arn:aws:bedrock:eu-central-1:1:inference-profile/eu.acme.m-v1:0";
    let reference = ModelRef { id: id.into(), ..server.reference("bedrock") };
    let model = server.open_with(&reference, &[("AWS_BEARER_TOKEN_BEDROCK", "mine")]).unwrap();
    let mut request = everything();
    let question = vec![Part::Media { url: "data:application/pdf;base64,JVBERi0=".into(), content_type: None }];
    request.messages.push(Message::User(question).into());
    collect(model.respond(request)).await.unwrap();
    let asked = server.only();
    let path = "/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A1%3Ainference-profile%2Feu.acme.m-v1%3A0/converse-stream";
    assert_eq!((asked.path.as_str(), &asked.headers["authorization"]), (path, &"Bearer mine".parse().unwrap()));
    let tool_use =
        |id: &str, city: &str| json!({"toolUse": {"toolUseId": id, "name": "weather", "input": {"city": city}}});
    let result = |id: &str, text: &str, status: &str| json!({"toolResult": {"toolUseId": id, "content": [{"text": text}], "status": status}});
    assert_eq!(
        asked.body,
        json!({
            "system": [{"text": "be brief\n\nthe user likes cats\n\nAnswer with JSON alone: nothing before it, nothing after \
                it, no Markdown fence. It must conform to this JSON Schema:\n{\"type\":\"object\"}"}],
            "messages": [
                {"role": "user", "content": [
                    {"text": "what is this?"},
                    {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
                ]},
                {"role": "assistant", "content": [{"text": "a map"}]},
                {"role": "user", "content": [{"text": "and the weather?"}]},
                {"role": "assistant", "content": [
                    {"text": "I will look."}, tool_use("call.1", "Bern"), tool_use("call.2", "Ulm"),
                ]},
                {"role": "user", "content": [
                    result("call.1", "rain", "success"),
                    result("call.2", "no answer", "error"),
                    {"document": {"format": "pdf", "name": "document-1", "source": {"bytes": "JVBERi0="}}},
                ]},
            ],
            "toolConfig": {"tools": [{"toolSpec": {
                "name": "weather",
                "description": "tells the weather",
                "inputSchema": {"json": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                }},
            }}]},
            "inferenceConfig": {"temperature": 0.5, "maxTokens": 100, "topP": 0.9, "stopSequences": ["END"]},
            "additionalModelRequestFields": {"top_k": 40, "seed": 7},
            "outputConfig": {"textFormat": {
                "type": "json_schema",
                "structure": {"jsonSchema": {"name": "output", "schema": "{\"type\":\"object\"}"}},
            }},
        })
    );
}

#[tokio::test]
async fn settings_of_the_model_may_be_written_out() {
    let server = Provider::new([ScriptedReply::ok(good("end_turn"))]).await;
    let ask = |config: Value| {
        let config = Arc::new(config.as_object().unwrap().clone());
        collect(server.model("bedrock").respond(ModelRequest { config, ..hello() }))
    };
    let thinking = json!({"type": "enabled", "budget_tokens": 16000});
    let config = json!({
        "additionalModelRequestFields": {"thinking": thinking, "top_k": 5},
        "seed": 7,
        "outputConfig": {"effort": "low"},
    });
    ask(config).await.unwrap();
    let body = server.only().body;
    assert_eq!(body["additionalModelRequestFields"], json!({"thinking": thinking, "top_k": 5, "seed": 7}));
    assert_eq!(body["outputConfig"], json!({"effort": "low"}));
    let error = ask(json!({"additionalModelRequestFields": 5})).await.unwrap_err();
    assert!(error.kind == ModelErrorKind::BadRequest && server.requests().len() == 1, "{error}");
}

#[tokio::test]
async fn reasoning_goes_back_and_old_calls_keep_their_tools() {
    let server = Provider::new([ScriptedReply::ok(good("end_turn"))]).await;
    let thought = Some(Thought::Reasoning(reasoning()));
    let called = ToolCall { id: "1".into(), name: "gone".into(), arguments: json!({}), thought };
    let result = Message::ToolResult { id: "1".into(), name: "gone".into(), outcome: Ok(String::new()) };
    let messages = vec![Message::user("x").into(), Message::Call(called).into(), result.into()];
    collect(server.model("bedrock").respond(ModelRequest { messages, ..ModelRequest::default() })).await.unwrap();
    let body = server.only().body;
    let mut content = reasoning();
    content.push(json!({"toolUse": {"toolUseId": "1", "name": "gone", "input": {}}}));
    assert_eq!(body["messages"][1], json!({"role": "assistant", "content": content}));
    let empty = json!([{"toolResult": {"toolUseId": "1", "content": [], "status": "success"}}]);
    assert_eq!(body["messages"][2]["content"], empty);
    let spec = json!({"name": "gone", "inputSchema": {"json": {"type": "object"}}});
    assert_eq!(body["toolConfig"], json!({"tools": [{"toolSpec": spec}]}));
}

#[tokio::test]
async fn media_that_bedrock_cannot_take_is_refused() {
    let server = Provider::new([ScriptedReply::ok(good("end_turn"))]).await;
    for url in ["https://h/x.png", "data:audio/wav;base64,AA=="] {
        let parts = vec![Part::Media { url: url.into(), content_type: None }];
        let request = ModelRequest { messages: vec![Message::User(parts).into()], ..ModelRequest::default() };
        let error = collect(server.model("bedrock").respond(request)).await.unwrap_err();
        assert!(error.kind == ModelErrorKind::BadRequest && error.to_string().contains("Bedrock"), "{error}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn failures_before_the_answer_are_tried_again() {
    for failure in [
        ScriptedReply::status(429),
        ScriptedReply::status(503),
        ScriptedReply::status(424).header("x-amzn-errortype", "ModelErrorException"),
        ScriptedReply::ok(exception("throttlingException")),
        ScriptedReply::ok(""),
        ScriptedReply::ok(events(&[("messageStart", json!({}))])).ending(ReplyEnd::Cut),
    ] {
        let server = Provider::new([failure.clone(), ScriptedReply::ok(good("end_turn"))]).await;
        let found = collect(server.model("bedrock").respond(hello())).await.unwrap();
        assert_eq!((&found[0], server.requests().len()), (&token("Hello thére"), 2), "{failure:?}");
    }
    use ModelErrorKind::{BadRequest, Malformed, Refused, Timeout};
    for (failure, kind) in [
        (ScriptedReply::status(400), BadRequest),
        (ScriptedReply::status(403), Refused),
        (ScriptedReply::status(404), BadRequest),
        (ScriptedReply::status(408).header("x-amzn-errortype", "ModelTimeoutException"), Timeout),
        (ScriptedReply::status(408).header("x-amzn-errortype", "a.b#ModelTimeoutException:http://x"), Timeout),
        (ScriptedReply::status(400).header("x-amzn-errortype", "ServiceQuotaExceededException"), Refused),
        (ScriptedReply::ok(exception("validationException")), BadRequest),
        (ScriptedReply::ok(exception("modelTimeoutException")), Timeout),
        (ScriptedReply::ok("<html>SECRET</html>"), Malformed),
    ] {
        let server = Provider::new([failure.clone()]).await;
        let error = collect(server.model("bedrock").respond(hello())).await.unwrap_err();
        assert!(error.kind == kind && !error.to_string().contains("SECRET"), "{failure:?}: {error}");
        assert_eq!(server.requests().len(), 1, "{failure:?}");
        let has_code = failure.headers.iter().any(|(name, _)| *name == "x-amzn-errortype");
        assert!(!has_code || error.is_of_model, "another model may have time or quota: {failure:?}");
    }
}

#[tokio::test]
async fn nothing_is_tried_again_once_the_answer_began() {
    use ModelErrorKind::{Malformed, Unavailable};
    let first = events(&[("messageStart", json!({})), text("Hello")]);
    let mut broken = events(&[text("SECRET")]);
    broken[20] ^= 1;
    for (more, end, kind) in [
        (Vec::new(), ReplyEnd::Whole, Unavailable),
        (Vec::new(), ReplyEnd::Cut, Unavailable),
        (events(&[text("SECRET")])[..30].to_vec(), ReplyEnd::Whole, Unavailable),
        (exception("modelStreamErrorException"), ReplyEnd::Whole, Unavailable),
        (broken, ReplyEnd::Whole, Malformed),
    ] {
        let reply = ScriptedReply::ok([first.clone(), more].concat()).ending(end);
        let server = Provider::new([reply]).await;
        let mut answer = server.model("bedrock").respond(hello());
        assert_eq!(answer.try_next().await.unwrap(), Some(token("Hello")));
        let error = collect(answer).await.unwrap_err();
        assert!(error.kind == kind && !error.to_string().contains("SECRET"), "{error}");
        assert_eq!(server.requests().len(), 1);
    }
}
