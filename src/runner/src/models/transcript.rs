//! Groups the messages of a conversation into the alternating entries that providers expect: consecutive messages of
//! one side become one entry.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Message, ModelRequest, OutputFormat, ToolCall,
    error::{ModelError, ModelErrorKind},
};

/// Entry of the transcript.
#[derive(Debug, PartialEq)]
pub(super) enum TranscriptEntry<'a> {
    /// Instructions within the conversation.
    System(&'a str),
    /// User's message.
    User(&'a [super::Part]),
    /// Model's message: text, and tool calls.
    Assistant(String, Vec<&'a ToolCall>),
    /// Results of those calls.
    Results(Vec<TranscriptResult<'a>>),
}

/// Result of one tool call.
#[derive(Debug, PartialEq)]
pub(super) struct TranscriptResult<'a> {
    /// Id of the call.
    pub(super) id: &'a str,
    /// Name of the tool.
    pub(super) name: &'a str,
    /// Text of the result.
    pub(super) text: &'a str,
    /// Set when the text is the error of a failed call.
    pub(super) failed: bool,
}

impl TranscriptResult<'_> {
    /// Returns the text, with the prefix `Error: ` for a failed call, for providers without an error flag.
    pub(super) fn to_text(&self) -> String {
        if self.failed { format!("Error: {}", self.text) } else { self.text.to_owned() }
    }
}

/// Groups a conversation into entries, without empty texts, which providers refuse.
pub(super) fn transcript_entries(messages: &[Arc<Message>]) -> Vec<TranscriptEntry<'_>> {
    let mut entries: Vec<TranscriptEntry<'_>> = Vec::with_capacity(messages.len());
    for message in messages {
        match (&**message, entries.last_mut()) {
            (Message::System(text), _) => entries.push(TranscriptEntry::System(text)),
            (Message::User(parts), _) => entries.push(TranscriptEntry::User(parts)),
            (Message::Assistant(more), Some(TranscriptEntry::Assistant(text, calls))) if calls.is_empty() => {
                text.push_str(more)
            }
            (Message::Assistant(text), _) => entries.push(TranscriptEntry::Assistant(text.clone(), Vec::new())),
            (Message::Call(call), Some(TranscriptEntry::Assistant(_, calls))) => calls.push(call),
            (Message::Call(call), _) => entries.push(TranscriptEntry::Assistant(String::new(), vec![call])),
            (Message::ToolResult { id, name, outcome }, last) => {
                let text = outcome.as_ref().map_or_else(String::as_str, String::as_str);
                let result = TranscriptResult { id, name, text, failed: outcome.is_err() };
                match last {
                    Some(TranscriptEntry::Results(results)) => results.push(result),
                    _ => entries.push(TranscriptEntry::Results(vec![result])),
                }
            }
        }
    }
    entries.retain(
        |entry| !matches!(entry, TranscriptEntry::Assistant(text, calls) if text.is_empty() && calls.is_empty()),
    );
    entries
}

/// Joins the system prompt, all instructions of the conversation, and `more`, for providers that accept instructions
/// only in the system prompt.
pub(super) fn instructions(request: &ModelRequest, more: Option<String>) -> Option<String> {
    let within = request.messages.iter().filter_map(|message| match &**message {
        Message::System(text) => Some(text.as_str()),
        _ => None,
    });
    let all = request.system.as_deref().into_iter().chain(within).chain(more.as_deref());
    let all: Vec<_> = all.filter(|text| !text.is_empty()).collect();
    (!all.is_empty()).then(|| all.join("\n\n"))
}

/// Returns an instruction to answer with JSON, for providers without a setting for it.
pub(super) fn json_instruction(output: &OutputFormat) -> String {
    let mut text = String::from("Answer with JSON alone: nothing before it, nothing after it, no Markdown fence.");
    if let Some(schema) = &output.schema {
        text.push_str(&format!(" It must conform to this JSON Schema:\n{schema}"));
    }
    text
}

/// Returns the schema for the provider's setting, and the instruction to answer with JSON, for a provider whose setting takes
/// nothing but a schema. `is_custom`: another server is asked, which may not know the setting, so that it gets both.
pub(super) fn json_output(request: &ModelRequest, is_custom: bool) -> (Option<&Value>, Option<String>) {
    let Some(output) = &request.output else { return (None, None) };
    let schema = output.schema.as_ref().filter(|schema| schema.is_object());
    (schema, (is_custom || schema.is_none()).then(|| json_instruction(output)))
}

/// Returns the request with what it says about JSON in its instructions, for a model that takes it nowhere else.
pub(super) fn in_words(request: &ModelRequest) -> ModelRequest {
    let words = request.output.as_ref().map(json_instruction);
    let texts = request.system.as_deref().into_iter().chain(words.as_deref()).filter(|text| !text.is_empty());
    let system = texts.collect::<Vec<_>>().join("\n\n");
    ModelRequest { system: Some(system.into()), output: None, ..request.clone() }
}

