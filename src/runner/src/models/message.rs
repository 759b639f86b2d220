//! Messages of a conversation.
//!
//! They are serializable as JSON, because conversations are stored.

pub(crate) use dotprompt::Part;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// Instructions within the conversation. A provider without such a role gets them with the system prompt.
    System(String),
    /// Message of the user.
    User(Vec<Part>),
    /// Answer of the model.
    Assistant(String),
    /// Tool call of the model. Calls of one answer are consecutive.
    Call(ToolCall),
    /// Result of that tool, or its error.
    ToolResult {
        /// Id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// Result, or the text of the error.
        outcome: Result<String, String>,
    },
}

impl Message {
    /// Creates a user's message with text only.
    pub(crate) fn user(text: impl Into<String>) -> Self {
        Self::User(vec![Part::Text(text.into())])
    }

    /// Returns its approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::System(text) | Self::Assistant(text) => text.len(),
            Self::User(parts) => parts.iter().map(bytes).sum(),
            Self::Call(ToolCall { id, name, arguments, thought }) => {
                id.len() + name.len() + arguments.to_string().len() + thought.as_ref().map_or(0, Thought::bytes)
            }
            Self::ToolResult { id, name, outcome: Ok(text) | Err(text) } => id.len() + name.len() + text.len(),
        }
    }
}

fn bytes(part: &Part) -> usize {
    match part {
        Part::Text(text) => text.len(),
        Part::Media { url, content_type } => url.len() + content_type.as_ref().map_or(0, String::len),
    }
}

/// Returns the text of `parts`, without the media.
pub(crate) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Media { .. } => None,
    });
    texts.collect()
}

/// Tool call as the model wrote it, not yet validated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    /// Id, unique within the conversation; the result has the same one.
    pub(crate) id: String,
    /// Name of the tool.
    pub(crate) name: String,
    /// Arguments; anything but an object is an error of the model, which the tool reports back to it.
    pub(crate) arguments: Value,
    /// Reasoning data that the provider requires back with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) thought: Option<Thought>,
}

/// Reasoning of a model before a tool call, opaque to other providers: its own provider signed it and refuses the
/// tool's result without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Thought {
    /// Thought signature of Gemini.
    Signature(String),
    /// Thinking blocks of Anthropic, verbatim.
    Blocks(Vec<Value>),
    /// Reasoning content of Bedrock, verbatim.
    Reasoning(Vec<Value>),
}

impl Thought {
    fn bytes(&self) -> usize {
        match self {
            Self::Signature(text) => text.len(),
            Self::Blocks(blocks) | Self::Reasoning(blocks) => blocks.iter().map(|block| block.to_string().len()).sum(),
        }
    }
}
