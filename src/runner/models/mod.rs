//! What the runtime asks of a language model, whoever provides it.
//!
//! A model sees the whole conversation on every call and keeps nothing, so any replica can answer. It streams: text as
//! it comes, and the tools it wants called. The runtime calls them, adds their results to the conversation and asks
//! again.

#![allow(dead_code, unused_imports)]

mod credentials;
mod error;
mod http;
mod stub;
mod title;

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Lookup;
pub(super) use credentials::directory;
pub(super) use error::{ModelError, ModelErrorKind};
pub(super) use http::Http;
use stub::Stub;

/// A model by provider and name, and how to reach it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ModelRef {
    /// Provider, for example `stub`.
    pub(super) provider: String,
    /// Name at the provider.
    pub(super) id: String,
    /// Where the provider's API is; its public address when unset.
    pub(super) base_url: Option<String>,
    /// Names of credentials that were declared for it. A single one is used when the provider's own name has no value.
    pub(super) credential_keys: Vec<String>,
    /// Generation config of every request, unless the request says otherwise.
    pub(super) config: Map<String, Value>,
}

impl ModelRef {
    /// A model at the provider's public address, with its defaults.
    pub(super) fn new(provider: impl Into<String>, id: impl Into<String>) -> Self {
        Self { provider: provider.into(), id: id.into(), ..Self::default() }
    }
}

/// A piece of what a user says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    /// Text.
    Text(String),
    /// A picture, a sound or a document.
    Media {
        /// A `data:` URL, or where the provider can fetch it.
        url: String,
        /// Its MIME type; that of the `data:` URL when unset.
        content_type: Option<String>,
    },
}

/// One entry of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
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
    pub(super) fn user(text: impl Into<String>) -> Self {
        Self::User(vec![Part::Text(text.into())])
    }

    /// About how many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::System(text) | Self::Assistant(text) => text.len(),
            Self::User(parts) => parts.iter().map(Part::bytes).sum(),
            Self::Call(call) => call.id.len() + call.name.len() + call.arguments.to_string().len(),
            Self::ToolResult { id, name, outcome: Ok(text) | Err(text) } => id.len() + name.len() + text.len(),
        }
    }
}

impl Part {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Media { url, content_type } => url.len() + content_type.as_ref().map_or(0, String::len),
        }
    }
}

/// The text of `parts`, without the media.
pub(super) fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        Part::Media { .. } => None,
    });
    texts.collect()
}

/// A call of a tool, as the model wrote it: nothing in it is checked yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ToolCall {
    /// Tells it from the other calls of the conversation; its result has the same.
    pub(super) id: String,
    /// The tool's name.
    pub(super) name: String,
    /// Its arguments; anything but an object is an error of the model, which the tool tells it.
    pub(super) arguments: Value,
    /// What the provider wants back with the call, unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signature: Option<String>,
}

/// What a model is told about a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolSpec {
    /// The name it calls the tool by.
    pub(super) name: String,
    /// What the tool is for.
    pub(super) description: String,
    /// JSON Schema of the arguments; its type is `object`.
    pub(super) input_schema: Value,
}

/// What a model is given.
#[derive(Debug, Clone, Default)]
pub(super) struct Request {
    /// Instructions that come before the conversation.
    pub(super) system: Option<Arc<str>>,
    /// The conversation, oldest first.
    pub(super) messages: Vec<Arc<Message>>,
    /// The tools it may ask for.
    pub(super) tools: Arc<[ToolSpec]>,
    /// Generation config, over that of the [`ModelRef`]: `temperature`, `maxOutputTokens`, `topP`, `topK` and
    /// `stopSequences` mean the same everywhere, `version` asks for another model of the provider, and everything else
    /// is handed over under the provider's own names.
    pub(super) config: Arc<Map<String, Value>>,
    /// Set when the answer is to be JSON.
    pub(super) output: Option<OutputFormat>,
}

/// JSON is wanted. A model may still write something else, or put the JSON into a Markdown fence.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct OutputFormat {
    /// JSON Schema of the answer; any JSON when unset.
    pub(super) schema: Option<Value>,
}

/// A piece of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Chunk {
    /// Text, to be shown as it comes.
    Token(String),
    /// A tool to call once the stream has ended.
    Call(ToolCall),
    /// The answer is not whole: it reached the most tokens it may have.
    Truncated,
    /// What the answer cost, at most once and at its end; not every provider says.
    Usage(Usage),
}

/// Tokens that were counted by the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Of the request.
    pub(super) input: u64,
    /// Of the answer.
    pub(super) output: u64,
}

/// A language model.
#[async_trait]
pub(super) trait Model: Send + Sync {
    /// Answers the last message of the conversation. Dropping the stream ends the request.
    fn answer(&self, request: Request) -> BoxStream<'static, Result<Chunk, ModelError>>;

    /// Names a conversation after its first message: at most 60 characters, one line. A model that does not answer
    /// well within 10 s is not waited for: the name is then the beginning of the message.
    async fn title(&self, first: &str) -> String {
        title::ask(|request| self.answer(request), first).await
    }
}

/// Turns text into a vector that is near those of texts with a similar meaning.
#[async_trait]
pub(super) trait Embedder: Send + Sync {
    /// The vector of `text`; all vectors of one model have the same length.
    ///
    /// # Errors
    /// As for an answer.
    async fn embed(&self, text: &str) -> Result<Vec<f32>, ModelError>;
}

/// The model `reference` names; `credentials` finds API keys and addresses by name, for example `OPENAI_API_KEY`.
/// `http` is the process's own: it is cheap to clone, and shares connections.
///
/// # Errors
/// Why it cannot be served, as a sentence for `/readyz`.
pub(super) fn open(reference: &ModelRef, _credentials: &Lookup, _http: &Http) -> Result<Arc<dyn Model>, String> {
    match reference.provider.as_str() {
        "stub" => Ok(Arc::new(Stub)),
        other => Err(format!("model type `{other}` is not supported by this runtime yet; use `stub`")),
    }
}

/// The embedding model `reference` names, as [`open`] does for one that answers.
///
/// # Errors
/// Why it cannot be used.
pub(super) fn open_embedder(
    reference: &ModelRef,
    _credentials: &Lookup,
    _http: &Http,
) -> Result<Arc<dyn Embedder>, String> {
    Err(format!("embedding provider `{}` is not supported by this runtime yet", reference.provider))
}
