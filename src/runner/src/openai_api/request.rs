//! Decodes the body of `POST /v1/chat/completions`.
//!
//! Documented features that this runtime does not support (tools run by the client, more than one choice, log
//! probabilities, storage, web search, sound), and sampling parameters out of range, are refused rather than silently
//! ignored; other unknown settings, which only tune an answer, are ignored.

use std::{collections::HashMap, sync::Arc};

use dotprompt::Part;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{backend::CompletionRequest, error::ApiError};
use crate::models::{
    OutputFormat,
    message::{Message, ToolCall},
};

/// Validated request.
#[derive(Debug)]
pub(super) struct Completion {
    /// Conversation and settings for the backend.
    pub(super) request: CompletionRequest,
    /// Respond with a stream of events.
    pub(super) stream: bool,
    /// Send token usage in an event of its own.
    pub(super) include_usage: bool,
}

#[derive(Deserialize)]
#[serde(expecting = "struct Wire")]
struct CompletionBody {
    model: String,
    messages: Vec<WireMessage>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    stop: Option<Stop>,
    response_format: Option<ResponseFormat>,
    n: Option<u64>,
    tools: Option<Vec<Value>>,
    functions: Option<Vec<Value>>,
    logprobs: Option<bool>,
    store: Option<bool>,
    web_search_options: Option<Value>,
    audio: Option<Value>,
    modalities: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Some(Vec<String>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: JsonSchema },
}

#[derive(Deserialize)]
struct JsonSchema {
    schema: Option<Value>,
}

#[derive(Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage {
    System { content: Value },
    Developer { content: Value },
    User { content: Value },
    Assistant { content: Option<Value>, tool_calls: Option<Vec<WireCall>> },
    Tool { content: Value, tool_call_id: String },
}

#[derive(Deserialize)]
struct WireCall {
    id: String,
    function: WireFunction,
}

#[derive(Deserialize)]
struct WireFunction {
    name: String,
    /// JSON in a string.
    arguments: String,
}

impl Completion {
    /// Decodes and validates a body.
    ///
    /// # Errors
    /// The problem and the field that has it.
    pub(super) fn read(body: &[u8]) -> Result<Self, ApiError> {
        let wire: CompletionBody = serde_json::from_slice(body).map_err(|error| {
            ApiError::invalid(None, format!("the body must be a chat completion request in JSON: {error}"))
        })?;
        if wire.messages.is_empty() {
            return Err(ApiError::invalid(Some("messages"), "`messages` is empty"));
        }
        if wire.n.is_some_and(|n| n != 1) {
            return Err(ApiError::invalid(Some("n"), "there is one choice: leave `n` out"));
        }
        for (name, tools) in [("tools", &wire.tools), ("functions", &wire.functions)] {
            refuse_tools(name, tools.as_deref())?;
        }
        let is_other = |modality: &String| modality != "text";
        refuse_unsupported([
            ("logprobs", wire.logprobs == Some(true)),
            ("store", wire.store == Some(true)),
            ("web_search_options", wire.web_search_options.is_some()),
            ("audio", wire.audio.is_some()),
            ("modalities", wire.modalities.iter().flatten().any(is_other)),
        ])?;
        check_sampling(wire.temperature, wire.top_p)?;
        let config = config(&wire)?;
        let output = match wire.response_format {
            None | Some(ResponseFormat::Text) => None,
            Some(ResponseFormat::JsonObject) => Some(OutputFormat::default()),
            Some(ResponseFormat::JsonSchema { json_schema }) => Some(OutputFormat { schema: json_schema.schema }),
        };
        let question = CompletionRequest {
            caller: Default::default(),
            model: wire.model,
            messages: messages(wire.messages)?,
            config,
            output,
            record: None,
        };
        let include_usage = wire.stream_options.and_then(|options| options.include_usage).unwrap_or_default();
        Ok(Self { request: question, stream: wire.stream.unwrap_or_default(), include_usage })
    }
}

