//! Flows for clients of OpenAI's API: each flow and each prompt is a model under its name.
//!
//! The client's messages are the history. When the prompt has a variable `message`, that is the text of what the user
//! said last, which is then left out of the history; so `{{role "system"}}Be kind.` chats, and `Translate: {{message}}`
//! translates. A prompt that requires other variables cannot be asked in this way.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::endpoint::{Endpoint, Failure};
use super::table::Table;
use crate::runner::dotprompt::RenderError;
use crate::runner::models::{Message, text_of};
use crate::runner::openai_api::{AnswerError, Answers, Question};
use crate::runner::turn::Said;

/// What can be asked, by name.
pub(super) struct Chats(BTreeMap<String, Arc<Endpoint>>);

impl Chats {
    /// All of `table`.
    ///
    /// # Errors
    /// Why nothing can be asked.
    pub(super) fn of(table: &Table) -> Result<Arc<dyn Answers>, String> {
        let endpoints = table.endpoints()?;
        Ok(Arc::new(Self(endpoints.into_iter().map(|(name, endpoint)| (name.into(), endpoint.clone())).collect())))
    }
}

#[async_trait]
impl Answers for Chats {
    fn models(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    async fn answer(&self, question: Question, tokens: Option<&Sender<String>>) -> Result<Said, AnswerError> {
        let Question { model, mut messages, config, output } = question;
        let Some(endpoint) = self.0.get(&model) else {
            return Err(AnswerError::Input(format!("there is no model `{model}`")));
        };
        let variables = if endpoint.takes_message { message(&mut messages)? } else { Value::Null };
        let mut request = endpoint.render(&variables, &messages).map_err(|error| match error {
            RenderError::Input(text) => AnswerError::Input(text),
            RenderError::Template { .. } => AnswerError::Failed(error.to_string()),
        })?;
        if !config.is_empty() {
            Arc::make_mut(&mut request.config).extend(config);
        }
        request.output = request.output.or(output);
        endpoint.answer(request, tokens).await.map_err(|error| match error {
            Failure::Model(error) => AnswerError::Model(error),
            Failure::Output(_) => AnswerError::Failed(error.to_string()),
        })
    }
}

/// Takes the user's last message out of `messages`, as variables.
fn message(messages: &mut Vec<Arc<Message>>) -> Result<Value, AnswerError> {
    let last = messages.iter().rposition(|message| matches!(**message, Message::User(_)));
    match last.map(|at| messages.remove(at)).as_deref() {
        Some(Message::User(parts)) => Ok(json!({ "message": text_of(parts) })),
        _ => Err(AnswerError::Input("nobody asks anything: `messages` has none of a user".into())),
    }
}