/// Content of a `Media` part.
#[derive(Debug, PartialEq)]
pub(super) enum Media<'a> {
    /// Content itself, in base64.
    Inline {
        /// MIME type.
        type_: &'a str,
        /// Base64.
        data: &'a str,
    },
    /// Content that the provider fetches.
    Remote {
        /// MIME type, if known.
        type_: Option<&'a str>,
        /// URL.
        url: &'a str,
    },
}

impl<'a> Media<'a> {
    /// Parses the URL of a part.
    ///
    /// # Errors
    /// A `data:` URL that is not base64.
    pub(super) fn read(url: &'a str, type_: Option<&'a str>) -> Result<Self, ModelError> {
        let Some(rest) = url.strip_prefix("data:") else { return Ok(Self::Remote { type_, url }) };
        let read = rest.split_once(',').and_then(|(head, data)| Some((head.strip_suffix(";base64")?, data)));
        let (head, data) =
            read.ok_or_else(|| unsupported_media("its `data:` URL is not like `data:image/png;base64,…`"))?;
        let own = head.split(';').next().filter(|own| !own.is_empty());
        Ok(Self::Inline { type_: type_.or(own).unwrap_or("application/octet-stream"), data })
    }
}

/// Creates the error for a media part that cannot be sent.
pub(super) fn unsupported_media(why: &str) -> ModelError {
    ModelError::new(ModelErrorKind::BadRequest, format!("a media part cannot be sent: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "t".into(), ..ToolCall::default() }
    }

    fn result(id: &str, outcome: Result<String, String>) -> Arc<Message> {
        Arc::new(Message::ToolResult { id: id.into(), name: "t".into(), outcome })
    }

    #[test]
    fn what_belongs_together_is_one_entry() {
        let messages = [
            Message::user("hi").into(),
            Message::Assistant(String::new()).into(),
            Message::Assistant("a".into()).into(),
            Message::Assistant("b".into()).into(),
            Message::Call(call("1")).into(),
            Message::Call(call("2")).into(),
            result("1", Ok("x".into())),
            result("2", Err("y".into())),
            Message::Call(call("3")).into(),
            result("3", Ok(String::new())),
            Message::Assistant("c".into()).into(),
        ];
        let outcome = |id, text, failed| TranscriptResult { id, name: "t", text, failed };
        let (one, two, three) = (call("1"), call("2"), call("3"));
        let hi = [super::super::Part::Text("hi".into())];
        let expected = [
            TranscriptEntry::User(&hi),
            TranscriptEntry::Assistant("ab".into(), vec![&one, &two]),
            TranscriptEntry::Results(vec![outcome("1", "x", false), outcome("2", "y", true)]),
            TranscriptEntry::Assistant(String::new(), vec![&three]),
            TranscriptEntry::Results(vec![outcome("3", "", false)]),
            TranscriptEntry::Assistant("c".into(), vec![]),
        ];
        assert_eq!(transcript_entries(&messages), expected);
    }

    #[test]
    fn instructions_are_joined() {
        let messages = vec![Message::System("b".into()).into(), Message::user("x").into()];
        let request = ModelRequest { system: Some("a".into()), messages, ..ModelRequest::default() };
        assert_eq!(instructions(&request, Some("c".into())).unwrap(), "a\n\nb\n\nc");
        assert_eq!(instructions(&ModelRequest::default(), None), None);
        let output = OutputFormat { schema: Some(json!({"type": "object"})) };
        assert!(json_instruction(&output).ends_with("JSON Schema:\n{\"type\":\"object\"}"));
    }

    #[test]
    fn a_schema_goes_into_the_setting_and_another_server_gets_words_too() {
        let object = json!({"type": "object"});
        for (schema, is_custom, in_setting, has_words) in [
            (Some(object.clone()), false, Some(&object), false),
            (Some(object.clone()), true, Some(&object), true),
            (Some(json!(true)), false, None, true),
            (None, false, None, true),
        ] {
            let request = ModelRequest { output: Some(OutputFormat { schema }), ..ModelRequest::default() };
            let (found, words) = json_output(&request, is_custom);
            assert_eq!((found, words.is_some()), (in_setting, has_words));
        }
        assert_eq!(json_output(&ModelRequest::default(), true), (None, None));
    }

    #[test]
    fn media_is_inline_or_elsewhere() {
        let inline = |type_, data| Ok(Media::Inline { type_, data });
        for (url, type_, expected) in [
            ("data:image/png;base64,AA", None, inline("image/png", "AA")),
            ("data:text/plain;charset=utf-8;base64,AA", Some("a/b"), inline("a/b", "AA")),
            ("data:;base64,", None, inline("application/octet-stream", "")),
            ("https://h/x", Some("a/b"), Ok(Media::Remote { type_: Some("a/b"), url: "https://h/x" })),
        ] {
            assert_eq!(Media::read(url, type_), expected, "{url}");
        }
        for url in ["data:text/plain,SECRET", "data:SECRET"] {
            let error = Media::read(url, None).unwrap_err();
            assert!(error.kind == ModelErrorKind::BadRequest && !error.to_string().contains("SECRET"));
        }
    }
}
