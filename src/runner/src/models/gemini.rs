//! Client of Google's Gemini API.
//!
//! A tool call comes with a thought signature that the next request must send back, otherwise newer models refuse it.
//! JSON is requested by a setting, except together with tools, where most models refuse that setting: there it is
//! requested in the instructions.
//!
//! Source: <https://ai.google.dev/api/generate-content>.

use std::collections::VecDeque;

use crds::provider;
use dotprompt::Part;
use reqwest::header::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Chunk, Credentials, ModelRef, ModelRequest, Thought, ToolCall, Usage,
    calls::{object_or_empty, tool_call_chunk},
    choice::CallChoice,
    endpoint::{ModelEndpoint, ProviderDefaults},
    error::ModelError,
    http::ProviderRequest,
    remote::{Protocol, Reader},
    transcript::{Media, TranscriptEntry, instructions, json_instruction, transcript_entries},
};

const PROVIDER: ProviderDefaults = ProviderDefaults {
    provider: provider::GEMINI,
    public: "https://generativelanguage.googleapis.com",
    regional: None,
};

/// Settings that are fields of the request instead of the generation config.
const TOP_LEVEL_SETTINGS: [&str; 3] = ["safetySettings", "toolConfig", "cachedContent"];

/// Model behind `streamGenerateContent`.
pub(super) struct Gemini(ModelEndpoint);

impl Gemini {
    /// Creates the client of the model in `reference`.
    ///
    /// # Errors
    /// The setting that is missing or invalid.
    pub(super) fn new(reference: &ModelRef, credentials: &Credentials<'_>) -> Result<Self, String> {
        ModelEndpoint::find(reference, credentials, &PROVIDER).map(Self)
    }
}

impl Protocol for Gemini {
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError> {
        let (model, body) = generate_body(&self.0, request, CallIds::Sent)?;
        let mut headers = HeaderMap::new();
        if let Some(key) = self.0.key_header("", request.key.as_ref()) {
            headers.insert(HeaderName::from_static("x-goog-api-key"), key);
        }
        let (folder, name) = model.split_once('/').unwrap_or(("models", &model));
        let mut url = self.0.url(&["v1beta", folder, &format!("{name}:streamGenerateContent")]);
        url.query_pairs_mut().append_pair("alt", "sse");
        Ok(ProviderRequest::new(url, headers, body))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(GeminiReader::default())
    }
}

/// Choice whether calls and results have the id of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallIds {
    /// They have.
    Sent,
    /// Calls and results belong together by their order. Vertex AI refuses ids that it has not made.
    LeftOut,
}

/// Encodes `request` for the model at `endpoint` and returns the model's id and the body.
pub(super) fn generate_body(
    endpoint: &ModelEndpoint,
    request: &ModelRequest,
    ids: CallIds,
) -> Result<(String, Map<String, Value>), ModelError> {
    let mut generation = endpoint.generation(request);
    let choice = generation.take_call_choice(request)?;
    // The API keeps what it has read by itself.
    generation.take_cache()?;
    let mut body = Map::new();
    for name in TOP_LEVEL_SETTINGS {
        body.extend(generation.remove(name).map(|value| (name.to_owned(), value)));
    }
    let calling = match choice {
        CallChoice::Auto => None,
        CallChoice::None => Some(json!({ "mode": "NONE" })),
        CallChoice::Required => Some(json!({ "mode": "ANY" })),
        CallChoice::Tool(name) => Some(json!({ "mode": "ANY", "allowedFunctionNames": [name] })),
    };
    if let Some(calling) = calling {
        body.insert("toolConfig".into(), json!({ "functionCallingConfig": calling }));
    }
    let model = generation.model.clone();
    let mut config = generation.into_values(&[], false);
    let mut words = None;
    if let Some(output) = &request.output {
        if request.tools.is_empty() {
            config.insert("responseMimeType".into(), "application/json".into());
            config.extend(output.schema.iter().map(|schema| ("responseJsonSchema".to_owned(), schema.clone())));
        } else {
            words = Some(json_instruction(output));
        }
    }
    if !config.is_empty() {
        body.insert("generationConfig".into(), config.into());
    }
    if let Some(system) = instructions(request, words) {
        body.insert("systemInstruction".into(), json!({ "parts": [{ "text": system }] }));
    }
    body.insert("contents".into(), contents(request, ids)?.into());
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let schema = &tool.input_schema;
            json!({ "name": tool.name, "description": tool.description, "parametersJsonSchema": schema })
        });
        body.insert("tools".into(), json!([{ "functionDeclarations": tools.collect::<Value>() }]));
    }
    Ok((model, body))
}

