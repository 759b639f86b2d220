//! Events of a running turn: its text as it arrives, and its tool calls.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::Receiver;

use super::models::{Answerer, ToolCall};

/// Event of a turn.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TurnEvent {
    /// Model that answers the request that has begun.
    Answerer(Answerer),
    /// Piece of the answer; the answer is the concatenation of all pieces.
    Text(String),
    /// Start of a tool call.
    Call(ToolCall),
    /// End of a tool call. Its result goes only to the model.
    Outcome {
        /// Id of the call.
        id: String,
        /// Set when the call succeeded.
        ok: bool,
        /// Duration of the call.
        took: Duration,
    },
    /// Line for readers of text alone, which says that calls wait; not part of the answer.
    WaitNote(String),
    /// Calls that wait for a person, for clients: the turn ends here until they are decided.
    Parked(Value),
}

impl From<&str> for TurnEvent {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// Receives the next piece of the answer and skips all other events; `None` when the turn is over. Cancel-safe: no
/// piece is lost when the future is dropped.
pub(super) async fn next_text(events: &mut Receiver<TurnEvent>) -> Option<String> {
    loop {
        if let TurnEvent::Text(text) = events.recv().await? {
            return Some(text);
        }
    }
}
