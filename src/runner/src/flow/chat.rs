//! Flows for clients of OpenAI's API: each flow and each prompt is a model under its name.
//!
//! The client's messages are the history. When the prompt has a variable `message`, that is the text of what the user
//! said last, which is then left out of the history if the template has a place for it; so `{{role "system"}}Be kind.`
//! chats, and `Translate: {{message}}` translates. A prompt that requires other variables cannot be asked in this way. A flow in error is not listed; who asks
//! it is told what is wrong.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use dotprompt::{Part, RenderError};
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::{
    endpoint::{ChatMessage, PromptEndpoint, PromptRunError},
    table::{NamedEndpoint, RouteTable},
};
use crate::{
    models::{Message, text_of},
    openai_api::backend::{CompletionError, CompletionRequest, ModelBackend},
    turn::TurnOutcome,
    turn_event::TurnEvent,
};

/// What can be asked, by name, or why it cannot.
pub(super) struct FlowModels(BTreeMap<String, Result<Arc<PromptEndpoint>, String>>);

impl FlowModels {
    /// All of `table`.
    ///
    /// # Errors
    /// Why nothing can be asked.
    pub(super) fn from_table(table: &RouteTable) -> Result<Arc<dyn ModelBackend>, String> {
        let owned = |(name, target): NamedEndpoint<'_>| (name.to_owned(), target.cloned().map_err(str::to_owned));
        Ok(Arc::new(Self(table.endpoints()?.into_iter().map(owned).collect())))
    }
}

#[async_trait]
impl ModelBackend for FlowModels {
    fn models(&self) -> Vec<String> {
        self.0.iter().filter(|(_, target)| target.is_ok()).map(|(name, _)| name.clone()).collect()
    }

    fn unavailable_reason(&self, model: &str) -> Option<&str> {
        // Which prompts a flow in error has is not known.
        let flow = model.split('/').next().unwrap_or(model);
        self.0.get(model).or_else(|| self.0.get(flow))?.as_ref().err().map(String::as_str)
    }

    async fn respond(
        &self,
        question: CompletionRequest,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, CompletionError> {
        let CompletionRequest { caller: _, model, mut messages, config, output } = question;
        let Some(Ok(endpoint)) = self.0.get(&model) else {
            return Err(CompletionError::Input(format!("there is no model `{model}`")));
        };
        let ChatMessage { is_variable, in_template } = endpoint.message;
        let variables = if is_variable { message(&mut messages, in_template)? } else { Value::Null };
        let mut request = endpoint.render(&variables, &messages).map_err(|error| match error {
            RenderError::Input(text) => CompletionError::Input(text),
            RenderError::Template { .. } => CompletionError::Failed(error.to_string()),
        })?;
        if !config.is_empty() {
            Arc::make_mut(&mut request.config).extend(config);
        }
        request.output = request.output.or(output);
        endpoint.respond(request, tokens).await.map_err(|error| match error {
            PromptRunError::Model(error) => CompletionError::Model(error),
            PromptRunError::Output(_) => CompletionError::Failed(error.to_string()),
        })
    }
}

/// The text of the user's last message, as variables; `takes` it out of `messages`.
fn message(messages: &mut Vec<Arc<Message>>, takes: bool) -> Result<Value, CompletionError> {
    let last = messages.iter().rposition(|message| matches!(**message, Message::User(_)));
    let last = last.map(|at| if takes { messages.remove(at) } else { messages[at].clone() });
    match last.as_deref() {
        Some(Message::User(parts)) if takes && parts.iter().any(|part| matches!(part, Part::Media { .. })) => {
            let text = "the prompt takes the text of a message: send the picture to a prompt without `message`";
            Err(CompletionError::Input(text.into()))
        }
        Some(Message::User(parts)) => Ok(json!({ "message": text_of(parts) })),
        _ => Err(CompletionError::Input("nobody asks anything: `messages` has none of a user".into())),
    }
}