fn contents(request: &ModelRequest, ids: CallIds) -> Result<Vec<Value>, ModelError> {
    let mut contents = Vec::new();
    for entry in transcript_entries(&request.messages) {
        let (role, parts) = match entry {
            TranscriptEntry::System(_) => continue,
            TranscriptEntry::User(parts) => ("user", parts.iter().map(part).collect::<Result<Vec<_>, _>>()?),
            TranscriptEntry::Assistant(text, calls) => {
                let text = (!text.is_empty()).then(|| json!({ "text": text }));
                ("model", text.into_iter().chain(calls.into_iter().map(|call| function_call(call, ids))).collect())
            }
            TranscriptEntry::Results(results) => {
                let results = results.into_iter().map(|result| {
                    let response = json!({ if result.failed { "error" } else { "output" }: result.text });
                    let mut part = json!({ "functionResponse": { "name": result.name, "response": response } });
                    if ids == CallIds::Sent {
                        part["functionResponse"]["id"] = result.id.into();
                    }
                    part
                });
                ("user", results.collect())
            }
        };
        // The API refuses an entry without parts.
        if !parts.is_empty() {
            contents.push(json!({ "role": role, "parts": parts }));
        }
    }
    Ok(contents)
}

fn function_call(call: &ToolCall, ids: CallIds) -> Value {
    let mut part = json!({ "functionCall": { "name": call.name, "args": object_or_empty(&call.arguments) } });
    if ids == CallIds::Sent {
        part["functionCall"]["id"] = call.id.as_str().into();
    }
    if let Some(Thought::Signature(signature)) = &call.thought {
        part["thoughtSignature"] = signature.as_str().into();
    }
    part
}

fn part(part: &Part) -> Result<Value, ModelError> {
    Ok(match part {
        Part::Text(text) => json!({ "text": text }),
        Part::Media { url, content_type } => match Media::read(url, content_type.as_deref())? {
            Media::Inline { type_, data } => json!({ "inlineData": { "mimeType": type_, "data": data } }),
            Media::Remote { type_: None, url } => json!({ "fileData": { "fileUri": url } }),
            Media::Remote { type_, url } => json!({ "fileData": { "mimeType": type_, "fileUri": url } }),
        },
    })
}

/// Decoder state of one answer.
#[derive(Default)]
pub(super) struct GeminiReader {
    usage: Option<Usage>,
    calls: usize,
    finished: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiEvent {
    #[serde(default)]
    candidates: Vec<Candidate>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<GeminiUsage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    content: Option<Content>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    parts: Vec<GeminiPart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiPart {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    function_call: Option<Function>,
    thought_signature: Option<String>,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    id: String,
    name: String,
    #[serde(default)]
    args: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiUsage {
    #[serde(default)]
    prompt_token_count: u64,
    /// Tokens of the results of tools that the provider runs itself.
    #[serde(default)]
    tool_use_prompt_token_count: u64,
    #[serde(default)]
    candidates_token_count: u64,
    #[serde(default)]
    thoughts_token_count: u64,
    #[serde(default)]
    cached_content_token_count: u64,
}

impl Reader for GeminiReader {
    fn read(&mut self, piece: &[u8], chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError> {
        let event: GeminiEvent = serde_json::from_slice(piece).map_err(|_| ModelError::malformed())?;
        if event.error.is_some() {
            return Err(ModelError::reported());
        }
        if event.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            return Err(ModelError::unsafe_content());
        }
        if let Some(tokens) = event.usage_metadata {
            let output = tokens.candidates_token_count.saturating_add(tokens.thoughts_token_count);
            let input = tokens.prompt_token_count.saturating_add(tokens.tool_use_prompt_token_count);
            self.usage = Some(Usage {
                cache_read: tokens.cached_content_token_count,
                reasoning: tokens.thoughts_token_count,
                ..Usage::new(input, output)
            });
        }
        let Some(candidate) = event.candidates.into_iter().next() else { return Ok(()) };
        for piece in candidate.content.map(|content| content.parts).unwrap_or_default() {
            if let Some(text) = piece.text.filter(|text| !piece.thought && !text.is_empty()) {
                chunks.push_back(Chunk::Token(text));
            }
            if let Some(Function { id, name, args }) = piece.function_call {
                self.calls += 1;
                if self.calls > 128 {
                    return Err(ModelError::too_large("128 calls of tools"));
                }
                chunks.push_back(tool_call_chunk(
                    id,
                    name,
                    object_or_empty(&args),
                    piece.thought_signature.map(Thought::Signature),
                )?);
            }
        }
        match candidate.finish_reason.as_deref() {
            None => return Ok(()),
            Some("MAX_TOKENS") => chunks.push_back(Chunk::Truncated),
            Some(
                "SAFETY"
                | "RECITATION"
                | "BLOCKLIST"
                | "PROHIBITED_CONTENT"
                | "SPII"
                | "LANGUAGE"
                | "IMAGE_SAFETY"
                | "IMAGE_PROHIBITED_CONTENT"
                | "IMAGE_RECITATION",
            ) => return Err(ModelError::unsafe_content()),
            Some(
                "MALFORMED_FUNCTION_CALL"
                | "MALFORMED_RESPONSE"
                | "MISSING_THOUGHT_SIGNATURE"
                | "TOO_MANY_TOOL_CALLS"
                | "UNEXPECTED_TOOL_CALL",
            ) => return Err(ModelError::malformed()),
            Some(_) => {}
        }
        self.finished = true;
        Ok(())
    }

    fn done(&self) -> bool {
        false
    }

    fn end(&mut self, chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError> {
        if !self.finished {
            return Err(ModelError::broken_off());
        }
        chunks.extend(self.usage.map(Chunk::Usage));
        Ok(())
    }
}
