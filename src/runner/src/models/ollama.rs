//! Client of Ollama's API: chat, streamed as one JSON text per line, and embeddings.
//!
//! Source: <https://github.com/ollama/ollama/blob/main/docs/api.md>.

use std::collections::VecDeque;

use crds::provider;
use dotprompt::Part;
use futures::TryStreamExt;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use telemetry::SpanKind;
use telemetry::semconv::{GEN_AI_OPERATION_NAME, GEN_AI_PROVIDER_NAME, GEN_AI_REQUEST_MODEL};

use super::{
    Chunk, Credentials, ModelRef, ModelRequest, Usage,
    call_span::gets_context,
    calls::{object_or_empty, tool_call_chunk},
    endpoint::{ModelEndpoint, ProviderDefaults},
    error::ModelError,
    frames::{self, Frames},
    http::{Http, ProviderRequest, Timeouts},
    openai::functions,
    remote::{Protocol, Reader},
    text_of,
    transcript::{Media, TranscriptEntry, transcript_entries, unsupported_media},
};
use crate::{caller::CallerKey, traces::TraceScope};

const PROVIDER: ProviderDefaults =
    ProviderDefaults { provider: provider::OLLAMA, public: "http://localhost:11434", regional: None };

/// Settings that are fields of the request instead of `options`.
const TOP_LEVEL_SETTINGS: [(&str, &str); 4] =
    [("think", "think"), ("keepAlive", "keep_alive"), ("keep_alive", "keep_alive"), ("truncate", "truncate")];

/// Model served by Ollama.
pub(super) struct Ollama(ModelEndpoint);

impl Ollama {
    /// Creates the client of the model in `reference`.
    ///
    /// # Errors
    /// The setting that is missing or invalid.
    pub(super) fn new(reference: &ModelRef, credentials: &Credentials<'_>) -> Result<Self, String> {
        ModelEndpoint::find(reference, credentials, &PROVIDER).map(Self)
    }

    fn call(&self, action: &str, body: Map<String, Value>, caller: Option<&CallerKey>) -> ProviderRequest {
        let mut headers = HeaderMap::new();
        if let Some(key) = self.0.key_header("Bearer ", caller) {
            headers.insert(AUTHORIZATION, key);
        }
        ProviderRequest::new(self.0.url(&["api", action]), headers, body)
    }
}

impl Protocol for Ollama {
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError> {
        let mut generation = self.0.generation(request);
        let choice = generation.take_call_choice(request)?;
        generation.take_cache()?;
        let mut body = Map::new();
        for (ours, theirs) in TOP_LEVEL_SETTINGS {
            body.extend(generation.remove(ours).map(|value| (theirs.to_owned(), value)));
        }
        body.insert("model".into(), generation.model.as_str().into());
        let options = generation.into_values(&[("maxOutputTokens", "num_predict"), ("stopSequences", "stop")], true);
        if !options.is_empty() {
            body.insert("options".into(), options.into());
        }
        let mut messages = messages(request)?;
        // The API has no setting for it.
        messages.extend(choice.words().map(|words| json!({ "role": "system", "content": words })));
        body.insert("messages".into(), messages.into());
        body.insert("stream".into(), true.into());
        if !request.tools.is_empty() {
            body.insert("tools".into(), functions(&request.tools));
        }
        if let Some(output) = &request.output {
            body.insert("format".into(), output.schema.clone().unwrap_or_else(|| "json".into()));
        }
        Ok(self.call("chat", body, request.key.as_ref()))
    }

    fn split(&self, bytes: Frames) -> Frames {
        frames::lines(bytes)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(OllamaReader::default())
    }
}

fn messages(request: &ModelRequest) -> Result<Vec<Value>, ModelError> {
    let mut messages = Vec::new();
    messages.extend(request.system.as_deref().map(|text| json!({ "role": "system", "content": text })));
    for entry in transcript_entries(&request.messages) {
        match entry {
            TranscriptEntry::System(text) => messages.push(json!({ "role": "system", "content": text })),
            TranscriptEntry::User(parts) => {
                let mut message = json!({ "role": "user", "content": text_of(parts) });
                let images = parts.iter().filter_map(image).collect::<Result<Vec<_>, _>>()?;
                if !images.is_empty() {
                    message["images"] = images.into();
                }
                messages.push(message);
            }
            TranscriptEntry::Assistant(text, calls) => {
                let mut message = json!({ "role": "assistant", "content": text });
                if !calls.is_empty() {
                    let calls = calls
                        .into_iter()
                        .map(|call| json!({ "function": { "name": call.name, "arguments": object_or_empty(&call.arguments) } }));
                    message["tool_calls"] = calls.collect();
                }
                messages.push(message);
            }
            TranscriptEntry::Results(results) => messages.extend(
                results
                    .into_iter()
                    .map(|result| json!({ "role": "tool", "tool_name": result.name, "content": result.to_text() })),
            ),
        }
    }
    Ok(messages)
}

