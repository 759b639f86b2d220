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
mod authorizer;
mod azure;
mod bedrock;
mod call_span;
mod calls;
mod captured;
mod choice;
mod contract;
mod counted;
mod credential_cache;
mod credential_server;
mod credentials;
mod endpoint;
mod error;
mod fallback;
mod frames;
mod gemini;
mod generation;
mod http;
pub(crate) mod message;
mod model;
mod ollama;
mod openai;
mod output_limit;
mod refusal;
mod refused_schemas;
mod remote;
mod request;
mod stub;
mod title;
mod transcript;
mod vertex;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crds::provider;

use anthropic::Anthropic;
use azure::AzureOpenAi;
use bedrock::Bedrock;
pub(super) use contract::{DefaultModel, Fallback, FallbackSources, Plugin, open_chain};
use counted::{CountedEmbedder, CountedModel};
pub(super) use credentials::{Credentials, directory};
pub(super) use error::{ModelError, ModelErrorKind};
use gemini::Gemini;
pub(super) use http::Http;
pub(super) use message::{Message, Part, Thought, ToolCall, text_of};
pub(super) use model::{Embedder, Model};
use ollama::{Ollama, OllamaEmbedder};
use openai::OpenAi;
use remote::{Connection, Remote};
pub(super) use request::{Answerer, Chunk, ModelRef, ModelRequest, OutputFormat, ToolSpec, Usage};
use stub::Stub;
use vertex::{AnthropicVertex, GeminiVertex};

/// Creates the client of the model in `reference`; `credentials` looks up API keys and base URLs by name, for example
/// `OPENAI_API_KEY`. `http` is the client of the process: clones are cheap and share its connections.
///
/// # Errors
/// The reason why it cannot be served, as a sentence for `/readyz`.
pub(super) fn open(reference: &ModelRef, credentials: &Credentials<'_>, http: &Http) -> Result<Arc<dyn Model>, String> {
    let Some(provider) = provider::provider(&reference.provider) else {
        return Err(provider::unknown(&reference.provider));
    };
    if let Some(secrets) = &http.secrets {
        secrets.add(credentials::secrets_of(reference, provider, credentials));
    }
    let connection = || Connection::new(reference, credentials, http);
    let model: Arc<dyn Model> = match *provider {
        provider::OPENAI => Arc::new(Remote::new(OpenAi::new(reference, credentials)?, connection()?)),
        provider::ANTHROPIC => Arc::new(Remote::new(Anthropic::new(reference, credentials)?, connection()?)),
        provider::GEMINI => Arc::new(Remote::new(Gemini::new(reference, credentials)?, connection()?)),
        provider::OLLAMA => Arc::new(Remote::new(Ollama::new(reference, credentials)?, connection()?)),
        provider::AZURE_OPENAI => Arc::new(Remote::new(AzureOpenAi::new(reference, credentials, http)?, connection()?)),
        provider::GEMINI_VERTEX if !reference.id.starts_with("claude") => {
            Arc::new(Remote::new(GeminiVertex::new(reference, credentials, http)?, connection()?))
        }
        provider::GEMINI_VERTEX | provider::ANTHROPIC_VERTEX => {
            Arc::new(Remote::new(AnthropicVertex::new(reference, credentials, http)?, connection()?))
        }
        provider::BEDROCK => Arc::new(Remote::new(Bedrock::new(reference, credentials, http)?, connection()?)),
        _ => Arc::new(Stub),
    };
    Ok(Arc::new(CountedModel {
        model,
        provider: provider.names.first().copied().unwrap_or_default(),
        name: format!("{}/{}", reference.provider, reference.id).into(),
        id: reference.id.as_str().into(),
        config: reference.config.clone(),
        has_own_titles: *provider == provider::STUB,
        ledger: http.usage.clone(),
    }))
}

/// Returns the names of these models, each once.
pub(super) fn answerer_names(answerers: &[Answerer]) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = Vec::new();
    for answerer in answerers {
        if !names.contains(&answerer.model) {
            names.push(answerer.model.clone());
        }
    }
    names
}

/// Creates the client of the embedding model in `reference`, like [`open`].
///
/// # Errors
/// The reason why it cannot be used.
pub(super) fn open_embedder(
    reference: &ModelRef,
    credentials: &Credentials<'_>,
    http: &Http,
) -> Result<Arc<dyn Embedder>, String> {
    match reference.provider.as_str() {
        "ollama" => Ok(Arc::new(CountedEmbedder {
            embedder: OllamaEmbedder::new(reference, credentials, http)?,
            name: format!("{}/{}", reference.provider, reference.id).into(),
            id: reference.id.as_str().into(),
            ledger: http.usage.clone(),
        })),
        other => Err(format!("unknown embedding provider `{other}`; use ollama")),
    }
}
