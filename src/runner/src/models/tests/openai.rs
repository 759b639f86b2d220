//! Tests of OpenAI's Chat Completions API.

use std::sync::Arc;

use serde_json::json;

use super::{
    super::{Chunk, Message, ModelErrorKind, ModelRequest, OutputFormat, Part, Usage},
    Provider, ScriptedReply, call, collect, everything, hello, read, token,
};

/// Streamed answer "Hello there".
pub(super) const GOOD: &str = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" thére"},"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}

data: [DONE]

"#;

/// Failure of the provider within its answer.
pub(super) const FAILED: &str =
    "data: {\"error\":{\"message\":\"SECRET\",\"type\":\"server_error\",\"code\":null}}\n\n";

/// Streamed answer with two tool calls whose arguments arrive interleaved.
pub(super) const CALLS: &str = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"time","arguments":""}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"Bern\"}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: [DONE]

"#;

#[tokio::test]
async fn text_and_tokens_are_read() {
    let usage = Chunk::Usage(Usage::new(9, 3));
    assert_eq!(read("openai", GOOD).await.unwrap(), [token("Hello thére"), usage]);
    let without_done = GOOD.replace("data: [DONE]\n\n", "").replace("\"stop\"", "\"length\"");
    let expected = [token("Hello thére"), Chunk::Truncated, Chunk::Usage(Usage::new(9, 3))];
    assert_eq!(read("openai", &without_done).await.unwrap(), expected);
}

#[tokio::test]
async fn parts_of_the_tokens_are_read_and_impossible_counts_are_refused() {
    let reporting = |prompt: &str, completion: &str| {
        let details = format!(
            r#""prompt_tokens":9,"prompt_tokens_details":{prompt},"completion_tokens":3,"completion_tokens_details":{completion},"#
        );
        GOOD.replace(r#""prompt_tokens":9,"completion_tokens":3,"#, &details)
    };
    for (prompt, completion, usage) in [
        (
            r#"{"cached_tokens":4,"cache_write_tokens":2}"#,
            r#"{"reasoning_tokens":1}"#,
            Usage { cache_read: 4, cache_write: 2, reasoning: 1, ..Usage::new(9, 3) },
        ),
        (r#"{"cached_tokens":4,"cache_write_tokens":null}"#, "null", Usage { cache_read: 4, ..Usage::new(9, 3) }),
        ("null", "{}", Usage::new(9, 3)),
        // A part cannot exceed its whole.
        (
            r#"{"cached_tokens":8,"cache_write_tokens":8}"#,
            r#"{"reasoning_tokens":8}"#,
            Usage { cache_read: 8, cache_write: 1, reasoning: 3, ..Usage::new(9, 3) },
        ),
    ] {
        let found = read("openai", &reporting(prompt, completion)).await.unwrap();
        assert_eq!(found.last(), Some(&Chunk::Usage(usage)), "{prompt} {completion}");
    }
    let impossible = GOOD.replace("\"prompt_tokens\":9", "\"prompt_tokens\":1000000001");
    assert_eq!(read("openai", &impossible).await.unwrap_err().kind, ModelErrorKind::Malformed);
}

#[tokio::test]
async fn parallel_calls_are_put_together() {
    let expected = [call("call_a", "weather", json!({"city": "Bern"})), call("call_b", "time", json!({}))];
    assert_eq!(read("openai", CALLS).await.unwrap(), expected);
    // Some servers send complete calls, all with the same index.
    let whole = r#"data: {"choices":[{"delta":{"tool_calls":[
data: {"id":"x","function":{"name":"a","arguments":"{\"n\":1}"}},{"id":"y","function":{"name":"b","arguments":"{"}}]},"finish_reason":"stop"}]}

"#;
    assert_eq!(read("openai", whole).await.unwrap(), [call("x", "a", json!({"n": 1})), call("y", "b", json!("{"))]);
    // Others send neither an index nor an id.
    let bare = whole.replace(r#""id":"x","#, "").replace(r#""id":"y","#, r#""id":"","#);
    let found = read("openai", &bare).await.unwrap();
    let [Chunk::Call(one), Chunk::Call(other)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((one.name.as_str(), &one.arguments), ("a", &json!({"n": 1})));
    assert_eq!((other.name.as_str(), &other.arguments), ("b", &json!("{")));
    assert!(one.id != other.id && one.id.starts_with("call_"));
}

#[tokio::test]
async fn what_the_rules_on_content_forbid_is_refused() {
    for body in
        [GOOD.replace("\"stop\"", "\"content_filter\""), GOOD.replace(r#""content":" thére""#, r#""refusal":"SECRET""#)]
    {
        let error = read("openai", &body).await.unwrap_err();
        assert!(error.kind == ModelErrorKind::Refused && !error.to_string().contains("SECRET"), "{error}");
    }
}

#[tokio::test]
async fn a_request_with_everything() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    collect(server.model("openai").respond(everything())).await.unwrap();
    let asked = server.only();
    assert_eq!(
        (asked.path.as_str(), &asked.headers["authorization"]),
        ("/chat/completions", &"Bearer KEY".parse().unwrap())
    );
    let tool_call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}});
    assert_eq!(
        asked.body,
        json!({
            "model": "model-1",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [
                    {"type": "text", "text": "what is this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                ]},
                {"role": "assistant", "content": "a map"},
                {"role": "system", "content": "the user likes cats"},
                {"role": "user", "content": "and the weather?"},
                {"role": "assistant", "content": "I will look.", "tool_calls": [
                    tool_call("call.1", r#"{"city":"Bern"}"#),
                    tool_call("call.2", r#"{"city":"Ulm"}"#),
                ]},
                {"role": "tool", "tool_call_id": "call.1", "content": "rain"},
                {"role": "tool", "tool_call_id": "call.2", "content": "Error: no answer"},
            ],
            "tools": [{"type": "function", "function": {
                "name": "weather",
                "description": "tells the weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            }}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": {"type": "object"}}},
            "temperature": 0.5,
            "max_tokens": 100,
            "top_p": 0.9,
            "top_k": 40,
            "stop": ["END"],
            "seed": 7,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    );
}

#[tokio::test]
async fn a_compatible_server_needs_no_key() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    let reference = server.reference("openai");
    let model = super::open(&reference, &|_: &str| None, &server.http).unwrap();
    let output = Some(OutputFormat::default());
    collect(model.respond(ModelRequest { output, ..hello() })).await.unwrap();
    let asked = server.only();
    assert!(!asked.headers.contains_key("authorization"));
    assert_eq!(asked.body["response_format"], json!({"type": "json_object"}));
    assert!(asked.body["messages"][0]["content"].as_str().unwrap().contains("JSON"));
}

#[tokio::test]
async fn media_that_are_no_pictures() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    let media = |url: &str| Part::Media { url: url.into(), content_type: None };
    let parts = vec![
        media("data:audio/mpeg;base64,AA"),
        media("data:audio/x-wav;base64,AA"),
        media("data:application/pdf;base64,AA"),
        media("https://h/x.png"),
    ];
    let messages = vec![Arc::new(Message::User(parts))];
    collect(server.model("openai").respond(ModelRequest { messages, ..ModelRequest::default() })).await.unwrap();
    assert_eq!(
        server.only().body["messages"][0]["content"],
        json!([
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "mp3"}},
            {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            {"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,AA"}},
            {"type": "image_url", "image_url": {"url": "https://h/x.png"}},
        ])
    );
}