/// Refuses the first of these features that is asked for.
pub(super) fn refuse_unsupported<const N: usize>(features: [(&str, bool); N]) -> Result<(), ApiError> {
    match features.into_iter().find(|(_, asked)| *asked) {
        Some((name, _)) => Err(ApiError::invalid(Some(name), format!("`{name}` is not supported: leave it out"))),
        None => Ok(()),
    }
}

/// Refuses tools of the client, in the field `name`.
pub(super) fn refuse_tools(name: &str, tools: Option<&[Value]>) -> Result<(), ApiError> {
    if tools.is_none_or(<[_]>::is_empty) {
        return Ok(());
    }
    let text = format!("`{name}` is not supported: tools are called here, those that were set up for it");
    Err(ApiError::invalid(Some(name), text))
}

/// Checks that sampling parameters are in range.
pub(super) fn check_sampling(temperature: Option<f64>, top_p: Option<f64>) -> Result<(), ApiError> {
    for (name, value, most) in [("temperature", temperature, 2.0), ("top_p", top_p, 1.0)] {
        if value.is_some_and(|value| !(0.0..=most).contains(&value)) {
            return Err(ApiError::invalid(Some(name), format!("`{name}` must be from 0 to {most}")));
        }
    }
    Ok(())
}

/// Decodes a tool call, whose arguments are JSON in a string.
pub(super) fn tool_call(id: String, name: String, arguments: &str, param: &str) -> Result<ToolCall, ApiError> {
    // Several models write an empty string for no arguments.
    let arguments = if arguments.is_empty() { "{}" } else { arguments };
    match serde_json::from_str(arguments) {
        Ok(arguments) => Ok(ToolCall { id, name, arguments, thought: None }),
        Err(error) => Err(ApiError::invalid(Some(param), format!("`arguments` of call `{id}` is not JSON: {error}"))),
    }
}

/// Keeps the settings that have a value.
pub(super) fn settings<const N: usize>(all: [(&str, Option<Value>); N]) -> Map<String, Value> {
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Converts the generation settings to the names that all providers share.
fn config(wire: &CompletionBody) -> Result<Map<String, Value>, ApiError> {
    let most = [("max_completion_tokens", wire.max_completion_tokens), ("max_tokens", wire.max_tokens)];
    if let Some((name, _)) = most.iter().find(|(_, most)| *most == Some(0)) {
        return Err(ApiError::invalid(Some(name), format!("`{name}` must be at least 1")));
    }
    let stop = wire.stop.as_ref().map(|stop| match stop {
        Stop::One(one) => vec![one.clone()],
        Stop::Some(some) => some.clone(),
    });
    Ok(settings([
        ("maxOutputTokens", most[0].1.or(most[1].1).map(Value::from)),
        ("temperature", wire.temperature.map(Value::from)),
        ("topP", wire.top_p.map(Value::from)),
        ("stopSequences", stop.map(Value::from)),
    ]))
}

/// Converts the messages; a tool result takes its tool's name from the call with the same id.
fn messages(wire: Vec<WireMessage>) -> Result<Vec<Arc<Message>>, ApiError> {
    let mut calls = HashMap::new();
    let mut messages = Vec::with_capacity(wire.len());
    for (place, message) in wire.into_iter().enumerate() {
        let content = format!("messages[{place}].content");
        match message {
            WireMessage::System { content: value } | WireMessage::Developer { content: value } => {
                messages.push(Message::System(text(value, &content)?));
            }
            WireMessage::User { content: value } => messages.push(Message::User(parts(value, &content)?)),
            WireMessage::Assistant { content: value, tool_calls } => {
                let text = value.map(|value| text(value, &content)).transpose()?.unwrap_or_default();
                if !text.is_empty() {
                    messages.push(Message::Assistant(text));
                }
                for WireCall { id, function } in tool_calls.unwrap_or_default() {
                    calls.insert(id.clone(), function.name.clone());
                    let param = format!("messages[{place}].tool_calls");
                    messages.push(Message::Call(tool_call(id, function.name, &function.arguments, &param)?));
                }
            }
            WireMessage::Tool { content: value, tool_call_id: id } => {
                let outcome = Ok(text(value, &content)?);
                let name = calls.get(&id).cloned().ok_or_else(|| {
                    let param = format!("messages[{place}].tool_call_id");
                    ApiError::invalid(Some(&param), format!("no message before this one has a call `{id}`"))
                })?;
                messages.push(Message::ToolResult { id, name, outcome });
            }
        }
    }
    Ok(messages.into_iter().map(Arc::new).collect())
}

/// Decodes content that may only be text.
fn text(content: Value, param: &str) -> Result<String, ApiError> {
    only_text(parts(content, param)?, param)
}

/// Concatenates parts that may only be text.
pub(super) fn only_text(parts: Vec<Part>, param: &str) -> Result<String, ApiError> {
    let pieces = parts.into_iter().map(|part| match part {
        Part::Text(text) => Ok(text),
        Part::Media { .. } => Err(ApiError::invalid(Some(param), "only a user's message can have more than text")),
    });
    pieces.collect()
}

/// Decodes content: a string, or a list of parts.
fn parts(content: Value, param: &str) -> Result<Vec<Part>, ApiError> {
    match content {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![Part::Text(text)]),
        Value::Array(parts) => parts.iter().map(|one| part(one, param)).collect(),
        _ => Err(ApiError::invalid(Some(param), "content must be a string or a list of parts")),
    }
}

