//! Content of spans as JSON, by the schemas of OpenTelemetry's conventions for [generative
//! AI](https://github.com/open-telemetry/semantic-conventions-genai/tree/main/docs/gen-ai): what a model is asked and what it answers.
//!
//! Nothing is made unless content is captured. What is too long loses the oldest messages first, and remains JSON.

use std::sync::Arc;

use serde_json::{Value, json};
use telemetry::semconv::{
    GEN_AI_INPUT_MESSAGES, GEN_AI_OUTPUT_MESSAGES, GEN_AI_SYSTEM_INSTRUCTIONS, GEN_AI_TOOL_DEFINITIONS,
};

use super::message::{Message, Part, ToolCall};
use super::request::{ModelRequest, ToolSpec};
use crate::content::{ContentCapture, MAX_CONTENT, fit};
use crate::traces::TraceScope;

/// Bytes of items in a list from which others are left out; the rest is for the mark that says so.
const ROOM: usize = MAX_CONTENT - 128;
/// Role of the model.
const ASSISTANT: &str = "assistant";

/// Answer of a model while it arrives.
pub(super) struct CapturedAnswer {
    text: String,
    calls: Vec<ToolCall>,
    /// Bytes of the text that are enough.
    window: usize,
}

impl CapturedAnswer {
    /// Begins the answer for a scope's span; `None` if no content is captured.
    pub(super) fn begin(scope: &TraceScope) -> Option<Box<Self>> {
        let window = scope.capture()?.window();
        Some(Box::new(Self { text: String::new(), calls: Vec::new(), window }))
    }

    /// Adds a piece of text.
    pub(super) fn add_text(&mut self, text: &str) {
        let room = self.window.saturating_sub(self.text.len());
        // A text that fills the window is longer than what a span holds, and is cut there.
        self.text.push_str(if text.len() <= room { text } else { &text[..text.ceil_char_boundary(room)] });
    }

    /// Adds a call.
    pub(super) fn add_call(&mut self, call: &ToolCall) {
        self.calls.push(call.clone());
    }

    /// Sets the answer in the scope's span, with the reason why it ended. A failure that said nothing has no answer.
    pub(super) fn end(&self, scope: &TraceScope, reason: &'static str) {
        if reason != "error" || !self.text.is_empty() || !self.calls.is_empty() {
            scope.capture_answer(&self.text, &self.calls, reason);
        }
    }
}

impl TraceScope {
    /// Sets what a model is asked in the scope's span, if content is captured and the span has no such content yet: a turn has that of
    /// its first request.
    pub(crate) fn capture_request(&self, request: &ModelRequest) {
        if self.capture().is_none() || self.has(GEN_AI_INPUT_MESSAGES) {
            return;
        }
        self.set_content(GEN_AI_INPUT_MESSAGES, |content| input_messages(content, &request.messages));
        if let Some(system) = &request.system {
            self.set_content(GEN_AI_SYSTEM_INSTRUCTIONS, |content| {
                let instructions = fit(MAX_CONTENT, |most| json!([text_part(content, system, most)]));
                instructions.unwrap_or_else(|| "[]".to_owned())
            });
        }
        if !request.tools.is_empty() {
            self.set_content(GEN_AI_TOOL_DEFINITIONS, |content| definitions(content, &request.tools));
        }
    }

    /// Sets an answer in the scope's span, with the reason why it ended, if content is captured.
    pub(crate) fn capture_answer(&self, text: &str, calls: &[ToolCall], reason: &'static str) {
        self.set_content(GEN_AI_OUTPUT_MESSAGES, |content| {
            let answer = |parts: Vec<Value>| json!([{ "role": ASSISTANT, "parts": parts, "finish_reason": reason }]);
            let whole = |most: usize| {
                let said = (!text.is_empty()).then(|| text_part(content, text, most));
                answer(said.into_iter().chain(calls.iter().map(|call| call_part(content, call, most))).collect())
            };
            fit(MAX_CONTENT, whole).unwrap_or_else(|| answer(vec![cut_part(calls.len())]).to_string())
        });
    }
}

