//! Says what the API asks of what answers.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;

use crate::{
    caller::CallerContext,
    models::{Message, ModelError, OutputFormat},
    turn::TurnOutcome,
    turn_event::TurnEvent,
};

/// Whatever answers under the names of models.
#[async_trait]
pub(crate) trait ModelBackend: Send + Sync {
    /// The names, in the order in which they are listed.
    fn models(&self) -> Vec<String>;

    /// Why a model that is not listed, because it is in error, cannot be asked.
    fn unavailable_reason(&self, _model: &str) -> Option<&str> {
        None
    }

    /// Answers; text goes to `tokens` as it comes, when somebody listens. Dropping the future ends the turn.
    ///
    /// # Errors
    /// There will be no answer.
    async fn respond(
        &self,
        question: CompletionRequest,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, CompletionError>;
}

/// What a client asks.
#[derive(Debug)]
pub(crate) struct CompletionRequest {
    /// Who asks.
    pub(crate) caller: CallerContext,
    /// One of the [names](Answers::models).
    pub(crate) model: String,
    /// The whole conversation, not empty, oldest first.
    pub(crate) messages: Vec<Arc<Message>>,
    /// Generation config, over what is set up.
    pub(crate) config: Map<String, Value>,
    /// Set when the answer is to be JSON.
    pub(crate) output: Option<OutputFormat>,
}

impl CompletionRequest {
    /// About how many bytes are asked.
    pub(crate) fn bytes(&self) -> usize {
        self.messages.iter().map(|message| message.bytes()).sum()
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompletionError {
    /// The conversation cannot be answered as it is.
    #[error("{0}")]
    Input(String),
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Something else failed, as the text says.
    #[error("{0}")]
    Failed(String),
}
