//! What whoever listens to a turn is told while it runs: its text as it comes, and which tools the model calls.

use std::time::Duration;

use tokio::sync::mpsc::Receiver;

use super::models::ToolCall;

/// One thing that happens in a turn.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TurnEvent {
    /// A piece of the answer; all of them joined are the answer.
    Text(String),
    /// A tool is called.
    Call(ToolCall),
    /// A tool answered. What it said is the model's alone.
    Outcome {
        /// Of the call.
        id: String,
        /// Whether it did what it was asked.
        ok: bool,
        /// How long it took.
        took: Duration,
    },
}

impl From<&str> for TurnEvent {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// The next piece of the answer, for those who pass on nothing else; none when the turn is over. No piece is lost when it is
/// not waited for to the end.
pub(super) async fn next_text(told: &mut Receiver<TurnEvent>) -> Option<String> {
    loop {
        if let TurnEvent::Text(text) = told.recv().await? {
            return Some(text);
        }
    }
}
