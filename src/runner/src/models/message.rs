//! What is said in a conversation.
//!
//! It can be written down as JSON, because conversations are kept.

pub(crate) use dotprompt::Part;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// Instructions within the conversation. A provider that has no such thing gets them with the system prompt.
    System(String),
    /// What the user wrote.
    User(Vec<Part>),
    /// What the model answered.
    Assistant(String),
    /// A tool the model asked for. Calls that were made in one answer follow each other.
    Call(ToolCall),
    /// What that tool gave back, or why it failed.
    ToolResult {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// Its answer, or the text of its error.
        outcome: Result<String, String>,
    },
}

impl Message {
    /// A user's message that is text alone.
    pub(crate) fn user(text: impl Into<String>) -> Self {
        Self::User(vec![Part::Text(text.into())])
    }

    /// About how many bytes it holds.
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

/// The text of `parts`, without the media.
pub(crate) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Media { .. } => None,
    });
    texts.collect()
}

/// A call of a tool, as the model wrote it: nothing in it is checked yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    /// Tells it from the other calls of the conversation; its result has the same.
    pub(crate) id: String,
    /// The tool's name.
    pub(crate) name: String,
    /// Its arguments; anything but an object is an error of the model, which the tool tells it.
    pub(crate) arguments: Value,
    /// What the provider wants back with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) thought: Option<Thought>,
}

/// What a model thought before a call, for its own provider alone, which signed it: nobody else can read it, and without
/// it the provider refuses what the tool gave back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Thought {
    /// Gemini's: a signature.
    Signature(String),
    /// Anthropic's: whole blocks, verbatim.
    Blocks(Vec<Value>),
}

impl Thought {
    fn bytes(&self) -> usize {
        match self {
            Self::Signature(text) => text.len(),
            Self::Blocks(blocks) => blocks.iter().map(|block| block.to_string().len()).sum(),
        }
    }
}
