//! Client of Anthropic's Messages API.
//!
//! The API has no role for instructions within the conversation, so all of them go to its `system`; JSON is requested
//! in the instructions, which all of its models follow. Thinking blocks that precede a tool call are sent back with the
//! call, otherwise the API refuses the tool's result.
//!
//! Sources: <https://docs.anthropic.com/en/api/messages-streaming>,
//! <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking>.

use std::collections::VecDeque;

use crds::provider;
use dotprompt::Part;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Chunk, ModelRef, ModelRequest, Thought, Usage,
    calls::{Calls, object_or_empty},
    endpoint::{ModelEndpoint, ProviderDefaults},
    error::ModelError,
    http::ProviderRequest,
    remote::{Protocol, Reader},
    transcript::{Media, TranscriptEntry, instructions, json_instruction, transcript_entries},
};
use crate::Lookup;

const PROVIDER: ProviderDefaults =
    ProviderDefaults { provider: provider::ANTHROPIC, public: "https://api.anthropic.com", regional: None };

/// Version of the API.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// Default of `max_tokens`, which the API requires.
const MAX_TOKENS: u64 = 8192;

/// Model behind the Messages API.
pub(super) struct Anthropic(ModelEndpoint);

impl Anthropic {
    /// Creates the client of the model in `reference`.
    ///
    /// # Errors
    /// The setting that is missing or invalid.
    pub(super) fn new(reference: &ModelRef, credentials: &Lookup) -> Result<Self, String> {
        ModelEndpoint::find(reference, credentials, &PROVIDER).map(Self)
    }
}

impl Protocol for Anthropic {
    fn write(&self, request: &ModelRequest) -> Result<ProviderRequest, ModelError> {
        let generation = self.0.generation(request);
        let model = generation.model.clone();
        let names = [("maxOutputTokens", "max_tokens")];
        let mut body = generation.into_values(&names, true);
        body.entry("max_tokens").or_insert(MAX_TOKENS.into());
        body.insert("model".into(), model.into());
        body.insert("stream".into(), true.into());
        if let Some(system) = instructions(request, request.output.as_ref().map(json_instruction)) {
            body.insert("system".into(), system.into());
        }
        body.insert("messages".into(), messages(request)?.into());
        if !request.tools.is_empty() {
            let tools = request.tools.iter().map(
                |tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.input_schema }),
            );
            body.insert("tools".into(), tools.collect());
        }
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static("anthropic-version"), VERSION);
        if let Some(key) = self.0.key_header("") {
            headers.insert(HeaderName::from_static("x-api-key"), key);
        }
        Ok(ProviderRequest { url: self.0.url(&["v1", "messages"]), headers, body: body.into() })
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(AnthropicReader::default())
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

/// Decoder state of one answer.
#[derive(Default)]
struct AnthropicReader {
    calls: Calls,
    thoughts: Thoughts,
    usage: Usage,
    done: bool,
}

/// Event of the stream. Unknown types are ignored: the API documents that new ones may be added.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicEvent {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        index: u64,
        content_block: AnthropicBlock,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    MessageDelta {
        delta: AnthropicMessageDelta,
        usage: Option<AnthropicUsage>,
    },
    MessageStop,
    Error,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Start {
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicBlock {
    Text {
        text: String,
    },
    ToolUse {
        id: String,
        name: String,
    },
    Thinking {
        #[serde(default)]
        thinking: String,
        #[serde(default)]
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Arguments { partial_json: String },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct AnthropicMessageDelta {
    stop_reason: Option<String>,
}

/// Token counts; each event reports the running total.
#[derive(Deserialize)]
struct AnthropicUsage {
    input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// Thinking blocks, in the order of the answer.
#[derive(Default)]
struct Thoughts(Vec<ThinkingBlock>);

enum ThinkingBlock {
    /// Block whose text still arrives, at that index of the answer.
    Open { index: u64, thinking: String, signature: String },
    /// Encrypted block, whose text the provider does not show.
    Redacted { data: String },
}

impl Thoughts {
    /// Appends to the block at `place`.
    fn more(&mut self, place: u64, text: &str, sign: &str) {
        for block in &mut self.0 {
            if let ThinkingBlock::Open { index, thinking, signature } = block
                && *index == place
            {
                thinking.push_str(text);
                signature.push_str(sign);
            }
        }
    }

    /// Returns all blocks in the form in which they are sent back.
    fn into_thought(self) -> Option<Thought> {
        let block = |block| match block {
            ThinkingBlock::Open { thinking, signature, .. } => {
                json!({ "type": "thinking", "thinking": thinking, "signature": signature })
            }
            ThinkingBlock::Redacted { data } => json!({ "type": "redacted_thinking", "data": data }),
        };
        (!self.0.is_empty()).then(|| Thought::Blocks(self.0.into_iter().map(block).collect()))
    }
}

impl Reader for AnthropicReader {
    fn read(&mut self, piece: &[u8], chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError> {
        let text = |text: String| (!text.is_empty()).then_some(Chunk::Token(text));
        match serde_json::from_slice(piece).map_err(|_| ModelError::malformed())? {
            AnthropicEvent::MessageStart { message } => self.count(message.usage),
            AnthropicEvent::ContentBlockStart { index, content_block } => match content_block {
                AnthropicBlock::Text { text: first } => chunks.extend(text(first)),
                AnthropicBlock::ToolUse { id, name } => self.calls.begin(index, &id, &name)?,
                AnthropicBlock::Thinking { thinking, signature } => {
                    self.thoughts.0.push(ThinkingBlock::Open { index, thinking, signature });
                }
                AnthropicBlock::RedactedThinking { data } => self.thoughts.0.push(ThinkingBlock::Redacted { data }),
                AnthropicBlock::Other => {}
            },
            AnthropicEvent::ContentBlockDelta { index, delta } => match delta {
                Delta::Text { text: more } => chunks.extend(text(more)),
                // Arguments of server-side tools arrive too; those tools started no call here.
                Delta::Arguments { partial_json } if self.calls.id(index).is_some() => {
                    self.calls.push_arguments(index, &partial_json)?;
                }
                Delta::Thinking { thinking } => self.thoughts.more(index, &thinking, ""),
                Delta::Signature { signature } => self.thoughts.more(index, "", &signature),
                Delta::Arguments { .. } | Delta::Other => {}
            },
            AnthropicEvent::MessageDelta { delta, usage } => {
                self.count(usage);
                match delta.stop_reason.as_deref() {
                    Some("max_tokens" | "model_context_window_exceeded") => chunks.push_back(Chunk::Truncated),
                    Some("refusal") => return Err(ModelError::unsafe_content()),
                    _ => {}
                }
            }
            AnthropicEvent::MessageStop => self.done = true,
            AnthropicEvent::Error => return Err(ModelError::reported(piece)),
            AnthropicEvent::Other => {}
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
        let before = chunks.len();
        self.calls.finish(chunks)?;
        if let Some(Chunk::Call(first)) = chunks.get_mut(before) {
            first.thought = std::mem::take(&mut self.thoughts).into_thought();
        }
        chunks.push_back(Chunk::Usage(self.usage));
        Ok(())
    }
}

impl AnthropicReader {
    fn count(&mut self, tokens: Option<AnthropicUsage>) {
        let Some(tokens) = tokens else { return };
        let cached = [tokens.cache_creation_input_tokens, tokens.cache_read_input_tokens];
        if let Some(input) = tokens.input_tokens {
            self.usage.input = input + cached.into_iter().flatten().sum::<u64>();
        }
        self.usage.output = tokens.output_tokens.unwrap_or(self.usage.output);
    }
}