fn part(part: &Value, param: &str) -> Result<Part, ApiError> {
    let kind = part["type"].as_str().unwrap_or_default();
    let found = match kind {
        "text" | "refusal" => part[kind].as_str().map(|text| Part::Text(text.into())),
        "image_url" => part["image_url"]["url"].as_str().map(|url| Part::Media { url: url.into(), content_type: None }),
        other => {
            let text = format!("a part of type `{other}` is not supported: use `text` or `image_url`");
            return Err(ApiError::invalid(Some(param), text));
        }
    };
    found.ok_or_else(|| ApiError::invalid(Some(param), format!("a part of type `{kind}` needs its `{kind}`")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(extra: Value) -> Result<Completion, ApiError> {
        let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        for (name, value) in extra.as_object().unwrap() {
            body[name] = value.clone();
        }
        Completion::read(body.to_string().as_bytes())
    }

    #[test]
    fn a_whole_conversation_is_read() {
        let call = json!({ "id": "c1", "type": "function", "function": { "name": "add", "arguments": "{\"a\":1}" } });
        let picture = json!([
            { "type": "text", "text": "look" },
            { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } },
        ]);
        let asked = read(json!({ "messages": [
            { "role": "system", "content": "be brief" },
            { "role": "developer", "content": [{ "type": "text", "text": "very " }, { "type": "text", "text": "brief" }] },
            { "role": "user", "content": picture },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c1", "content": "2" },
            { "role": "assistant", "content": "two" },
            { "role": "user", "content": "thanks", "name": "ann" },
        ] }));
        let found: Vec<_> = asked.unwrap().request.messages.iter().map(|message| (**message).clone()).collect();
        let url = "data:image/png;base64,AA==".to_owned();
        let call = ToolCall { id: "c1".into(), name: "add".into(), arguments: json!({ "a": 1 }), thought: None };
        assert_eq!(
            found,
            [
                Message::System("be brief".into()),
                Message::System("very brief".into()),
                Message::User(vec![Part::Text("look".into()), Part::Media { url, content_type: None }]),
                Message::Call(call),
                Message::ToolResult { id: "c1".into(), name: "add".into(), outcome: Ok("2".into()) },
                Message::Assistant("two".into()),
                Message::user("thanks"),
            ]
        );
    }

    #[test]
    fn a_call_without_arguments_has_none_and_what_asks_for_nothing_is_taken() {
        let call = json!({ "id": "c", "type": "function", "function": { "name": "now", "arguments": "" } });
        let tool = json!({ "role": "tool", "tool_call_id": "c", "content": "noon" });
        let asked = read(json!({ "messages": [{ "role": "assistant", "tool_calls": [call] }, tool], "logprobs": false,
            "store": false, "web_search_options": null, "modalities": ["text"], "temperature": 2 }));
        let asked = asked.unwrap().request;
        let Message::Call(call) = &*asked.messages[0] else { panic!("{asked:?}") };
        assert_eq!(call.arguments, json!({}));
    }

    #[test]
    fn settings_get_the_names_that_providers_share() {
        let asked = read(json!({
            "max_tokens": 5, "max_completion_tokens": 7, "temperature": 0.5, "top_p": 1, "stop": "end", "seed": 3,
            "stream": true, "stream_options": { "include_usage": true }, "n": 1, "tools": [], "user": null,
        }));
        let asked = asked.unwrap();
        assert!(asked.stream && asked.include_usage);
        let config = json!({ "maxOutputTokens": 7, "temperature": 0.5, "topP": 1.0, "stopSequences": ["end"] });
        assert_eq!(Value::Object(asked.request.config), config);
        let asked =
            read(json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": {} } } }));
        assert_eq!(asked.unwrap().request.output, Some(OutputFormat { schema: Some(json!({})) }));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let tool = json!([{ "role": "tool", "tool_call_id": "c", "content": "x" }]);
        let audio = json!([{ "role": "user", "content": [{ "type": "input_audio" }] }]);
        let half = json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": "x" }] }]);
        let media = json!([{ "role": "system", "content": [{ "type": "image_url", "image_url": { "url": "x" } }] }]);
        let call = json!([{ "role": "assistant", "tool_calls": [{ "id": "c", "function": { "name": "f", "arguments": "{" } }] }]);
        for (extra, param, text) in [
            (json!({ "model": null }), Value::Null, "invalid type: null"),
            (json!({ "messages": "hi" }), Value::Null, "expected a sequence"),
            (json!({ "messages": [{ "role": "robot", "content": "x" }] }), Value::Null, "unknown variant `robot`"),
            (json!({ "messages": [] }), json!("messages"), "`messages` is empty"),
            (
                json!({ "messages": [{ "role": "user", "content": 1 }] }),
                json!("messages[0].content"),
                "must be a string",
            ),
            (json!({ "messages": audio }), json!("messages[0].content"), "`input_audio` is not supported"),
            (json!({ "messages": half }), json!("messages[0].content"), "needs its `image_url`"),
            (json!({ "messages": media }), json!("messages[0].content"), "only a user's message"),
            (json!({ "messages": tool }), json!("messages[0].tool_call_id"), "has a call `c`"),
            (json!({ "messages": call }), json!("messages[0].tool_calls"), "is not JSON"),
            (json!({ "n": 2 }), json!("n"), "one choice"),
            (json!({ "tools": [{}] }), json!("tools"), "not supported"),
            (json!({ "max_tokens": 0 }), json!("max_tokens"), "at least 1"),
            (json!({ "logprobs": true }), json!("logprobs"), "not supported"),
            (json!({ "store": true }), json!("store"), "not supported"),
            (json!({ "web_search_options": {} }), json!("web_search_options"), "not supported"),
            (json!({ "modalities": ["text", "audio"] }), json!("modalities"), "not supported"),
            (json!({ "temperature": 5 }), json!("temperature"), "from 0 to 2"),
            (json!({ "top_p": -0.1 }), json!("top_p"), "from 0 to 1"),
            (json!({ "max_tokens": -1 }), Value::Null, "invalid value"),
        ] {
            let error = read(extra.clone()).unwrap_err().body();
            assert_eq!((&error["error"]["param"], &error["error"]["type"]), (&param, &json!("invalid_request_error")));
            assert!(error["error"]["message"].as_str().unwrap().contains(text), "{extra}: {error}");
        }
    }
}
