//! Client of OpenAI's Chat Completions API, which many other servers implement.
//!
//! With the base URL of another server it uses the older names that such servers know: `max_tokens` and `top_k`.
//!
//! Source: <https://platform.openai.com/docs/api-reference/chat>.

use std::collections::VecDeque;

use crds::provider;
use dotprompt::Part;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Chunk, Credentials, ModelRef, ModelRequest, ToolCall, ToolSpec, Usage,
    calls::Calls,
    choice::CallChoice,
    endpoint::{ModelEndpoint, ProviderDefaults},
    error::ModelError,
    http::ProviderRequest,
    remote::{Protocol, Reader},
    text_of,
    transcript::{Media, TranscriptEntry, json_instruction, transcript_entries},
};

const PROVIDER: ProviderDefaults = ProviderDefaults {
    provider: provider::OPENAI,
    public: "https://api.openai.com/v1",
    regional: Some(|region| format!("https://{region}.api.openai.com/v1")),
};

/// Model behind Chat Completions.
pub(super) struct OpenAi(ModelEndpoint);

impl OpenAi {
    /// Creates the client of the model in `reference`.
    ///
    /// # Errors
    /// The setting that is missing or invalid.
    pub(super) fn new(reference: &ModelRef, credentials: &Credentials<'_>) -> Result<Self, String> {
        ModelEndpoint::find(reference, credentials, &PROVIDER).map(Self)
    }
}

impl Protocol for OpenAi {
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError> {
        let (_, body) = chat_body(&self.0, request, is_compatible(&self.0))?;
        let mut headers = HeaderMap::new();
        if let Some(key) = self.0.key_header("Bearer ", request.key.as_ref()) {
            headers.insert(AUTHORIZATION, key);
        }
        Ok(ProviderRequest::new(self.0.url(&["chat", "completions"]), headers, body))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(OpenAiReader::default())
    }
}

/// Reports whether another server is at the endpoint. OpenAI's own, which may be configured too, refuses the older names for newer models.
fn is_compatible(endpoint: &ModelEndpoint) -> bool {
    endpoint.custom_host().is_some_and(|host| host != "api.openai.com" && !host.ends_with(".api.openai.com"))
}

/// Encodes `request` for the model at `endpoint` and returns the model's id and the body. `is_compatible`: the server is
/// another one that speaks this API, by its older names.
pub(super) fn chat_body(
    endpoint: &ModelEndpoint,
    request: &ModelRequest,
    is_compatible: bool,
) -> Result<(String, Map<String, Value>), ModelError> {
    let mut generation = endpoint.generation(request);
    let model = generation.model.clone();
    let own_choice = generation.take_own_call_choice();
    let choice = generation.take_call_choice(request)?;
    // The API keeps what it has read by itself.
    generation.take_cache()?;
    let top_k = generation.remove("topK");
    let limit = if is_compatible { "max_tokens" } else { "max_completion_tokens" };
    let names = [("maxOutputTokens", limit), ("stopSequences", "stop")];
    let mut body = generation.into_values(&names, true);
    if let Some(top_k) = top_k.filter(|_| is_compatible) {
        body.insert("top_k".into(), top_k);
    }
    body.insert("model".into(), model.as_str().into());
    body.insert("messages".into(), messages(request)?.into());
    body.insert("stream".into(), true.into());
    body.insert("stream_options".into(), json!({ "include_usage": true }));
    if !request.tools.is_empty() {
        body.insert("tools".into(), functions(&request.tools));
    }
    let choice = match choice {
        CallChoice::Auto => None,
        CallChoice::None => Some(json!("none")),
        CallChoice::Required => Some(json!("required")),
        CallChoice::Tool(name) => Some(json!({ "type": "function", "function": { "name": name } })),
    };
    body.extend(own_choice.or(choice).map(|choice| ("tool_choice".to_owned(), choice)));
    if let Some(output) = &request.output {
        let format = match &output.schema {
            Some(schema) => {
                json!({ "type": "json_schema", "json_schema": { "name": "output", "schema": schema } })
            }
            None => json!({ "type": "json_object" }),
        };
        body.insert("response_format".into(), format);
    }
    Ok((model, body))
}

/// Encodes tool declarations; Ollama uses the same form.
pub(super) fn functions(tools: &[ToolSpec]) -> Value {
    let function = |tool: &ToolSpec| json!({ "name": tool.name, "description": tool.description, "parameters": tool.input_schema });
    tools.iter().map(|tool| json!({ "type": "function", "function": function(tool) })).collect()
}

fn messages(request: &ModelRequest) -> Result<Vec<Value>, ModelError> {
    let mut messages = Vec::new();
    let mut system = |text: &str| json!({ "role": "system", "content": text });
    messages.extend(request.system.as_deref().map(&mut system));
    // The API refuses `json_object` unless the conversation contains the word "JSON".
    let any_json = request.output.as_ref().filter(|output| output.schema.is_none());
    messages.extend(any_json.map(|output| system(&json_instruction(output))));
    for entry in transcript_entries(&request.messages) {
        match entry {
            TranscriptEntry::System(text) => messages.push(system(text)),
            TranscriptEntry::User(parts) => messages.push(json!({ "role": "user", "content": content(parts)? })),
            TranscriptEntry::Assistant(text, calls) => {
                let mut message = Map::from_iter([("role".to_owned(), json!("assistant"))]);
                if !text.is_empty() {
                    message.insert("content".into(), text.into());
                }
                if !calls.is_empty() {
                    message.insert("tool_calls".into(), calls.into_iter().map(tool_call).collect());
                }
                messages.push(message.into());
            }
            TranscriptEntry::Results(results) => messages.extend(
                results
                    .into_iter()
                    .map(|result| json!({ "role": "tool", "tool_call_id": result.id, "content": result.to_text() })),
            ),
        }
    }
    Ok(messages)
}

