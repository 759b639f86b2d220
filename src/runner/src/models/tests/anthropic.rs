//! Tests of Anthropic's Messages API.

use serde_json::{Value, json};

use super::{
    super::{Chunk, ModelErrorKind, Thought, ToolCall, Usage},
    Provider, ScriptedReply, call, collect, everything, hello, read, token,
};

/// Streamed answer "Hello there".
pub(super) const GOOD: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":20,"cache_creation_input_tokens":0,"cache_read_input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" thére"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":15}}

event: message_stop
data: {"type":"message_stop"}

"#;

/// Failure of the provider within its answer.
pub(super) const FAILED: &str =
    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"SECRET\"}}\n\n";

/// Streamed answer with a thinking block, text, a server-side search, and two tool calls.
pub(super) const CALLS: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":2,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":5,"content_block":{"type":"redacted_thinking","data":"c2VjcmV0"}}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":"I look."}}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{}"}}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"weather","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"city\": \"Be"}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"rn\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: content_block_start
data: {"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_2","name":"time","input":{}}}

event: content_block_stop
data: {"type":"content_block_stop","index":4}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}

event: message_stop
data: {"type":"message_stop"}

"#;

/// Thinking blocks of [`CALLS`].
pub(super) fn thoughts() -> Vec<Value> {
    vec![
        json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"}),
        json!({"type": "redacted_thinking", "data": "c2VjcmV0"}),
    ]
}

#[tokio::test]
async fn text_and_tokens_are_read() {
    let usage = Chunk::Usage(Usage { cache_read: 5, ..Usage::new(25, 15) });
    assert_eq!(read("anthropic", GOOD).await.unwrap(), [token("Hello thére"), usage.clone()]);
    let cut = GOOD.replace("end_turn", "max_tokens");
    assert_eq!(read("anthropic", &cut).await.unwrap(), [token("Hello thére"), Chunk::Truncated, usage]);
    let error = read("anthropic", &GOOD.replace("end_turn", "refusal")).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Refused);
}

#[tokio::test]
async fn counts_that_an_event_does_not_repeat_stay() {
    let later = |usage: &str| GOOD.replace(r#""usage":{"output_tokens":15}"#, &format!(r#""usage":{usage}"#));
    for (usage, expected) in [
        (r#"{"input_tokens":22,"output_tokens":15}"#, Usage { cache_read: 5, ..Usage::new(27, 15) }),
        (
            r#"{"cache_creation_input_tokens":3,"output_tokens":15}"#,
            Usage { cache_read: 5, cache_write: 3, ..Usage::new(28, 15) },
        ),
        (r#"{"input_tokens":20,"cache_read_input_tokens":0,"output_tokens":15}"#, Usage::new(20, 15)),
    ] {
        let found = read("anthropic", &later(usage)).await.unwrap();
        assert_eq!(found.last(), Some(&Chunk::Usage(expected)), "{usage}");
    }
}

#[tokio::test]
async fn parallel_calls_are_put_together() {
    let thought = Some(Thought::Blocks(thoughts()));
    let (id, name, arguments) = ("toolu_1".into(), "weather".into(), json!({"city": "Bern"}));
    let expected = [
        token("I look."),
        Chunk::Call(ToolCall { id, name, arguments, thought }),
        call("toolu_2", "time", json!({})),
        Chunk::Usage(Usage::new(2, 89)),
    ];
    assert_eq!(read("anthropic", CALLS).await.unwrap(), expected);
}

#[tokio::test]
async fn a_request_with_everything() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    let model = server.model("anthropic");
    collect(model.respond(everything())).await.unwrap();
    let asked = server.only();
    assert_eq!(asked.path, "/v1/messages");
    assert_eq!([&asked.headers["x-api-key"], &asked.headers["anthropic-version"]], ["KEY", "2023-06-01"]);
    assert_eq!(
        asked.body,
        json!({
            "model": "model-1",
            "system": "be brief\n\nthe user likes cats\n\nAnswer with JSON alone: nothing before it, nothing after it, \
                       no Markdown fence. It must conform to this JSON Schema:\n{\"type\":\"object\"}",
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "what is this?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
                ]},
                {"role": "assistant", "content": [{"type": "text", "text": "a map"}]},
                {"role": "user", "content": [{"type": "text", "text": "and the weather?"}]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "I will look."},
                    {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Bern"}},
                    {"type": "tool_use", "id": "call_2", "name": "weather", "input": {"city": "Ulm"}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "rain"},
                    {"type": "tool_result", "tool_use_id": "call_2", "content": "no answer", "is_error": true},
                ]},
            ],
            "tools": [{
                "name": "weather",
                "description": "tells the weather",
                "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            }],
            "temperature": 0.5,
            "max_tokens": 100,
            "top_p": 0.9,
            "top_k": 40,
            "stop_sequences": ["END"],
            "seed": 7,
            "stream": true,
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        })
    );
}

#[tokio::test]
async fn a_plain_request_is_small() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    collect(server.model("anthropic").respond(hello())).await.unwrap();
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "hello"}]}]);
    let expected = json!({"model": "model-1", "messages": messages, "max_tokens": 8192, "stream": true});
    assert_eq!(server.only().body, expected);
}
