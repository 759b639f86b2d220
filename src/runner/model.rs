//! What the runtime asks of a language model, whoever provides it.
//!
//! A model sees the whole conversation on every call and keeps nothing, so any replica can answer. It streams: text as
//! it comes, and the tools it wants called. The runtime calls them, adds their results to the conversation and asks
//! again.

use std::sync::Arc;

use futures::stream::BoxStream;
use serde_json::Value;

use super::config::ModelRef;
use super::stub::Stub;
use super::tools::Definition;

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Message {
    /// What the user wrote.
    User(String),
    /// What the model answered.
    Assistant(String),
    /// A tool the model asked for.
    Call(ToolCall),
    /// What that tool gave back, or why it failed.
    ToolResult {
        /// The tool's name.
        name: String,
        /// Its answer, or the text of its error.
        outcome: Result<String, String>,
    },
}

impl Message {
    /// About how many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::User(text) | Self::Assistant(text) => text.len(),
            Self::Call(call) => call.name.len() + call.arguments.to_string().len(),
            Self::ToolResult { name, outcome: Ok(text) | Err(text) } => name.len() + text.len(),
        }
    }
}

/// A call of a tool, as the model wrote it: nothing in it is checked yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolCall {
    /// The tool's name.
    pub(super) name: String,
    /// Its arguments; anything but an object is an error of the model.
    pub(super) arguments: Value,
}

/// What a model is given.
#[derive(Clone)]
pub(super) struct Request {
    /// Instructions that come before the conversation.
    pub(super) system_prompt: Option<Arc<str>>,
    /// The conversation, oldest first.
    pub(super) messages: Vec<Arc<Message>>,
    /// The tools it may ask for.
    pub(super) tools: Arc<[Definition]>,
}

/// A piece of a model's answer.
#[derive(Debug, PartialEq)]
pub(super) enum Chunk {
    /// Text, to be shown as it comes.
    Token(String),
    /// A tool to call once the stream has ended.
    Call(ToolCall),
}

/// A model did not answer. The text is for the user and holds nothing the provider sent.
#[derive(Debug, thiserror::Error)]
#[error("the model did not answer: {0}")]
pub(super) struct ModelError(pub(super) String);

/// A language model.
pub(super) trait Model: Send + Sync {
    /// Answers the last message of the conversation.
    fn answer(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>>;

    /// Names a conversation after its first message: at most 60 characters, one line.
    fn title(&self, first: &str) -> String;
}

/// The model `reference` names.
///
/// # Errors
/// Why it cannot be served, as a sentence for `/readyz`.
pub(super) fn open(reference: &ModelRef) -> Result<Arc<dyn Model>, String> {
    match reference.provider.as_str() {
        "stub" => Ok(Arc::new(Stub)),
        other => Err(format!("model type `{other}` is not supported by this runtime yet; use `stub`")),
    }
}
