//! Decodes the events of an answer of the Converse API.
//!
//! The tokens come after the reason why the model stopped, so that the answer ends with the stream.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::models::{
    Chunk, Thought, Usage,
    calls::Calls,
    error::{ModelError, ModelErrorKind, TOO_SLOW},
    remote::Reader,
};

/// Decoder state of one answer.
#[derive(Default)]
pub(super) struct ConverseReader {
    calls: Calls,
    reasoning: Vec<ReasoningBlock>,
    usage: Option<Usage>,
    finished: bool,
}

/// Reasoning content whose pieces still arrive, at that index of the answer.
#[derive(Default)]
struct ReasoningBlock {
    index: u64,
    text: String,
    signature: Option<String>,
    /// Encrypted content, in base64.
    redacted: Option<String>,
}

/// Event, of which at most one field is set. Unknown ones are ignored: new ones may be added.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConverseEvent {
    content_block_start: Option<BlockStart>,
    content_block_delta: Option<BlockDelta>,
    message_stop: Option<MessageStop>,
    metadata: Option<ConverseMetadata>,
    exception: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStart {
    #[serde(default)]
    content_block_index: u64,
    start: Option<ConverseStart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConverseStart {
    tool_use: Option<ToolUseStart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolUseStart {
    tool_use_id: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockDelta {
    #[serde(default)]
    content_block_index: u64,
    delta: ConverseDelta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConverseDelta {
    text: Option<String>,
    tool_use: Option<ToolUseDelta>,
    reasoning_content: Option<ReasoningDelta>,
}

#[derive(Deserialize)]
struct ToolUseDelta {
    #[serde(default)]
    input: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReasoningDelta {
    text: Option<String>,
    signature: Option<String>,
    redacted_content: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageStop {
    stop_reason: String,
}

#[derive(Deserialize)]
struct ConverseMetadata {
    usage: Option<ConverseUsage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConverseUsage {
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    cache_read_input_tokens: Option<u64>,
    cache_write_input_tokens: Option<u64>,
}

impl Reader for ConverseReader {
    fn read(&mut self, piece: &[u8], chunks: &mut VecDeque<Chunk>) -> Result<(), ModelError> {
        let event: ConverseEvent = serde_json::from_slice(piece).map_err(|_| ModelError::malformed())?;
        if let Some(exception) = &event.exception {
            return Err(failure(exception));
        }
        if let Some(BlockStart { content_block_index, start: Some(ConverseStart { tool_use: Some(tool) }) }) =
            event.content_block_start
        {
            self.calls.begin(content_block_index, &tool.tool_use_id, &tool.name)?;
        }
        if let Some(BlockDelta { content_block_index, delta }) = event.content_block_delta {
            chunks.extend(delta.text.filter(|text| !text.is_empty()).map(Chunk::Token));
            // Arguments of tools of the server arrive too; those tools started no call here.
            if let Some(tool) = delta.tool_use.filter(|_| self.calls.id(content_block_index).is_some()) {
                self.calls.push_arguments(content_block_index, &tool.input)?;
            }
            if let Some(reasoning) = delta.reasoning_content {
                self.add_reasoning(content_block_index, reasoning);
            }
        }
        if let Some(usage) = event.metadata.and_then(|metadata| metadata.usage) {
            let cache_read = usage.cache_read_input_tokens.unwrap_or_default();
            let cache_write = usage.cache_write_input_tokens.unwrap_or_default();
            let input = usage.input_tokens.saturating_add(cache_read).saturating_add(cache_write);
            self.usage = Some(Usage { cache_read, cache_write, ..Usage::new(input, usage.output_tokens) });
        }
        match event.message_stop.as_ref().map(|stop| stop.stop_reason.as_str()) {
            None => return Ok(()),
            Some("max_tokens" | "model_context_window_exceeded") => chunks.push_back(Chunk::Truncated),
            Some("content_filtered" | "guardrail_intervened") => return Err(ModelError::unsafe_content()),
            Some(reason) if reason.starts_with("malformed_") => return Err(ModelError::malformed()),
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
        let before = chunks.len();
        self.calls.finish(chunks)?;
        if let Some(Chunk::Call(first)) = chunks.get_mut(before) {
            let blocks: Vec<_> = self.reasoning.drain(..).map(ReasoningBlock::into_content).collect();
            first.thought = (!blocks.is_empty()).then_some(Thought::Reasoning(blocks));
        }
        chunks.extend(self.usage.map(Chunk::Usage));
        Ok(())
    }
}

impl ConverseReader {
    fn add_reasoning(&mut self, index: u64, delta: ReasoningDelta) {
        if self.reasoning.last().is_none_or(|last| last.index != index) {
            self.reasoning.push(ReasoningBlock { index, ..ReasoningBlock::default() });
        }
        let Some(block) = self.reasoning.last_mut() else { return };
        block.text.push_str(&delta.text.unwrap_or_default());
        if let Some(more) = delta.signature {
            block.signature.get_or_insert_default().push_str(&more);
        }
        if let Some(more) = delta.redacted_content {
            block.redacted.get_or_insert_default().push_str(&more);
        }
    }
}

impl ReasoningBlock {
    /// Returns the block in the form in which it is sent back.
    fn into_content(self) -> Value {
        let content = match (self.redacted, self.signature) {
            (Some(redacted), _) => json!({ "redactedContent": redacted }),
            (None, Some(signature)) => json!({ "reasoningText": { "text": self.text, "signature": signature } }),
            (None, None) => json!({ "reasoningText": { "text": self.text } }),
        };
        json!({ "reasoningContent": content })
    }
}

/// Creates the error for a failure within the answer.
fn failure(exception: &str) -> ModelError {
    use ModelErrorKind::{BadRequest, Timeout};
    match exception {
        "modelTimeoutException" => ModelError::reported_as(Timeout, TOO_SLOW),
        "validationException" => {
            ModelError::reported_as(BadRequest, "the provider refuses the request; check the model's configuration")
        }
        _ => ModelError::reported(),
    }
}
