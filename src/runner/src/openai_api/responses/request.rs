//! Decodes the body of `POST /v1/responses`.
//!
//! As for chat completions, documented features that this runtime does not support are refused rather than silently
//! ignored, and settings that only tune an answer are ignored. Items that only tell what happened on the server in an
//! earlier response (`reasoning`, `mcp_call`) are left out.

use std::{collections::HashMap, sync::Arc};

use dotprompt::Part;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::{
    error::ApiError,
    request::{check_sampling, only_text, refuse_tools, refuse_unsupported, settings, tool_call},
};
use crate::models::{Message, OutputFormat};

/// Validated request.
#[derive(Debug)]
pub(super) struct ResponseRequest {
    /// Name of the model.
    pub(super) model: String,
    /// Messages of `input`, one of them of a user.
    pub(super) messages: Vec<Arc<Message>>,
    /// Instructions for this response.
    pub(super) instructions: Option<String>,
    /// Id of the response that this one follows.
    pub(super) previous: Option<String>,
    /// True if the response is to be kept; `None`: the client does not say.
    pub(super) store: Option<bool>,
    /// Respond with a stream of events.
    pub(super) stream: bool,
    /// Generation config.
    pub(super) config: Map<String, Value>,
    /// Set when the answer must be JSON.
    pub(super) output: Option<OutputFormat>,
    /// Settings that a response repeats.
    pub(super) repeated: Value,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ResponseBody {
    model: String,
    input: Value,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    store: Option<bool>,
    stream: Option<bool>,
    max_output_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    text: Option<TextSettings>,
    metadata: Option<Map<String, Value>>,
    tools: Option<Vec<Value>>,
    background: Option<bool>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    max_tool_calls: Option<Value>,
    top_logprobs: Option<u64>,
}

#[derive(Deserialize)]
struct TextSettings {
    format: Option<Value>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TextFormat {
    Text,
    JsonObject,
    JsonSchema { schema: Option<Value> },
}

impl ResponseRequest {
    /// Decodes and validates a body.
    ///
    /// # Errors
    /// The problem and the field that has it.
    pub(super) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let wire: ResponseBody = serde_json::from_slice(body).map_err(|error| {
            ApiError::invalid(None, format!("the body must be a response request in JSON: {error}"))
        })?;
        refuse_tools("tools", wire.tools.as_deref())?;
        refuse_unsupported([
            ("background", wire.background == Some(true)),
            ("conversation", wire.conversation.is_some()),
            ("prompt", wire.prompt.is_some()),
            ("max_tool_calls", wire.max_tool_calls.is_some()),
            ("top_logprobs", wire.top_logprobs.is_some_and(|count| count > 0)),
        ])?;
        check_sampling(wire.temperature, wire.top_p)?;
        if wire.max_output_tokens == Some(0) {
            return Err(ApiError::invalid(Some("max_output_tokens"), "`max_output_tokens` must be at least 1"));
        }
        let format = wire.text.and_then(|text| text.format).unwrap_or_else(|| json!({ "type": "text" }));
        let output = output_format(&format)?;
        let repeated = json!({
            "instructions": wire.instructions, "max_output_tokens": wire.max_output_tokens,
            "metadata": wire.metadata.unwrap_or_default(), "previous_response_id": wire.previous_response_id,
            "temperature": wire.temperature, "text": { "format": format }, "top_p": wire.top_p,
        });
        Ok(Self {
            model: wire.model,
            messages: messages(wire.input)?,
            instructions: wire.instructions.filter(|text| !text.is_empty()),
            previous: wire.previous_response_id,
            store: wire.store,
            stream: wire.stream.unwrap_or_default(),
            config: settings([
                ("maxOutputTokens", wire.max_output_tokens.map(Value::from)),
                ("temperature", wire.temperature.map(Value::from)),
                ("topP", wire.top_p.map(Value::from)),
            ]),
            output,
            repeated,
        })
    }
}

fn output_format(format: &Value) -> Result<Option<OutputFormat>, ApiError> {
    let format = TextFormat::deserialize(format)
        .map_err(|error| ApiError::invalid(Some("text.format"), format!("`text.format` cannot be read: {error}")))?;
    Ok(match format {
        TextFormat::Text => None,
        TextFormat::JsonObject => Some(OutputFormat::default()),
        TextFormat::JsonSchema { schema } => Some(OutputFormat { schema }),
    })
}

/// Converts `input`; an output takes its tool's name from the call with the same id.
fn messages(input: Value) -> Result<Vec<Arc<Message>>, ApiError> {
    let items = match input {
        Value::String(text) => return Ok(vec![Arc::new(Message::user(text))]),
        Value::Array(items) => items,
        _ => return Err(ApiError::invalid(Some("input"), "`input` must be a string or a list of items")),
    };
    let mut calls = HashMap::new();
    let mut messages = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        let at = |field: &str| format!("input[{place}].{field}");
        let string = |field: &str| match item[field].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(ApiError::invalid(Some(&at(field)), format!("`{field}` must be a string"))),
        };
        match item["type"].as_str().unwrap_or("message") {
            "message" => messages.push(message(item, &at)?),
            "function_call" => {
                let (id, name) = (string("call_id")?, string("name")?);
                calls.insert(id.clone(), name.clone());
                messages.push(Message::Call(tool_call(id, name, &string("arguments")?, &at("arguments"))?));
            }
            "function_call_output" => {
                let id = string("call_id")?;
                let outcome = Ok(only_text(parts(&item["output"], &at("output"))?, &at("output"))?);
                let name = calls.get(&id).cloned().ok_or_else(|| {
                    ApiError::invalid(Some(&at("call_id")), format!("no item before this one has a call `{id}`"))
                })?;
                messages.push(Message::ToolResult { id, name, outcome });
            }
            "reasoning" | "mcp_call" | "mcp_list_tools" => {}
            other => {
                let text = format!(
                    "an item of type `{other}` is not supported: send messages, and function calls with their outputs"
                );
                return Err(ApiError::invalid(Some(&at("type")), text));
            }
        }
    }
    match messages.iter().any(|message| matches!(message, Message::User(_))) {
        true => Ok(messages.into_iter().map(Arc::new).collect()),
        false => Err(ApiError::invalid(Some("input"), "`input` has no user message")),
    }
}

