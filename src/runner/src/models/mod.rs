//! What the runtime asks of a language model, whoever provides it.
//!
//! A model sees the whole conversation on every call and keeps nothing, so any replica can answer. It streams: text as
//! it comes, and the tools it wants called. The runtime calls them, adds their results to the conversation and asks
//! again.
//!
//! The providers' clients are our own and small. Crates that join many providers keep the body of a failed answer in
//! their errors, do not obey `Retry-After` and set no bound to what a provider may send; here all three are promised.

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

/// A model by provider and name, and how to reach it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ModelRef {
    /// Provider, for example `stub`.
    pub(super) provider: String,
    /// Name at the provider.
    pub(super) id: String,
    /// Where the provider's API is; its public address when unset.
    pub(super) base_url: Option<String>,
    /// Which of the provider's public addresses, where it has one for each region.
    pub(super) region: Option<String>,
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
pub(super) struct ModelRequest {
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
    fn respond(&self, request: ModelRequest) -> BoxStream<'static, Result<Chunk, ModelError>>;

    /// Names a conversation after its first message: at most 60 characters, one line. A model that does not answer
    /// well within 10 s is not waited for: the name is then the beginning of the message.
    async fn title(&self, first: &str) -> String {
        title::request_title(|request| self.respond(request), first).await
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

/// The embedding model `reference` names, as [`open`] does for one that answers.
///
/// # Errors
/// Why it cannot be used.
pub(super) fn open_embedder(
    reference: &ModelRef,
    credentials: &Lookup,
    http: &Http,
) -> Result<Arc<dyn Embedder>, String> {
    match reference.provider.as_str() {
        "ollama" => Ok(Arc::new(OllamaEmbedder::new(reference, credentials, http)?)),
        other => Err(format!("there is no embedding provider `{other}`; use ollama")),
    }
}
