//! Answer of an agent to a message.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::{models::Answerer, parking::ParkedReply, sse, turn_event::TurnEvent, usage::UsageAccount};

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
            let _ = tokens.send(TurnEvent::WaitNote(note)).await;
            let _ = tokens.send(TurnEvent::Parked(waiting)).await;
        }
        self.parked = Some(parked);
    }

    /// Returns the data of the last event: the reply without its text.
    pub(super) fn done_event(self, account: &UsageAccount) -> Value {
        let mut words = json!({ "conversation_id": self.conversation_id });
        if let Some(title) = self.title {
            words["title"] = title.into();
        }
        sse::add_models(&mut words, &self.answerers);
        sse::add_usage(&mut words, account);
        words
    }
}

impl IntoResponse for ChatReply {
    /// Returns the response with the whole reply: 202 while its turn waits.
    fn into_response(self) -> Response {
        let answerer = self.answerers.first().cloned();
        let status = if self.parked.is_some() { StatusCode::ACCEPTED } else { StatusCode::OK };
        sse::with_model((status, Json(self)).into_response(), answerer)
    }
}