fn message(item: &Value, at: &dyn Fn(&str) -> String) -> Result<Message, ApiError> {
    let param = at("content");
    let parts = parts(&item["content"], &param)?;
    Ok(match item["role"].as_str().unwrap_or_default() {
        "user" => Message::User(parts),
        "assistant" => Message::Assistant(only_text(parts, &param)?),
        "system" | "developer" => Message::System(only_text(parts, &param)?),
        other => {
            let text = format!("unknown role `{other}`: use user, assistant, system or developer");
            return Err(ApiError::invalid(Some(&at("role")), text));
        }
    })
}

/// Decodes content: a string, or a list of parts.
fn parts(content: &Value, param: &str) -> Result<Vec<Part>, ApiError> {
    match content {
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        Value::Array(parts) => parts.iter().map(|one| part(one, param)).collect(),
        _ => Err(ApiError::invalid(Some(param), "content must be a string or a list of parts")),
    }
}

fn part(part: &Value, param: &str) -> Result<Part, ApiError> {
    let kind = part["type"].as_str().unwrap_or_default();
    let field = match kind {
        "input_text" | "output_text" | "text" => "text",
        "refusal" => "refusal",
        "input_image" => "image_url",
        other => {
            let text = format!("a part of type `{other}` is not supported: use `input_text` or `input_image`");
            return Err(ApiError::invalid(Some(param), text));
        }
    };
    let value = part[field]
        .as_str()
        .ok_or_else(|| ApiError::invalid(Some(param), format!("a part of type `{kind}` needs its `{field}`")))?;
    Ok(match kind {
        "input_image" => Part::Media { url: value.into(), content_type: None },
        _ => Part::Text(value.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::ToolCall;

    fn read(extra: Value) -> Result<ResponseRequest, ApiError> {
        let mut body = json!({ "model": "m", "input": "hi" });
        for (name, value) in extra.as_object().unwrap() {
            body[name] = value.clone();
        }
        ResponseRequest::read(body.to_string().as_bytes())
    }

    #[test]
    fn items_are_a_conversation() {
        let picture = json!([
            { "type": "input_text", "text": "look" },
            { "type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto" },
        ]);
        let request = read(json!({ "input": [
            { "role": "developer", "content": "be brief" },
            { "type": "message", "role": "user", "content": picture },
            { "type": "reasoning", "summary": [] },
            { "type": "function_call", "call_id": "c1", "name": "add", "arguments": "{\"a\":1}" },
            { "type": "function_call_output", "call_id": "c1", "output": "2" },
            { "type": "mcp_call", "name": "now", "arguments": "{}" },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "two" }] },
            { "role": "user", "content": "thanks" },
        ] }));
        let found: Vec<_> = request.unwrap().messages.iter().map(|message| (**message).clone()).collect();
        let url = "data:image/png;base64,AA==".to_owned();
        let call = ToolCall { id: "c1".into(), name: "add".into(), arguments: json!({ "a": 1 }), thought: None };
        assert_eq!(
            found,
            [
                Message::System("be brief".into()),
                Message::User(vec![Part::Text("look".into()), Part::Media { url, content_type: None }]),
                Message::Call(call),
                Message::ToolResult { id: "c1".into(), name: "add".into(), outcome: Ok("2".into()) },
                Message::Assistant("two".into()),
                Message::user("thanks"),
            ]
        );
    }

    #[test]
    fn settings_get_the_names_that_providers_share() {
        let schema = json!({ "format": { "type": "json_schema", "name": "x", "schema": {}, "strict": true } });
        let request = read(json!({
            "max_output_tokens": 7, "temperature": 0.5, "top_p": 1, "text": schema, "stream": true, "tools": [],
            "reasoning": { "effort": "low" }, "include": ["reasoning.encrypted_content"], "store": false,
            "background": false, "conversation": null, "parallel_tool_calls": true, "truncation": "auto",
        }));
        let request = request.unwrap();
        assert_eq!(Value::Object(request.config), json!({ "maxOutputTokens": 7, "temperature": 0.5, "topP": 1.0 }));
        assert_eq!(request.output, Some(OutputFormat { schema: Some(json!({})) }));
        assert_eq!((request.stream, request.store), (true, Some(false)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let user = json!({ "role": "user", "content": "x" });
        let output = json!({ "type": "function_call_output", "call_id": "c", "output": "x" });
        let call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{" });
        for (extra, param, text) in [
            (json!({ "model": null }), Value::Null, "invalid type: null"),
            (json!({ "input": 1 }), json!("input"), "a string or a list"),
            (json!({ "input": [] }), json!("input"), "no user message"),
            (json!({ "input": [{ "role": "assistant", "content": "x" }] }), json!("input"), "no user message"),
            (json!({ "input": [{ "role": "robot", "content": "x" }] }), json!("input[0].role"), "unknown role `robot`"),
            (
                json!({ "input": [user, { "type": "item_reference", "id": "x" }] }),
                json!("input[1].type"),
                "not supported",
            ),
            (
                json!({ "input": [{ "role": "user", "content": [{ "type": "input_file" }] }] }),
                json!("input[0].content"),
                "`input_file` is not supported",
            ),
            (
                json!({ "input": [{ "role": "user", "content": [{ "type": "input_image", "file_id": "f" }] }] }),
                json!("input[0].content"),
                "needs its `image_url`",
            ),
            (json!({ "input": [user, output] }), json!("input[1].call_id"), "has a call `c`"),
            (json!({ "input": [user, call] }), json!("input[1].arguments"), "is not JSON"),
            (json!({ "tools": [{}] }), json!("tools"), "not supported"),
            (json!({ "background": true }), json!("background"), "not supported"),
            (json!({ "conversation": "c" }), json!("conversation"), "not supported"),
            (json!({ "max_output_tokens": 0 }), json!("max_output_tokens"), "at least 1"),
            (json!({ "temperature": 5 }), json!("temperature"), "from 0 to 2"),
            (json!({ "text": { "format": { "type": "grammar" } } }), json!("text.format"), "cannot be read"),
        ] {
            let error = read(extra.clone()).unwrap_err().body();
            assert_eq!((&error["error"]["param"], &error["error"]["type"]), (&param, &json!("invalid_request_error")));
            assert!(error["error"]["message"].as_str().unwrap().contains(text), "{extra}: {error}");
        }
    }
}
