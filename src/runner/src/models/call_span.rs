//! Span of one request to a model.
//!
//! A model of a chain has a span of its own. Retries of its connection are events of it.

use std::time::Instant;

use serde_json::{Map, Value};
use telemetry::semconv::{
    EVENT_FALLBACK, GEN_AI_OPERATION_NAME, GEN_AI_PROVIDER_NAME, GEN_AI_REQUEST_MAX_TOKENS, GEN_AI_REQUEST_MODEL,
    GEN_AI_REQUEST_TEMPERATURE, GEN_AI_REQUEST_TOP_K, GEN_AI_REQUEST_TOP_P, GEN_AI_RESPONSE_FINISH_REASONS,
    GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK,
};
use telemetry::{AttributeValue, SpanKind};
use url::Url;

use super::captured::CapturedAnswer;
use super::generation::Generation;
use super::{Chunk, ModelError, ModelErrorKind, ModelRequest, Usage};
use crate::traces::{ActiveSpan, TraceScope};

/// Domains of vendors of models, which get no context of traces.
const VENDORS: [&str; 34] = [
    "aliyuncs.com",
    "amazonaws.com",
    "amazonaws.com.cn",
    "anthropic.com",
    "anyscale.com",
    "azure.cn",
    "azure.com",
    "azure.us",
    "baseten.co",
    "bigmodel.cn",
    "cerebras.ai",
    "cohere.ai",
    "cohere.com",
    "databricks.com",
    "deepinfra.com",
    "deepseek.com",
    "fireworks.ai",
    "googleapis.com",
    "groq.com",
    "huggingface.co",
    "microsoft.com",
    "mistral.ai",
    "moonshot.ai",
    "nvidia.com",
    "ollama.com",
    "openai.com",
    "openrouter.ai",
    "perplexity.ai",
    "replicate.com",
    "sambanova.ai",
    "together.ai",
    "together.xyz",
    "volces.com",
    "x.ai",
];

/// Span of one request to a model, from the request to the end of its answer.
pub(super) struct CallSpan {
    span: ActiveSpan,
    began: Instant,
    /// Set if another model can answer where this one fails.
    has_fallback: bool,
    /// Set if the model uses the caller's own key. If that is refused, no fallback is tried.
    needs_key: bool,
    has_begun: bool,
    has_calls: bool,
    is_truncated: bool,
    /// Answer so far, if content is captured.
    answer: Option<Box<CapturedAnswer>>,
}

impl CallSpan {
    /// Begins the span of a request to the model of this id, with the config of every request and the usual name of its provider.
    pub(super) fn begin(
        id: &str,
        config: &Map<String, Value>,
        provider: &'static str,
        needs_key: bool,
        request: &ModelRequest,
    ) -> Self {
        let span = request.account.trace().begin(format!("chat {id}"), SpanKind::Client);
        if span.is_recorded() {
            describe(&span, Generation::new(id, config, &request.config), provider);
        }
        span.scope().capture_request(request);
        let answer = CapturedAnswer::begin(span.scope());
        Self {
            span,
            began: Instant::now(),
            has_fallback: request.has_fallback,
            needs_key,
            has_begun: false,
            has_calls: false,
            is_truncated: false,
            answer,
        }
    }

    /// Returns the scope of what the request causes.
    pub(super) fn scope(&self) -> &TraceScope {
        self.span.scope()
    }

    /// Records a piece of the answer, or its end.
    pub(super) fn observe(&mut self, chunk: Option<&Result<Chunk, ModelError>>) {
        match chunk {
            Some(Ok(Chunk::Token(text))) => {
                self.first();
                if let Some(answer) = &mut self.answer {
                    answer.add_text(text);
                }
            }
            Some(Ok(Chunk::Call(call))) => {
                self.first();
                self.has_calls = true;
                if let Some(answer) = &mut self.answer {
                    answer.add_call(call);
                }
            }
            Some(Ok(Chunk::Truncated)) => self.is_truncated = true,
            Some(Ok(Chunk::Answerer(_) | Chunk::Usage(_))) | None => {}
            Some(Err(error)) => {
                self.span.fail(error.word());
                let is_of_caller = self.needs_key && error.kind == ModelErrorKind::Refused;
                if self.has_fallback && !self.has_begun && error.is_of_model && !is_of_caller {
                    self.scope().event(EVENT_FALLBACK, Vec::new());
                }
            }
        }
    }

    /// Says what the request used, and whether it was answered to the end.
    pub(super) fn end(&self, usage: &Usage, is_answered: bool) {
        self.scope().set_usage(usage);
        let reason = match (self.is_truncated, self.has_calls) {
            (true, _) => "length",
            (false, true) => "tool_calls",
            (false, false) => "stop",
        };
        if let Some(answer) = &self.answer {
            let of_message = if reason == "tool_calls" { "tool_call" } else { reason };
            answer.end(self.scope(), if is_answered { of_message } else { "error" });
        }
        if is_answered {
            self.span.set(GEN_AI_RESPONSE_FINISH_REASONS, AttributeValue::Texts(vec![reason.to_owned()]));
            self.span.succeed();
        }
    }

    fn first(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.span.set(GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, self.began.elapsed().as_secs_f64());
        }
    }
}

/// Sets the attributes that are known from the request.
fn describe(span: &ActiveSpan, mut settings: Generation, provider: &'static str) {
    span.set(GEN_AI_OPERATION_NAME, "chat");
    span.set(GEN_AI_PROVIDER_NAME, provider_name(provider));
    for (setting, attribute) in
        [("temperature", GEN_AI_REQUEST_TEMPERATURE), ("topP", GEN_AI_REQUEST_TOP_P), ("topK", GEN_AI_REQUEST_TOP_K)]
    {
        if let Some(number) = settings.remove(setting).and_then(|value| value.as_f64()) {
            span.set(attribute, number);
        }
    }
    if let Some(most) = settings.remove("maxOutputTokens").and_then(|value| value.as_i64()) {
        span.set(GEN_AI_REQUEST_MAX_TOKENS, most);
    }
    span.set(GEN_AI_REQUEST_MODEL, settings.model);
}

/// Returns the standard's name of a provider.
fn provider_name(provider: &'static str) -> &'static str {
    match provider {
        "gemini" => "gcp.gemini",
        "gemini-vertex" | "anthropic-vertex" => "gcp.vertex_ai",
        "azure-openai" => "azure.ai.openai",
        "bedrock" => "aws.bedrock",
        other => other,
    }
}

/// Reports whether a server of models gets the context of traces: each one but those of vendors.
pub(super) fn gets_context(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    !VENDORS.iter().any(|vendor| host.strip_suffix(vendor).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_get_no_context() {
        for (url, expected) in [
            ("https://api.openai.com/v1", false),
            ("https://eu.api.openai.com/v1", false),
            ("https://x.openai.azure.com", false),
            ("https://bedrock-runtime.eu-central-1.amazonaws.com", false),
            ("https://bedrock-runtime.cn-north-1.amazonaws.com.cn", false),
            ("https://x.openai.azure.us", false),
            ("https://europe-west1-aiplatform.googleapis.com", false),
            ("https://API.ANTHROPIC.com./v1", false),
            ("http://vllm.models:8000/v1", true),
            ("http://localhost:11434", true),
            ("https://notopenai.com", true),
            ("https://openai.com.example", true),
        ] {
            assert_eq!(gets_context(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
