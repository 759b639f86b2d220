//! An agent as a model.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc::Sender;

use super::backend::{CompletionError, CompletionRequest, ModelBackend};
use crate::{agent::Agent, models::message::Message, turn::TurnOutcome, turn_event::TurnEvent};

/// An agent under its name.
pub(crate) struct NamedAgent {
    /// The name.
    pub(crate) name: String,
    /// Who answers.
    pub(crate) agent: Arc<Agent>,
}

#[async_trait]
impl ModelBackend for NamedAgent {
    fn models(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    async fn respond(
        &self,
        question: CompletionRequest,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, CompletionError> {
        let CompletionRequest { caller, model: _, messages, config, output } = question;
        if messages.iter().all(|message| matches!(**message, Message::System(_) | Message::Assistant(_))) {
            return Err(CompletionError::Input("nobody asks anything: `messages` has none of a user".into()));
        }
        Ok(self.agent.complete(&caller, messages, config, output, tokens).await?)
    }
}
