//! Client of Anthropic's Messages API.
//!
//! The API has no role for instructions within the conversation, so all of them go to its `system`; JSON without a schema is
//! requested there, too. Thinking blocks that precede a tool call are sent back with the
//! call, otherwise the API refuses the tool's result.
//!
//! Sources: <https://docs.anthropic.com/en/api/messages-streaming>,
//! <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking>,
//! <https://docs.anthropic.com/en/docs/build-with-claude/structured-outputs>.

pub(super) mod reader;

use crds::provider;
use dotprompt::Part;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use super::{
    Credentials, ModelRef, ModelRequest, Thought,
    calls::object_or_empty,
    choice::{CacheLife, CallChoice},
    endpoint::{ModelEndpoint, ProviderDefaults},
    error::ModelError,
    http::ProviderRequest,
    remote::{Protocol, Reader},
    transcript::{Media, TranscriptEntry, instructions, json_output, transcript_entries},
};
use reader::AnthropicReader;

const PROVIDER: ProviderDefaults =
    ProviderDefaults { provider: provider::ANTHROPIC, public: "https://api.anthropic.com", regional: None };

/// Version of the API.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Header of an API key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Credential that is sent as a bearer token instead.
const TOKEN: &str = "ANTHROPIC_AUTH_TOKEN";

/// Type of a mark up to which the provider keeps what it has read.
const CACHED: &str = "ephemeral";

/// Default of `max_tokens`, which the API requires.
const MAX_TOKENS: u64 = 8192;

/// Model behind the Messages API.
pub(super) struct Anthropic(ModelEndpoint);

impl Anthropic {
    /// Creates the client of the model in `reference`.
    ///
    /// # Errors
    /// The setting that is missing or invalid.
    pub(super) fn new(reference: &ModelRef, credentials: &Credentials<'_>) -> Result<Self, String> {
        ModelEndpoint::find(reference, credentials, &PROVIDER).map(Self)
    }
}

impl Protocol for Anthropic {
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError> {
        let (model, mut body) = messages_body(&self.0, request)?;
        body.insert("model".into(), model.into());
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("anthropic-version"), VERSION);
        let is_token = self.0.key_name.as_deref() == Some(TOKEN);
        let (name, prefix) = if is_token { (AUTHORIZATION, "Bearer ") } else { (API_KEY, "") };
        if let Some(key) = self.0.key_header(prefix, request.key.as_ref()) {
            headers.insert(name, key);
        }
        Ok(ProviderRequest::new(self.0.url(&["v1", "messages"]), headers, body))
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(AnthropicReader::default())
    }
}

/// Encodes `request` for the model at `endpoint` and returns the model's id and the body, which does not have it.
pub(super) fn messages_body(
    endpoint: &ModelEndpoint,
    request: &ModelRequest,
) -> Result<(String, Map<String, Value>), ModelError> {
    let mut generation = endpoint.generation(request);
    let own_choice = generation.take_own_call_choice();
    let choice = generation.take_call_choice(request)?;
    let cache = generation.take_cache()?;
    let model = generation.model.clone();
    let names = [("maxOutputTokens", "max_tokens")];
    let mut body = generation.into_values(&names, true);
    body.entry("max_tokens").or_insert(MAX_TOKENS.into());
    body.insert("stream".into(), true.into());
    let (schema, words) = json_output(request, endpoint.is_custom);
    if let Some(schema) = schema
        && let Some(config) = body.entry("output_config").or_insert_with(|| json!({})).as_object_mut()
    {
        config.insert("format".into(), json!({ "type": "json_schema", "schema": schema }));
    }
    if let Some(system) = instructions(request, words) {
        let system = match cache {
            None => Value::from(system),
            Some(life) => json!([{ "type": "text", "text": system, "cache_control": life.mark(CACHED) }]),
        };
        body.insert("system".into(), system);
    }
    let mut messages = messages(request)?;
    if let Some(life) = cache {
        let users = messages.iter_mut().rev().find(|message| message["role"] == "user");
        let last = users.and_then(|user| user["content"].as_array_mut()?.last_mut());
        mark_cached(last, life);
    }
    body.insert("messages".into(), messages.into());
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(
            |tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.input_schema }),
        );
        let mut tools: Vec<Value> = tools.collect();
        if let Some(life) = cache {
            mark_cached(tools.last_mut(), life);
        }
        body.insert("tools".into(), tools.into());
    }
    let choice = match choice {
        CallChoice::Auto => None,
        CallChoice::None => Some(json!({ "type": "none" })),
        CallChoice::Required => Some(json!({ "type": "any" })),
        CallChoice::Tool(name) => Some(json!({ "type": "tool", "name": name })),
    };
    body.extend(own_choice.or(choice).map(|choice| ("tool_choice".to_owned(), choice)));
    Ok((model, body))
}

/// Marks the end of what the provider keeps.
fn mark_cached(block: Option<&mut Value>, life: CacheLife) {
    if let Some(block) = block {
        block["cache_control"] = life.mark(CACHED);
    }
}

fn messages(request: &ModelRequest) -> Result<Vec<Value>, ModelError> {
    let mut messages = Vec::new();
    for entry in transcript_entries(&request.messages) {
        let (role, blocks) = match entry {
            TranscriptEntry::System(_) => continue,
            TranscriptEntry::User(parts) => ("user", parts.iter().filter_map(block).collect::<Result<Vec<_>, _>>()?),
            TranscriptEntry::Assistant(text, calls) => {
                let thoughts = calls.iter().filter_map(|call| match &call.thought {
                    Some(Thought::Blocks(blocks)) => Some(blocks.clone()),
                    _ => None,
                });
                let thoughts: Vec<_> = thoughts.flatten().collect();
                let text = (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
                let calls = calls.into_iter().map(|call| {
                    let input = object_or_empty(&call.arguments);
                    json!({ "type": "tool_use", "id": sanitize_id(&call.id), "name": call.name, "input": input })
                });
                ("assistant", thoughts.into_iter().chain(text).chain(calls).collect())
            }
            TranscriptEntry::Results(results) => {
                let results = results.into_iter().map(|result| {
                    let mut block = json!({
                        "type": "tool_result",
                        "tool_use_id": sanitize_id(result.id),
                        "content": result.text,
                    });
                    if result.failed {
                        block["is_error"] = true.into();
                    }
                    block
                });
                ("user", results.collect())
            }
        };
        if !blocks.is_empty() {
            messages.push(json!({ "role": role, "content": blocks }));
        }
    }
    Ok(messages)
}

fn block(part: &Part) -> Option<Result<Value, ModelError>> {
    match part {
        Part::Text(text) if text.is_empty() => None,
        Part::Text(text) => Some(Ok(json!({ "type": "text", "text": text }))),
        Part::Media { url, content_type } => Some(Media::read(url, content_type.as_deref()).map(|media| {
            let (type_, source) = match media {
                Media::Inline { type_, data } => {
                    (Some(type_), json!({ "type": "base64", "media_type": type_, "data": data }))
                }
                Media::Remote { type_, url } => (type_, json!({ "type": "url", "url": url })),
            };
            let kind = if type_ == Some("application/pdf") { "document" } else { "image" };
            json!({ "type": kind, "source": source })
        })),
    }
}

/// Replaces the characters of an id that the API does not accept: letters, digits, `_` and `-` are kept. Ids of other
/// providers may hold more.
fn sanitize_id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}
