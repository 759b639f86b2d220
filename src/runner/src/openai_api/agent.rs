//! An agent as a model.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc::Sender;

use super::question::{AnswerError, Answers, Question};
use crate::{agent::Agent, models::message::Message, told::Told, turn::Said};

/// An agent under its name.
pub(crate) struct NamedAgent {
    /// The name.
    pub(crate) name: String,
    /// Who answers.
    pub(crate) agent: Arc<Agent>,
}

#[async_trait]
impl Answers for NamedAgent {
    fn models(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    async fn answer(&self, question: Question, tokens: Option<&Sender<Told>>) -> Result<Said, AnswerError> {
        let Question { caller, model: _, messages, config, output } = question;
        if messages.iter().all(|message| matches!(**message, Message::System(_) | Message::Assistant(_))) {
            return Err(AnswerError::Input("nobody asks anything: `messages` has none of a user".into()));
        }
        Ok(self.agent.complete(&caller, messages, config, output, tokens).await?)
    }
}
