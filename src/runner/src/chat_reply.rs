//! Answer of an agent to a message.

use serde::Serialize;
use tokio::sync::mpsc::Sender;

use super::{models::Answerer, parking::ParkedReply, turn_event::TurnEvent};

/// Body of a JSON answer.
#[derive(Debug, Serialize)]
pub(super) struct ChatReply {
    /// Whole text of the model.
    pub(super) reply: String,
    /// Id by which the conversation is continued.
    pub(super) conversation_id: String,
    /// Title of the conversation; only with its first reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    /// Model that answered each request of the turn.
    #[serde(skip)]
    pub(super) answerers: Vec<Answerer>,
    /// Calls that wait for the caller, where the turn is not over.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) parked: Option<ParkedReply>,
}

impl ChatReply {
    /// Says that the turn waits: to the readers of `tokens`, and in the text, for clients that know nothing else.
    pub(super) async fn park(&mut self, parked: ParkedReply, tokens: Option<&Sender<TurnEvent>>) {
        let line = if self.reply.is_empty() { "" } else { "\n" };
        let note = format!("{line}{}", parked.note());
        self.reply.push_str(&note);
        if let Some(tokens) = tokens {
            // Texts and JSON values under string keys: this cannot fail.
            let mut waiting = serde_json::to_value(&parked).unwrap_or_default();
            waiting["conversation_id"] = self.conversation_id.clone().into();
            let _ = tokens.send(TurnEvent::Text(note)).await;
            let _ = tokens.send(TurnEvent::Parked(waiting)).await;
        }
        self.parked = Some(parked);
    }
}
