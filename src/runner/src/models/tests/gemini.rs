//! Tests of Google's Gemini API.

use serde_json::{Value, json};

use super::{
    super::{Chunk, ModelErrorKind, ModelRequest, Thought, ToolCall, Usage},
    Provider, ScriptedReply, collect, everything, hello, read, token,
};

/// Streamed answer "Hello there", with the line ends of the real API.
pub(super) const GOOD: &str = "data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Hello\"}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 4,\"totalTokenCount\": 4},\"modelVersion\": \"m\"}\r\n\r\ndata: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"hm\",\"thought\": true},{\"text\": \" thére\"}],\"role\": \"model\"},\"finishReason\": \"STOP\",\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 4,\"candidatesTokenCount\": 3,\"thoughtsTokenCount\": 10,\"totalTokenCount\": 17}}\r\n\r\n";

/// Failure of the provider within its answer.
pub(super) const FAILED: &str =
    "data: {\"error\": {\"code\": 503,\"message\": \"SECRET\",\"status\": \"UNAVAILABLE\"}}\r\n\r\n";

/// Streamed answer with two tool calls, the first with a signature.
pub(super) const CALLS: &str = "data: {\"candidates\": [{\"content\": {\"parts\": [{\"functionCall\": {\"name\": \"weather\",\"args\": {\"city\": \"Bern\"}},\"thoughtSignature\": \"c2ln\"},{\"functionCall\": {\"id\": \"given\",\"name\": \"time\"}}],\"role\": \"model\"},\"finishReason\": \"STOP\"}]}\r\n\r\n";

#[tokio::test]
async fn text_and_tokens_are_read() {
    let usage = Chunk::Usage(Usage { reasoning: 10, ..Usage::new(4, 13) });
    assert_eq!(read("gemini", GOOD).await.unwrap(), [token("Hello thére"), usage.clone()]);
    let cut = GOOD.replace("STOP", "MAX_TOKENS");
    assert_eq!(read("googleai", &cut).await.unwrap(), [token("Hello thére"), Chunk::Truncated, usage]);
}

#[tokio::test]
async fn what_the_rules_on_content_forbid_is_refused() {
    for body in [
        GOOD.replace("STOP", "SAFETY"),
        GOOD.replace("STOP", "IMAGE_PROHIBITED_CONTENT"),
        "data: {\"promptFeedback\": {\"blockReason\": \"PROHIBITED_CONTENT\"}}\n\n".to_owned(),
    ] {
        assert_eq!(read("google", &body).await.unwrap_err().kind, ModelErrorKind::Refused);
    }
    for reason in ["MALFORMED_FUNCTION_CALL", "TOO_MANY_TOOL_CALLS"] {
        let error = read("google", &GOOD.replace("STOP", reason)).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Malformed, "{reason}");
    }
}

#[tokio::test]
async fn parallel_calls_are_read_with_their_signature() {
    let found = read("gemini", CALLS).await.unwrap();
    let [Chunk::Call(first), Chunk::Call(second)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((first.name.as_str(), &first.arguments), ("weather", &json!({"city": "Bern"})));
    assert_eq!((&first.thought, first.id.len()), (&Some(Thought::Signature("c2ln".into())), 21));
    let (id, name) = ("given".into(), "time".into());
    assert_eq!(*second, ToolCall { id, name, arguments: json!({}), thought: None });
}

#[tokio::test]
async fn a_request_with_everything() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    collect(server.model("gemini").respond(everything())).await.unwrap();
    let asked = server.only();
    assert_eq!(asked.path, "/v1beta/models/model-1:streamGenerateContent?alt=sse");
    assert_eq!(asked.headers["x-goog-api-key"], "KEY");
    let call = |id: &str, city: &str| {
        json!({
            "functionCall": {"id": id, "name": "weather", "args": {"city": city}},
            "thoughtSignature": format!("signed {city}"),
        })
    };
    let result =
        |id: &str, response: Value| json!({"functionResponse": {"id": id, "name": "weather", "response": response}});
    assert_eq!(
        asked.body,
        json!({
            "systemInstruction": {"parts": [{"text": "be brief\n\nthe user likes cats\n\nAnswer with JSON alone: nothing \
                before it, nothing after it, no Markdown fence. It must conform to this JSON Schema:\n\
                {\"type\":\"object\"}"}]},
            "contents": [
                {"role": "user", "parts": [
                    {"text": "what is this?"},
                    {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
                ]},
                {"role": "model", "parts": [{"text": "a map"}]},
                {"role": "user", "parts": [{"text": "and the weather?"}]},
                {"role": "model", "parts": [{"text": "I will look."}, call("call.1", "Bern"), call("call.2", "Ulm")]},
                {"role": "user", "parts": [
                    result("call.1", json!({"output": "rain"})),
                    result("call.2", json!({"error": "no answer"})),
                ]},
            ],
            "tools": [{"functionDeclarations": [{
                "name": "weather",
                "description": "tells the weather",
                "parametersJsonSchema": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                    "required": ["city"],
                },
            }]}],
            "generationConfig": {
                "temperature": 0.5, "maxOutputTokens": 100, "topP": 0.9, "topK": 40, "stopSequences": ["END"], "seed": 7,
            },
        })
    );
}

#[tokio::test]
async fn json_without_tools_is_a_setting() {
    let server = Provider::new([ScriptedReply::ok(GOOD)]).await;
    let config = json!({"version": "tunedModels/mine", "safetySettings": [{"category": "c"}]});
    let request =
        ModelRequest { output: everything().output, config: config.as_object().unwrap().clone().into(), ..hello() };
    collect(server.model("gemini").respond(request)).await.unwrap();
    let asked = server.only();
    assert_eq!(asked.path, "/v1beta/tunedModels/mine:streamGenerateContent?alt=sse");
    assert_eq!(
        asked.body,
        json!({
            "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
            "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}},
            "safetySettings": [{"category": "c"}],
        })
    );
}
