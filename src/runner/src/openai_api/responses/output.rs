//! Output of a response: a list of items, messages and tool calls, that grows with the events of the turn.

use std::{collections::VecDeque, mem};

use serde_json::{Value, json};

use crate::{models::ToolCall, turn_event::TurnEvent};

/// Output of a response, and the events that tell how it grew.
///
/// Invariant: only the last item can be open.
#[derive(Debug)]
pub(super) struct Output {
    /// Part of each item's id.
    suffix: String,
    /// Label of the tools' origin.
    server_label: String,
    items: Vec<Value>,
    open: Open,
    events: VecDeque<Value>,
    /// Number of the next event.
    sequence: u64,
}

/// State of the last item.
#[derive(Debug)]
enum Open {
    /// It is complete, or there is none.
    None,
    /// Message with this text so far.
    Message(String),
    /// Tool call without an outcome.
    Call,
}

impl Output {
    /// Creates an empty output.
    pub(super) fn new(suffix: &str, server_label: &str) -> Self {
        let (suffix, server_label) = (suffix.to_owned(), server_label.to_owned());
        Self { suffix, server_label, items: Vec::new(), open: Open::None, events: VecDeque::new(), sequence: 0 }
    }

    /// Returns the items.
    pub(super) fn items(&self) -> &[Value] {
        &self.items
    }

    /// Takes the events since the last call.
    pub(super) fn take_events(&mut self) -> VecDeque<Value> {
        mem::take(&mut self.events)
    }

    /// Adds an event with these fields.
    pub(super) fn emit(&mut self, kind: &str, mut fields: Value) {
        fields["type"] = kind.into();
        fields["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        self.events.push_back(fields);
    }

    /// Adds what the turn did.
    pub(super) fn push(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::Text(text) => self.text(&text),
            TurnEvent::Call(call) => self.call(call),
            TurnEvent::Outcome { ok, .. } => self.end_call(ok),
            // The first is a header of the response; no turn of this API waits for a person.
            TurnEvent::Answerer(_) | TurnEvent::WaitNote(_) | TurnEvent::Parked(_) => {}
        }
    }

    /// Completes the last item; `truncated` says that its text ends too early.
    pub(super) fn end(&mut self, truncated: bool) {
        self.close(if truncated { "incomplete" } else { "completed" });
    }

    fn text(&mut self, delta: &str) {
        if !matches!(self.open, Open::Message(_)) {
            self.close("completed");
            let id = self.id("msg");
            self.add(json!({
                "id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": [],
            }));
            self.emit_in_item("response.content_part.added", json!({ "content_index": 0, "part": part("") }));
            self.open = Open::Message(String::new());
        }
        if let Open::Message(text) = &mut self.open {
            text.push_str(delta);
        }
        let fields = json!({ "content_index": 0, "delta": delta, "logprobs": [] });
        self.emit_in_item("response.output_text.delta", fields);
    }

    fn call(&mut self, call: ToolCall) {
        self.close("completed");
        let id = self.id("mcp");
        self.add(json!({
            "id": id, "type": "mcp_call", "status": "in_progress", "server_label": self.server_label,
            "name": call.name, "arguments": "", "output": null, "error": null,
        }));
        let arguments = call.arguments.to_string();
        self.emit_in_item("response.mcp_call.in_progress", json!({}));
        self.emit_in_item("response.mcp_call_arguments.delta", json!({ "delta": arguments }));
        self.emit_in_item("response.mcp_call_arguments.done", json!({ "arguments": arguments }));
        self.set("arguments", arguments.into());
        self.open = Open::Call;
    }

    fn end_call(&mut self, ok: bool) {
        if !matches!(self.open, Open::Call) {
            return;
        }
        self.open = Open::None;
        if !ok {
            let why = "the tool failed, and the model received the error";
            self.set("error", json!({ "type": "mcp_tool_execution_error", "content": why }));
        }
        let status = if ok { "completed" } else { "failed" };
        self.set("status", status.into());
        self.emit_in_item(&format!("response.mcp_call.{status}"), json!({}));
        self.emit_done();
    }

    fn close(&mut self, status: &str) {
        match mem::replace(&mut self.open, Open::None) {
            Open::None => {}
            Open::Message(text) => {
                let fields = json!({ "content_index": 0, "text": text, "logprobs": [] });
                self.emit_in_item("response.output_text.done", fields);
                let part = part(&text);
                self.emit_in_item("response.content_part.done", json!({ "content_index": 0, "part": part }));
                self.set("content", json!([part]));
                self.set("status", status.into());
                self.emit_done();
            }
            Open::Call => {
                self.open = Open::Call;
                self.end_call(false);
            }
        }
    }

    /// Returns the id of the next item.
    fn id(&self, kind: &str) -> String {
        format!("{kind}_{}{:04x}", self.suffix, self.items.len())
    }

    fn add(&mut self, item: Value) {
        let index = self.items.len();
        self.items.push(item.clone());
        self.emit("response.output_item.added", json!({ "output_index": index, "item": item }));
    }

    fn set(&mut self, field: &str, value: Value) {
        if let Some(item) = self.items.last_mut() {
            item[field] = value;
        }
    }

    fn emit_done(&mut self) {
        let (index, item) = (self.items.len().saturating_sub(1), self.items.last().cloned());
        self.emit("response.output_item.done", json!({ "output_index": index, "item": item }));
    }

    /// Adds an event about the last item.
    fn emit_in_item(&mut self, kind: &str, mut fields: Value) {
        fields["output_index"] = self.items.len().saturating_sub(1).into();
        fields["item_id"] = self.items.last().map(|item| item["id"].clone()).unwrap_or_default();
        self.emit(kind, fields);
    }
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn text_before_and_after_a_tool_call_are_two_messages() {
        let mut output = Output::new("0", "shop");
        let call = ToolCall { id: "c".into(), name: "add".into(), arguments: json!({ "a": 1 }), thought: None };
        output.push("let me ".into());
        output.push("see".into());
        output.push(TurnEvent::Call(call));
        output.push(TurnEvent::Outcome { id: "c".into(), ok: false, took: Duration::ZERO });
        output.push("no".into());
        output.end(true);
        let text = |item: &Value| item["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        let [first, called, last] = output.items() else { panic!("{output:?}") };
        assert_eq!((text(first), &first["status"]), ("let me see".into(), &json!("completed")));
        assert_eq!((&called["type"], &called["arguments"]), (&json!("mcp_call"), &json!("{\"a\":1}")));
        assert_eq!((&called["status"], called["error"]["type"].is_string()), (&json!("failed"), true));
        assert_eq!((text(last), &last["status"]), ("no".into(), &json!("incomplete")));
        let events = output.take_events();
        let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        let message = |deltas: usize| {
            let mut kinds = vec!["response.output_item.added", "response.content_part.added"];
            kinds.extend(std::iter::repeat_n("response.output_text.delta", deltas));
            kinds.extend(["response.output_text.done", "response.content_part.done", "response.output_item.done"]);
            kinds
        };
        let call = [
            "response.output_item.added",
            "response.mcp_call.in_progress",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.failed",
            "response.output_item.done",
        ];
        assert_eq!(kinds, [message(2), call.to_vec(), message(1)].concat());
        assert!(events.iter().enumerate().all(|(number, event)| event["sequence_number"] == number));
        assert_eq!(events[5]["output_index"], 0);
        assert_eq!(events.back().unwrap()["item"], output.items()[2]);
    }
}
