//! Language models: one interface to all providers.
//!
//! Models are stateless: each call sends the whole conversation, so any replica can answer. Answers are streamed: text
//! as it arrives, and tool calls. The runtime executes the calls, appends their results to the conversation and calls
//! the model again.
//!
//! The clients of the providers are implemented here and are small. Crates that join many providers keep the body of a
//! failed response in their errors, ignore `Retry-After` and set no bound to the size of a response; these clients do
//! none of that.

mod anthropic;
mod calls;
mod credentials;
mod endpoint;
mod error;
mod frames;
mod gemini;
mod generation;
mod http;
pub(crate) mod message;
mod ollama;
mod openai;
mod refusal;
mod remote;
mod stub;
mod title;
mod transcript;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use crds::provider;
use futures::stream::BoxStream;
use serde_json::{Map, Value};

use super::Lookup;
use anthropic::Anthropic;
pub(super) use credentials::directory;
pub(super) use error::ModelError;
#[cfg(test)]
pub(super) use error::ModelErrorKind;
use gemini::Gemini;
pub(super) use http::Http;
pub(super) use message::{Message, Part, Thought, ToolCall, text_of};
use ollama::{Ollama, OllamaEmbedder};
use openai::OpenAi;
use remote::Remote;
use stub::Stub;

/// Reference to a model by provider and id, with its connection settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ModelRef {
    /// Provider, for example `stub`.
    pub(super) provider: String,
    /// Id at the provider.
    pub(super) id: String,
    /// Base URL of the provider's API; its public address when unset.
    pub(super) base_url: Option<String>,
    /// Region, for providers with one public address per region.
    pub(super) region: Option<String>,
    /// Names of credentials that were declared for it. A single one is used when the provider's own name has no value.
    pub(super) credential_keys: Vec<String>,
    /// Generation config of every request, which the request may override.
    pub(super) config: Map<String, Value>,
}

impl ModelRef {
    /// Creates a reference to a model at the provider's public address, with its defaults.
    pub(super) fn new(provider: impl Into<String>, id: impl Into<String>) -> Self {
        Self { provider: provider.into(), id: id.into(), ..Self::default() }
    }
}

/// Declaration of a tool for a model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolSpec {
    /// Name by which the model calls the tool.
    pub(super) name: String,
    /// Purpose of the tool.
    pub(super) description: String,
    /// JSON Schema of the arguments; its type is `object`.
    pub(super) input_schema: Value,
}

/// Request to a model.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelRequest {
    /// System prompt.
    pub(super) system: Option<Arc<str>>,
    /// Conversation, oldest first.
    pub(super) messages: Vec<Arc<Message>>,
    /// Tools that the model may call.
    pub(super) tools: Arc<[ToolSpec]>,
    /// Generation config, over that of the [`ModelRef`]: `temperature`, `maxOutputTokens`, `topP`, `topK` and
    /// `stopSequences` mean the same for every provider, `version` selects another model of the provider, and all other
    /// settings are passed on under the provider's own names.
    pub(super) config: Arc<Map<String, Value>>,
    /// Set when the answer must be JSON.
    pub(super) output: Option<OutputFormat>,
}

/// Request for JSON. A model may still write something else, or put the JSON into a Markdown code fence.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct OutputFormat {
    /// JSON Schema of the answer; any JSON when unset.
    pub(super) schema: Option<Value>,
}

/// Piece of a streamed answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Chunk {
    /// Text, to be shown as it arrives.
    Token(String),
    /// Tool call, to be executed once the stream has ended.
    Call(ToolCall),
    /// The answer is truncated: it reached its maximum number of tokens.
    Truncated,
    /// Token usage, at most once and at the end; not every provider reports it.
    Usage(Usage),
}

/// Token counts of the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Input tokens.
    pub(super) input: u64,
    /// Output tokens.
    pub(super) output: u64,
}

/// Language model.
#[async_trait]
pub(super) trait Model: Send + Sync {
    /// Answers the last message of the conversation. Dropping the stream cancels the request.
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>>;

    /// Generates a title for a conversation from its first message: at most 60 characters, one line. After 10 s, or
    /// without a usable answer, the title is the beginning of the message.
    async fn title(&self, first: &str) -> String {
        title::request_title(|request| self.respond(request), first).await
    }
}

/// Embedding model: maps text to a vector, near those of texts with a similar meaning.
#[async_trait]
pub(super) trait Embedder: Send + Sync {
    /// Returns the vector of `text`; all vectors of one model have the same dimension.
    ///
    /// # Errors
    /// The same as for an answer.
    async fn embed(&self, text: &str) -> Result<Vec<f32>, ModelError>;
}

/// Creates the client of the model in `reference`; `credentials` looks up API keys and base URLs by name, for example
/// `OPENAI_API_KEY`. `http` is the client of the process: clones are cheap and share its connections.
///
/// # Errors
/// The reason why it cannot be served, as a sentence for `/readyz`.
pub(super) fn open(reference: &ModelRef, credentials: &Lookup, http: &Http) -> Result<Arc<dyn Model>, String> {
    Ok(match reference.provider.as_str() {
        "stub" => Arc::new(Stub),
        "openai" => Arc::new(Remote::new(OpenAi::new(reference, credentials)?, http)),
        "anthropic" => Arc::new(Remote::new(Anthropic::new(reference, credentials)?, http)),
        "gemini" | "googleai" | "google" => Arc::new(Remote::new(Gemini::new(reference, credentials)?, http)),
        "ollama" => Arc::new(Remote::new(Ollama::new(reference, credentials)?, http)),
        other => return Err(provider::unknown(other)),
    })
}

/// Creates the client of the embedding model in `reference`, like [`open`].
///
/// # Errors
/// The reason why it cannot be used.
pub(super) fn open_embedder(
    reference: &ModelRef,
    credentials: &Lookup,
    http: &Http,
) -> Result<Arc<dyn Embedder>, String> {
    match reference.provider.as_str() {
        "ollama" => Ok(Arc::new(OllamaEmbedder::new(reference, credentials, http)?)),
        other => Err(format!("unknown embedding provider `{other}`; use ollama")),
    }
}
