//! Serves an agent as a model of OpenAI's API.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc::Sender;

use super::backend::{CompletionError, CompletionRequest, ModelBackend};
use crate::{agent::Agent, models::message::Message, turn::TurnOutcome, turn_event::TurnEvent};

/// Agent with the model name under which it is served.
pub(crate) struct NamedAgent {
    /// Name of the model.
    pub(crate) name: String,
    /// Agent that answers.
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
            return Err(CompletionError::Input("`messages` has no user message".into()));
        }
        Ok(self.agent.complete(&caller, messages, config, output, tokens).await?)
    }
}
