//! Serves an agent as a model of OpenAI's API.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc::Sender;

use super::backend::{CompletionError, CompletionRequest, ModelBackend};
use crate::{
    agent::Agent,
    caller::CallerContext,
    conversations::history::{ConversationId, StoredConversation},
    models::message::Message,
    turn::TurnOutcome,
    turn_event::TurnEvent,
};

/// Agent with the model name under which it is served.
pub(crate) struct NamedAgent {
    /// Name of the model.
    pub(crate) name: String,
    /// Namespace of the agent. A gateway's clients name the model `namespace/name`.
    pub(crate) namespace: String,
    /// Agent that answers.
    pub(crate) agent: Arc<Agent>,
}

#[async_trait]
impl ModelBackend for NamedAgent {
    fn models(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn serves(&self, model: &str) -> bool {
        model == self.name || model.split_once('/') == Some((self.namespace.as_str(), self.name.as_str()))
    }

    fn keeps_conversations(&self) -> bool {
        true
    }

    async fn history(
        &self,
        conversation: &ConversationId,
        caller: &CallerContext,
    ) -> Result<StoredConversation, CompletionError> {
        Ok(self.agent.history(conversation, &caller.user).await?)
    }

    async fn respond(
        &self,
        question: CompletionRequest,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, CompletionError> {
        let CompletionRequest { caller, model: _, messages, config, output, record } = question;
        if messages.iter().all(|message| matches!(**message, Message::System(_) | Message::Assistant(_))) {
            return Err(CompletionError::Input("`messages` has no user message".into()));
        }
        Ok(self.agent.complete(&caller, messages, config, output, record, tokens).await?)
    }
}
