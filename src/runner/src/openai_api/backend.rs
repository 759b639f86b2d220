//! Interface between OpenAI's API and the agents or flows that answer.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;

use crate::{
    agent::{TurnError, TurnRecord},
    caller::CallerContext,
    conversations::history::{ConversationId, StoredConversation},
    models::{Message, ModelError, OutputFormat},
    turn::TurnOutcome,
    turn_event::TurnEvent,
};

/// Backend that answers for one or more model names.
#[async_trait]
pub(crate) trait ModelBackend: Send + Sync {
    /// Returns the names, in the order in which they are listed.
    fn models(&self) -> Vec<String>;

    /// Returns the reason why a model in error, which is not listed, cannot be used.
    fn unavailable_reason(&self, _model: &str) -> Option<&str> {
        None
    }

    /// Reports whether it answers for this model. It may have names that are not listed.
    fn serves(&self, model: &str) -> bool {
        self.models().iter().any(|known| known == model)
    }

    /// Reports whether it keeps conversations, so that a request may have a [record](CompletionRequest::record).
    fn keeps_conversations(&self) -> bool {
        false
    }

    /// Returns a conversation.
    ///
    /// # Errors
    /// The conversation is not known to this caller, or cannot be read.
    async fn history(&self, _: &ConversationId, _: &CallerContext) -> Result<StoredConversation, CompletionError> {
        Err(CompletionError::NoConversation)
    }

    /// Answers the request; with `tokens`, text is sent there as it arrives. Dropping the future cancels the turn.
    ///
    /// # Errors
    /// The turn failed, or the request cannot be answered.
    async fn respond(
        &self,
        question: CompletionRequest,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, CompletionError>;
}

/// Request for one answer.
#[derive(Debug)]
pub(crate) struct CompletionRequest {
    /// Caller of the request.
    pub(crate) caller: CallerContext,
    /// One of the [names](ModelBackend::models).
    pub(crate) model: String,
    /// Whole conversation, not empty, oldest first.
    pub(crate) messages: Vec<Arc<Message>>,
    /// Generation config, over the configured one.
    pub(crate) config: Map<String, Value>,
    /// Set when the answer must be JSON.
    pub(crate) output: Option<OutputFormat>,
    /// Conversation that keeps the turn; `None`: nothing is kept.
    pub(crate) record: Option<TurnRecord>,
}

impl CompletionRequest {
    /// Returns the approximate size of the messages in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.bytes()).sum()
    }
}

/// Failure of a completion.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompletionError {
    /// The conversation cannot be answered in this form.
    #[error("{0}")]
    Input(String),
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The conversation was never begun, has been forgotten, or is another user's.
    #[error("the conversation is not known")]
    NoConversation,
    /// The conversation has gone on meanwhile.
    #[error("{0}")]
    Conflict(String),
    /// Conversations cannot be read or written now.
    #[error("{0}")]
    Unavailable(String),
    /// Other failure, described by the text.
    #[error("{0}")]
    Failed(String),
}

impl From<TurnError> for CompletionError {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Model(error) => Self::Model(error),
            TurnError::NoConversation(_) => Self::NoConversation,
            TurnError::Overtaken | TurnError::Waits | TurnError::ClaimLost => Self::Conflict(error.to_string()),
            TurnError::Random(_) | TurnError::Conversations(_) | TurnError::Interrupted(_) | TurnError::Draining => {
                Self::Unavailable(error.to_string())
            }
        }
    }
}