fn tool_call(call: &ToolCall) -> Value {
    let arguments = call.arguments.as_str().map_or_else(|| call.arguments.to_string(), str::to_owned);
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
}

fn content(parts: &[Part]) -> Result<Value, ModelError> {
    if parts.iter().all(|part| matches!(part, Part::Text(_))) {
        return Ok(text_of(parts).into());
    }
    let parts = parts.iter().map(|part| match part {
        Part::Text(text) => Ok(json!({ "type": "text", "text": text })),
        Part::Media { url, content_type } => Ok(match Media::read(url, content_type.as_deref())? {
            Media::Inline { type_, data } if !type_.starts_with("image/") => match type_.strip_prefix("audio/") {
                Some(format) => {
                    let format = if format == "mpeg" { "mp3" } else { format.trim_start_matches("x-") };
                    json!({ "type": "input_audio", "input_audio": { "data": data, "format": format } })
                }
                None => {
                    let file = json!({ "filename": "file", "file_data": format!("data:{type_};base64,{data}") });
                    json!({ "type": "file", "file": file })
                }
            },
            _ => json!({ "type": "image_url", "image_url": { "url": url } }),
        }),
    });
    parts.collect()
}

/// Decoder state of one answer.
#[derive(Default)]
pub(super) struct OpenAiReader {
    calls: Calls,
    usage: Option<Usage>,
    finished: bool,
    done: bool,
}

#[derive(Deserialize)]
struct OpenAiEvent {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<OpenAiUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Deserialize)]
struct CallPiece {
    /// Some servers leave it out and send each call in one piece.
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionPiece>,
}

#[derive(Deserialize)]
struct FunctionPiece {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Default, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl Reader for OpenAiReader {
    fn read(&mut self, piece: &[u8], chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError> {
        if piece.trim_ascii() == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let event: OpenAiEvent = serde_json::from_slice(piece).map_err(|_| ModelError::malformed())?;
        if event.error.is_some_and(|error| !error.is_null()) {
            return Err(ModelError::reported());
        }
        if let Some(tokens) = event.usage {
            let input = tokens.prompt_tokens_details.unwrap_or_default();
            let output = tokens.completion_tokens_details.unwrap_or_default();
            self.usage = Some(Usage {
                cache_read: input.cached_tokens.unwrap_or_default(),
                cache_write: input.cache_write_tokens.unwrap_or_default(),
                reasoning: output.reasoning_tokens.unwrap_or_default(),
                ..Usage::new(tokens.prompt_tokens, tokens.completion_tokens)
            });
        }
        let Some(Choice { delta, finish_reason }) = event.choices.into_iter().next() else { return Ok(()) };
        let delta = delta.unwrap_or_default();
        if delta.refusal.is_some_and(|text| !text.is_empty()) {
            return Err(ModelError::unsafe_content());
        }
        if let Some(text) = delta.content.filter(|text| !text.is_empty()) {
            chunks.push_back(Chunk::Token(text));
        }
        for piece in delta.tool_calls.into_iter().flatten() {
            self.call(piece)?;
        }
        match finish_reason.as_deref() {
            None => return Ok(()),
            Some("length") => chunks.push_back(Chunk::Truncated),
            Some("content_filter") => return Err(ModelError::unsafe_content()),
            Some(_) => {}
        }
        self.finished = true;
        Ok(())
    }

    fn done(&self) -> bool {
        self.done
    }

    fn end(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError> {
        if !self.finished {
            return Err(ModelError::broken_off());
        }
        self.calls.finish(chunks)?;
        chunks.extend(self.usage.map(Chunk::Usage));
        Ok(())
    }
}

impl OpenAiReader {
    fn call(&mut self, piece: CallPiece) -> Result<(), ModelError> {
        let FunctionPiece { name, arguments } = piece.function.unwrap_or(FunctionPiece { name: None, arguments: None });
        let (place, id) = (piece.index.unwrap_or_default(), piece.id.unwrap_or_default());
        let name = name.unwrap_or_default();
        // Some servers give all calls the index 0; then a new id with a name starts another call.
        let begins = match self.calls.id(place) {
            None => true,
            Some(known) => !name.is_empty() && (piece.index.is_none() || (!id.is_empty() && known != id)),
        };
        if begins {
            self.calls.begin(place, &id, &name)?;
        }
        self.calls.push_arguments(place, &arguments.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openai_gets_its_own_names_where_its_address_is_configured_too() {
        let credentials = |name: &str| (name == "OPENAI_API_KEY").then(|| "KEY".to_owned());
        for (base, expected) in [
            (None, false),
            (Some("https://api.openai.com/v1"), false),
            (Some("https://eu.api.openai.com/v1"), false),
            (Some("https://myapi.openai.com/v1"), true),
            (Some("http://vllm.models:8000/v1"), true),
        ] {
            let reference = ModelRef { base_url: base.map(str::to_owned), ..ModelRef::new("openai", "gpt-5") };
            let endpoint = ModelEndpoint::find(&reference, &credentials, &PROVIDER).unwrap();
            assert_eq!(is_compatible(&endpoint), expected, "{base:?}");
        }
    }
}
