//! Decodes the events of an answer of Anthropic's Messages API.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::json;

use crate::models::{Chunk, Thought, Usage, calls::Calls, error::ModelError, remote::Reader};

/// Decoder state of one answer.
#[derive(Default)]
pub(in crate::models) struct AnthropicReader {
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
    #[serde(default)]
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Deserialize)]
struct OutputDetails {
    thinking_tokens: Option<u64>,
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
            AnthropicEvent::Error => return Err(ModelError::reported()),
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
        // An event need not repeat the counts that have not changed.
        let Usage { input, cache_read, cache_write, .. } = self.usage;
        let uncached = input.saturating_sub(cache_read).saturating_sub(cache_write);
        let read = tokens.cache_read_input_tokens.unwrap_or(cache_read);
        let write = tokens.cache_creation_input_tokens.unwrap_or(cache_write);
        self.usage.input = tokens.input_tokens.unwrap_or(uncached).saturating_add(write).saturating_add(read);
        (self.usage.cache_read, self.usage.cache_write) = (read, write);
        let thinking = tokens.output_tokens_details.and_then(|details| details.thinking_tokens);
        self.usage.reasoning = thinking.unwrap_or(self.usage.reasoning);
        self.usage.output = tokens.output_tokens.unwrap_or(self.usage.output);
    }
}