fn image(part: &Part) -> Option<Result<Value, ModelError>> {
    let Part::Media { url, content_type } = part else { return None };
    Some(match Media::read(url, content_type.as_deref()) {
        Ok(Media::Inline { data, .. }) => Ok(data.into()),
        Ok(Media::Remote { .. }) => Err(unsupported_media("Ollama fetches nothing; give the picture as a `data:` URL")),
        Err(error) => Err(error),
    })
}

/// Decoder state of one answer.
#[derive(Default)]
struct OllamaReader {
    calls: usize,
    usage: Usage,
    done: bool,
}

#[derive(Deserialize)]
struct OllamaLine {
    message: Option<OllamaMessage>,
    #[serde(default)]
    done: bool,
    done_reason: Option<String>,
    #[serde(default)]
    prompt_eval_count: u64,
    #[serde(default)]
    eval_count: u64,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct OllamaMessage {
    content: Option<String>,
    tool_calls: Option<Vec<Tool>>,
}

#[derive(Deserialize)]
struct Tool {
    #[serde(default)]
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: Value,
}

impl Reader for OllamaReader {
    fn read(&mut self, piece: &[u8], chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError> {
        let line: OllamaLine = serde_json::from_slice(piece).map_err(|_| ModelError::malformed())?;
        if line.error.is_some() {
            return Err(ModelError::reported());
        }
        if let Some(message) = line.message {
            chunks.extend(message.content.filter(|text| !text.is_empty()).map(Chunk::Token));
            for Tool { id, function } in message.tool_calls.into_iter().flatten() {
                self.calls += 1;
                if self.calls > 128 {
                    return Err(ModelError::too_large("128 calls of tools"));
                }
                chunks.push_back(tool_call_chunk(id, function.name, function.arguments, None)?);
            }
        }
        if line.done {
            self.done = true;
            self.usage = Usage::new(line.prompt_eval_count, line.eval_count);
            if line.done_reason.as_deref() == Some("length") {
                chunks.push_back(Chunk::Truncated);
            }
        }
        Ok(())
    }

    fn done(&self) -> bool {
        self.done
    }

    fn end(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError> {
        if !self.done {
            return Err(ModelError::broken_off());
        }
        chunks.push_back(Chunk::Usage(self.usage));
        Ok(())
    }
}

/// Embedding model served by Ollama.
pub(super) struct OllamaEmbedder {
    ollama: Ollama,
    http: Http,
}

/// Embedding of a text.
pub(super) struct EmbeddedText {
    /// Vector.
    pub(super) vector: Vec<f32>,
    /// Tokens, if the server reports them.
    pub(super) usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Embeddings {
    embeddings: Vec<Vec<f32>>,
    prompt_eval_count: Option<u64>,
}

impl OllamaEmbedder {
    /// Creates the client of the model in `reference`.
    ///
    /// # Errors
    /// The setting that is missing or invalid.
    pub(super) fn new(reference: &ModelRef, credentials: &Credentials<'_>, http: &Http) -> Result<Self, String> {
        Ok(Self { ollama: Ollama::new(reference, credentials)?, http: http.clone() })
    }

    /// Returns the vector of `text`. The request is a child of the span in `trace`.
    ///
    /// # Errors
    /// The same as for an answer.
    pub(super) async fn embed(&self, text: &str, trace: &TraceScope) -> Result<EmbeddedText, ModelError> {
        let span = trace.begin(format!("embeddings {}", self.ollama.0.model()), SpanKind::Client);
        span.set(GEN_AI_OPERATION_NAME, "embeddings");
        span.set(GEN_AI_PROVIDER_NAME, "ollama");
        span.set(GEN_AI_REQUEST_MODEL, self.ollama.0.model().to_owned());
        let embedded = self.vector(text, span.scope()).await;
        match &embedded {
            Ok(_) => span.succeed(),
            Err(error) => span.fail(error.word()),
        }
        embedded
    }

    async fn vector(&self, text: &str, trace: &TraceScope) -> Result<EmbeddedText, ModelError> {
        let body =
            Map::from_iter([("model".to_owned(), self.ollama.0.model().into()), ("input".to_owned(), text.into())]);
        let mut call = self.ollama.call("embed", body, None);
        if gets_context(&call.url) {
            call.headers.extend(trace.headers());
        }
        let timeouts = Timeouts::new(None, false);
        let read = || async {
            let pieces = frames::bytes(self.http.send(&call, timeouts.first).await?, timeouts);
            pieces
                .try_fold(Vec::new(), |mut all, piece| async move {
                    all.extend_from_slice(&piece);
                    Ok(all)
                })
                .await
        };
        let bytes = self.http.retrying(false, trace, read).await?;
        let found: Embeddings = serde_json::from_slice(&bytes).map_err(|_| ModelError::malformed())?;
        let vector = found.embeddings.into_iter().next().filter(|vector| !vector.is_empty());
        let usage = found.prompt_eval_count.map(|tokens| Usage::new(tokens, 0).checked()).transpose()?;
        Ok(EmbeddedText { vector: vector.ok_or_else(ModelError::malformed)?, usage })
    }
}