/// Returns the messages as JSON: the newest, and the number of those before that do not fit.
fn input_messages(content: &ContentCapture, messages: &[Arc<Message>]) -> String {
    let groups = grouped(messages);
    let json = |(number, (role, group)): (usize, &(&'static str, Vec<&Message>))| {
        let message = |parts: Vec<Value>| json!({ "role": role, "parts": parts });
        let whole = |most: usize| message(group.iter().flat_map(|one| parts(content, one, most)).collect());
        if number > 0 {
            return whole(MAX_CONTENT).to_string();
        }
        fit(ROOM, whole).unwrap_or_else(|| message(vec![cut_part(group.len())]).to_string())
    };
    let mut kept = fitting(groups.iter().rev().enumerate().map(json));
    if kept.len() < groups.len() {
        let cut = json!({ "role": "system", "parts": [cut_part(groups.len() - kept.len())] });
        kept.push(cut.to_string());
    }
    kept.reverse();
    list(&kept)
}

/// Returns the messages with those together that are one answer: its text and its calls.
fn grouped(messages: &[Arc<Message>]) -> Vec<(&'static str, Vec<&Message>)> {
    let mut groups: Vec<(&'static str, Vec<&Message>)> = Vec::new();
    for message in messages.iter().map(Arc::as_ref) {
        let role = match message {
            Message::System(_) => "system",
            Message::User(_) => "user",
            Message::Assistant(_) | Message::Call(_) => ASSISTANT,
            Message::ToolResult { .. } => "tool",
        };
        match groups.last_mut() {
            Some((ASSISTANT, answer)) if role == ASSISTANT => answer.push(message),
            _ => groups.push((role, vec![message])),
        }
    }
    groups
}

/// Returns the parts of a message.
fn parts(content: &ContentCapture, message: &Message, most: usize) -> Vec<Value> {
    match message {
        Message::System(text) | Message::Assistant(text) => vec![text_part(content, text, most)],
        Message::User(parts) => parts.iter().map(|part| user_part(content, part, most)).collect(),
        Message::Call(call) => vec![call_part(content, call, most)],
        Message::ToolResult { id, outcome: Ok(text) | Err(text), .. } => vec![json!({
            "type": "tool_call_response", "id": content.text(id, most), "response": content.text(text, most),
        })],
    }
}

fn text_part(content: &ContentCapture, text: &str, most: usize) -> Value {
    json!({ "type": "text", "content": content.text(text, most) })
}

fn user_part(content: &ContentCapture, part: &Part, most: usize) -> Value {
    match part {
        Part::Text(text) => text_part(content, text, most),
        Part::Media { url, content_type } => text_part(content, &media(url, content_type.as_deref()), most),
    }
}

fn call_part(content: &ContentCapture, call: &ToolCall, most: usize) -> Value {
    json!({
        "type": "tool_call", "id": content.text(&call.id, most), "name": content.text(&call.name, most),
        "arguments": content.value(&call.arguments, most),
    })
}

/// Returns the part that stands for so many others.
fn cut_part(count: usize) -> Value {
    json!({ "type": "cut", "count": count })
}

/// Returns `<type, n bytes>` for a medium. The address of one that the provider fetches is left out: its query may hold a key.
fn media(url: &str, content_type: Option<&str>) -> String {
    let data = url.strip_prefix("data:").and_then(|data| data.split_once(','));
    let Some((head, data)) = data else { return format!("<{}, at a URL>", content_type.unwrap_or("media")) };
    let type_ = content_type.or_else(|| head.split(';').next()).filter(|type_| !type_.is_empty()).unwrap_or("media");
    let bytes = match head.ends_with(";base64") {
        // Four characters stand for three bytes, but for those that fill up the end.
        true => data.trim().trim_end_matches('=').len() * 3 / 4,
        false => data.len(),
    };
    format!("<{type_}, {bytes} bytes>")
}

/// Returns the declarations of tools as JSON, without schemas where these do not fit, and at last with names alone.
fn definitions(content: &ContentCapture, tools: &[ToolSpec]) -> String {
    let text = |text: &str| content.text(text, MAX_CONTENT);
    let described = |tool: &ToolSpec| {
        let (name, description) = (text(&tool.name), text(&tool.description));
        json!({ "type": "function", "name": name, "description": description })
    };
    let whole = |tool: &ToolSpec| {
        let mut definition = described(tool);
        definition["parameters"] = content.value(&tool.input_schema, MAX_CONTENT);
        definition
    };
    let all = tools.iter().map(whole).collect::<Value>().to_string();
    if all.len() <= MAX_CONTENT {
        return all;
    }
    let all = tools.iter().map(described).collect::<Value>().to_string();
    if all.len() <= MAX_CONTENT {
        return all;
    }
    let name = |tool: &ToolSpec| json!({ "type": "function", "name": text(&tool.name) }).to_string();
    let mut kept = fitting(tools.iter().map(name));
    if kept.len() < tools.len() {
        let cut = format!("{} further tools", tools.len() - kept.len());
        kept.push(json!({ "type": "cut", "name": cut }).to_string());
    }
    list(&kept)
}

/// Returns the first items, as many as fit into a list.
fn fitting(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut bytes = 0;
    items
        .take_while(|item| {
            bytes += item.len() + 1;
            bytes <= ROOM + 1
        })
        .collect()
}

fn list(items: &[String]) -> String {
    format!("[{}]", items.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(secrets: &[&str]) -> ContentCapture {
        ContentCapture::new(secrets.iter().map(|secret| (*secret).to_owned()).collect())
    }

    fn messages(messages: Vec<Message>) -> Vec<Arc<Message>> {
        messages.into_iter().map(Arc::new).collect()
    }

    fn call(id: &str, arguments: Value) -> ToolCall {
        ToolCall { id: id.into(), name: "lookup".into(), arguments, thought: None }
    }

    fn read(json: &str) -> Value {
        assert!(json.len() <= MAX_CONTENT, "{}", json.len());
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn messages_have_the_form_of_the_conventions() {
        let picture = Part::Media { url: "data:image/png;base64,AAAA".into(), content_type: None };
        let linked = Part::Media { url: "https://h/x?key=geheim".into(), content_type: Some("image/png".into()) };
        let asked = messages(vec![
            Message::System("be kind".into()),
            Message::User(vec![Part::Text("what is key-one".into()), picture, linked]),
            Message::Assistant("let me see".into()),
            Message::Call(call("c1", json!({ "id": "key-one" }))),
            Message::Call(call("c2", json!({}))),
            Message::ToolResult { id: "c1".into(), name: "lookup".into(), outcome: Ok("it is key-one".into()) },
            Message::ToolResult { id: "c2".into(), name: "lookup".into(), outcome: Err("no id".into()) },
        ]);
        let text = |text: &str| json!({ "type": "text", "content": text });
        let call = |id: &str, arguments: Value| json!({ "type": "tool_call", "id": id, "name": "lookup", "arguments": arguments });
        let result = |id: &str, text: &str| {
            let response = json!({ "type": "tool_call_response", "id": id, "response": text });
            json!({ "role": "tool", "parts": [response] })
        };
        assert_eq!(
            read(&input_messages(&content(&["key-one"]), &asked)),
            json!([
                { "role": "system", "parts": [text("be kind")] },
                { "role": "user", "parts": [text("what is ***"), text("<image/png, 3 bytes>"), text("<image/png, at a URL>")] },
                { "role": "assistant", "parts": [text("let me see"), call("c1", json!({ "id": "***" })), call("c2", json!({}))] },
                result("c1", "it is ***"),
                result("c2", "no id"),
            ])
        );
        assert_eq!(read(&input_messages(&content(&[]), &[])), json!([]));
    }

    #[test]
    fn a_medium_is_its_type_and_size() {
        for (url, type_, expected) in [
            ("data:image/png;base64,AAAA", None, "<image/png, 3 bytes>"),
            ("data:image/png;base64,AAAAAA==", None, "<image/png, 4 bytes>"),
            ("data:image/png;base64,AAAAAAA=", Some("image/webp"), "<image/webp, 5 bytes>"),
            ("data:,abc", None, "<media, 3 bytes>"),
            ("https://h/x?key=geheim", None, "<media, at a URL>"),
        ] {
            assert_eq!(media(url, type_), expected, "{url}");
        }
    }

    #[test]
    fn of_a_long_conversation_the_newest_messages_are_kept() {
        let long = (0..40).map(|number| Message::user(format!("{number} {}", "x".repeat(1000)))).collect();
        let kept = read(&input_messages(&content(&[]), &messages(long)));
        let kept = kept.as_array().unwrap();
        assert!((6..9).contains(&kept.len()), "{}", kept.len());
        let cut = json!({ "role": "system", "parts": [{ "type": "cut", "count": 41 - kept.len() }] });
        assert_eq!(kept[0], cut);
        assert!(kept.last().unwrap()["parts"][0]["content"].as_str().unwrap().starts_with("39 x"));
    }

    #[test]
    fn the_newest_message_is_cut_if_it_alone_is_too_long() {
        let long = messages(vec![Message::user("first"), Message::user("\"é\"".repeat(9000))]);
        let kept = read(&input_messages(&content(&[]), &long));
        assert_eq!(kept[0]["parts"][0]["content"], "first", "it fits besides");
        let text = kept[1]["parts"][0]["content"].as_str().unwrap();
        assert!(text.starts_with("\"é\"\"é\"") && text.ends_with("… [cut]"), "{text}");
        let many = messages(vec![Message::User(vec![Part::Text("x".into()); 5000])]);
        let kept = read(&input_messages(&content(&[]), &many));
        assert_eq!(kept, json!([{ "role": "user", "parts": [{ "type": "cut", "count": 1 }] }]));
    }

    #[test]
    fn declarations_lose_schemas_before_descriptions_and_names() {
        let tool = |number: usize, schema: usize, description: usize| ToolSpec {
            name: format!("tool{number}"),
            description: "d".repeat(description),
            input_schema: json!({ "type": "object", "description": "s".repeat(schema) }),
        };
        for (count, schema, description, has_schema, has_description) in
            [(3, 9, 9, true, true), (3, 4000, 9, false, true), (3, 9, 4000, false, false)]
        {
            let tools: Vec<_> = (0..count).map(|number| tool(number, schema, description)).collect();
            let found = read(&definitions(&content(&[]), &tools));
            assert_eq!(found.as_array().unwrap().len(), count);
            for (number, tool) in found.as_array().unwrap().iter().enumerate() {
                assert_eq!((&tool["type"], &tool["name"]), (&json!("function"), &json!(format!("tool{number}"))));
                let has = |field: &str| tool.get(field).is_some();
                assert_eq!((has("parameters"), has("description")), (has_schema, has_description), "{tool}");
            }
        }
        let many: Vec<_> = (0..1000).map(|number| tool(number, 9, 9)).collect();
        let found = read(&definitions(&content(&[]), &many));
        let (last, kept) = found.as_array().unwrap().split_last().unwrap();
        assert_eq!(*last, json!({ "type": "cut", "name": format!("{} further tools", 1000 - kept.len()) }));
    }

    #[test]
    fn nothing_is_kept_of_an_answer_unless_content_is_captured() {
        assert!(CapturedAnswer::begin(&TraceScope::default()).is_none());
    }

    #[test]
    fn an_answer_keeps_only_what_a_span_can_hold() {
        let mut answer = CapturedAnswer { text: String::new(), calls: Vec::new(), window: 10 };
        for piece in ["abcd", "éé", "éé", "x"] {
            answer.add_text(piece);
        }
        assert_eq!(answer.text, "abcdééé");
    }
}
