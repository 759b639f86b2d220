//! Request to a model, and the pieces of its answer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use telemetry::semconv::{
    GEN_AI_USAGE_CACHE_CREATION, GEN_AI_USAGE_CACHE_READ, GEN_AI_USAGE_INPUT_TOKENS, GEN_AI_USAGE_OUTPUT_TOKENS,
    GEN_AI_USAGE_REASONING,
};

use super::error::ModelError;
use super::message::{Message, ToolCall};
use crate::{caller::CallerKey, tools::Tls, traces::TraceScope, usage::UsageAccount};

/// Reference to a model by provider and id, with its connection settings.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct ModelRef {
    /// Provider, for example `stub`.
    pub(crate) provider: String,
    /// Id at the provider.
    pub(crate) id: String,
    /// Base URL of the provider's API; its public address when unset.
    pub(crate) base_url: Option<String>,
    /// Region, for providers with one public address per region.
    pub(crate) region: Option<String>,
    /// Settings of the provider's protocol besides the base URL, by the names of `extraConfig`.
    pub(crate) settings: Map<String, Value>,
    /// Names of credentials that were declared for it. A single one is used when the provider's own name has no value.
    pub(crate) credential_keys: Vec<String>,
    /// Generation config of every request, which the request may override.
    pub(crate) config: Map<String, Value>,
    /// Headers of every request besides those of the protocol, with `$NAME` for [a variable](super::credentials::own_variable).
    pub(crate) headers: BTreeMap<String, String>,
    /// Verification of the provider's certificate, if not by the system's authorities.
    pub(crate) tls: Option<Tls>,
    /// Set when the caller's own key is sent.
    pub(crate) passthrough: bool,
    /// Longest silence of the provider, if it is not the default.
    pub(crate) timeout: Option<Duration>,
    /// Set when requests do not get the identity that the Pod has without any credentials.
    pub(crate) lacks_identity: bool,
}

impl fmt::Debug for ModelRef {
    /// Leaves out what may hold a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelRef").field("provider", &self.provider).field("id", &self.id).finish_non_exhaustive()
    }
}

impl ModelRef {
    /// Creates a reference to a model at the provider's public address, with its defaults.
    pub(crate) fn new(provider: impl Into<String>, id: impl Into<String>) -> Self {
        Self { provider: provider.into(), id: id.into(), ..Self::default() }
    }

    /// Returns the setting that has one of these names.
    pub(super) fn setting(&self, names: &[&str]) -> Option<&str> {
        let found = names.iter().find_map(|name| self.settings.get(*name))?;
        found.as_str().map(str::trim).filter(|text| !text.is_empty())
    }
}

/// Declaration of a tool for a model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolSpec {
    /// Name by which the model calls the tool.
    pub(crate) name: String,
    /// Purpose of the tool.
    pub(crate) description: String,
    /// JSON Schema of the arguments; its type is `object`.
    pub(crate) input_schema: Value,
}

/// Request to a model.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelRequest {
    /// System prompt.
    pub(crate) system: Option<Arc<str>>,
    /// Conversation, oldest first.
    pub(crate) messages: Vec<Arc<Message>>,
    /// Tools that the model may call.
    pub(crate) tools: Arc<[ToolSpec]>,
    /// Generation config, over that of the [`ModelRef`]: `temperature`, `maxOutputTokens`, `topP`, `topK`,
    /// `stopSequences`, `toolChoice` and `cache` mean the same for every provider, `version` selects another model of the
    /// provider, and all other settings are passed on under the provider's own names.
    pub(crate) config: Arc<Map<String, Value>>,
    /// Set when the answer must be JSON.
    pub(crate) output: Option<OutputFormat>,
    /// Key of the caller, for a provider that gets it.
    pub(crate) key: Option<CallerKey>,
    /// Fallback that has answered in this turn, by its name, and goes on.
    pub(crate) fallback: Option<Arc<str>>,
    /// Set when another model can answer instead: the provider is then given up sooner.
    pub(crate) has_fallback: bool,
    /// Caller that the tokens are counted for.
    pub(crate) account: UsageAccount,
}

/// Returns the approximate size of a request in bytes, for an estimate of its tokens.
pub(super) fn request_bytes(request: &ModelRequest) -> u64 {
    let system = request.system.as_ref().map_or(0, |text| text.len());
    let messages: usize = request.messages.iter().map(|message| message.bytes()).sum();
    let tool = |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.input_schema.to_string().len();
    let tools: usize = request.tools.iter().map(tool).sum();
    u64::try_from(system + messages + tools).unwrap_or(u64::MAX)
}

/// Request for JSON. A model may still write something else, or put the JSON into a Markdown code fence.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OutputFormat {
    /// JSON Schema of the answer; any JSON when unset.
    pub(crate) schema: Option<Value>,
}

/// Piece of a streamed answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Chunk {
    /// Model that answers, before everything else.
    Answerer(Answerer),
    /// Text, to be shown as it arrives.
    Token(String),
    /// Tool call, to be executed once the stream has ended.
    Call(ToolCall),
    /// The answer is truncated: it reached its maximum number of tokens.
    Truncated,
    /// Token usage, at most once and at the end; not every provider reports it.
    Usage(Usage),
}

/// Model that answered a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answerer {
    /// Provider and id, such as `openai/gpt-5`.
    pub(crate) model: Arc<str>,
    /// Set if it is not the first model.
    pub(crate) is_fallback: bool,
}

/// Token counts of the provider, in the same form for all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Input tokens, cached ones included.
    pub(crate) input: u64,
    /// Input tokens that were read from the provider's cache.
    pub(crate) cache_read: u64,
    /// Input tokens that were written to the provider's cache.
    pub(crate) cache_write: u64,
    /// Output tokens, those of reasoning included.
    pub(crate) output: u64,
    /// Output tokens of reasoning.
    pub(crate) reasoning: u64,
}

/// Largest count that a provider may report.
const MAX_TOKENS: u64 = 1_000_000_000;

impl Usage {
    /// Creates the counts of a provider that reports no more.
    pub(crate) fn new(input: u64, output: u64) -> Self {
        Self { input, output, ..Self::default() }
    }

    /// Adds the tokens of another request.
    pub(crate) fn add(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }

    /// Checks a provider's counts, and cuts a part that exceeds its whole.
    ///
    /// # Errors
    /// A count that no request can have.
    pub(super) fn checked(self) -> Result<Self, ModelError> {
        let Self { input, cache_read, cache_write, output, reasoning } = self;
        if [input, cache_read, cache_write, output, reasoning].iter().any(|count| *count > MAX_TOKENS) {
            return Err(ModelError::malformed());
        }
        let cache_read = cache_read.min(input);
        Ok(Self {
            cache_read,
            cache_write: cache_write.min(input - cache_read),
            reasoning: reasoning.min(output),
            ..self
        })
    }
}

impl TraceScope {
    /// Sets the attributes of the tokens that models used.
    pub(crate) fn set_usage(&self, usage: &Usage) {
        let Usage { input, cache_read, cache_write, output, reasoning } = *usage;
        self.set(GEN_AI_USAGE_INPUT_TOKENS, input);
        self.set(GEN_AI_USAGE_OUTPUT_TOKENS, output);
        for (name, tokens) in [
            (GEN_AI_USAGE_CACHE_READ, cache_read),
            (GEN_AI_USAGE_CACHE_CREATION, cache_write),
            (GEN_AI_USAGE_REASONING, reasoning),
        ] {
            if tokens > 0 {
                self.set(name, tokens);
            }
        }
    }
}
