//! Object of a response, which the first and the last events of a stream hold too.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{super::reply::usage_or_estimate, id::ResponseId, output::Output, request::ResponseRequest};
use crate::{models::Usage, turn::TurnOutcome};

/// Fields that all states of a response share.
#[derive(Debug)]
pub(super) struct ResponseHead {
    id: String,
    /// Response in progress, with its settings.
    object: Value,
}

impl ResponseHead {
    /// Creates the head of a response that begins now.
    pub(super) fn new(id: &ResponseId, stores: bool, request: &ResponseRequest) -> Self {
        let id = id.to_string();
        let mut object = json!({
            "id": id, "object": "response", "created_at": Timestamp::now().as_second(), "status": "in_progress",
            "background": false, "error": null, "incomplete_details": null, "model": request.model, "output": [],
            "parallel_tool_calls": false, "store": stores, "tool_choice": "auto", "tools": [], "truncation": "disabled",
            "usage": null,
        });
        if let (Some(object), Some(repeated)) = (object.as_object_mut(), request.repeated.as_object()) {
            object.extend(repeated.clone());
        }
        Self { id, object }
    }

    /// Returns the part of the items' ids that is new with each response.
    pub(super) fn item_suffix(&self) -> &str {
        self.id.split_once('_').map_or("", |(_, digits)| digits)
    }

    /// Returns the response before its first item.
    pub(super) fn in_progress(&self) -> Value {
        self.object.clone()
    }

    /// Returns the whole response to a request of `asked` bytes.
    pub(super) fn finished(&self, output: &Output, outcome: &TurnOutcome, asked: usize) -> Value {
        let mut object = self.object.clone();
        object["output"] = output.items().into();
        object["usage"] = usage(outcome, asked);
        object["status"] = if outcome.truncated { "incomplete" } else { "completed" }.into();
        if outcome.truncated {
            object["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        object
    }

    /// Returns the response whose turn failed with this message.
    pub(super) fn failed(&self, output: &Output, message: &str) -> Value {
        let mut object = self.object.clone();
        object["output"] = output.items().into();
        object["status"] = "failed".into();
        object["error"] = json!({ "code": "server_error", "message": message });
        object
    }
}

/// Encodes token usage; an estimate is marked as `estimated`.
fn usage(outcome: &TurnOutcome, asked: usize) -> Value {
    let Usage { input, output, .. } = usage_or_estimate(outcome, asked);
    let mut usage = json!({
        "input_tokens": input, "input_tokens_details": { "cache_write_tokens": 0, "cached_tokens": 0 },
        "output_tokens": output, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": input.saturating_add(output),
    });
    if outcome.usage.is_none() {
        usage["estimated"] = true.into();
    }
    usage
}
