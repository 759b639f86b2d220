//! Flows as models of OpenAI's API: each flow and each prompt is a model under its name.
//!
//! The client's messages are the history. When the prompt has a variable `message`, its value is the text of the user's
//! last message, which is then left out of the history if the template uses the variable; so
//! `{{role "system"}}Be kind.` chats, and `Translate: {{message}}` translates. A prompt that requires other variables
//! cannot be used in this way. A flow in error is not listed; a request for it gets the reason.

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

/// Prompt endpoints by model name, or the reason why a flow cannot be served.
pub(super) struct FlowModels(BTreeMap<String, Result<Arc<PromptEndpoint>, String>>);

impl FlowModels {
    /// Collects all endpoints of `table`.
    ///
    /// # Errors
    /// The reason why none can be served.
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
        // The prompts of a flow in error are unknown, so any model name under it gets the flow's reason.
        let flow = model.split('/').next().unwrap_or(model);
        self.0.get(model).or_else(|| self.0.get(flow))?.as_ref().err().map(String::as_str)
    }

    async fn respond(
        &self,
        question: CompletionRequest,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, CompletionError> {
        let CompletionRequest { caller, model, mut messages, config, output, record: _ } = question;
        let Some(Ok(endpoint)) = self.0.get(&model) else {
            return Err(CompletionError::Input(format!("unknown model `{model}`")));
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
        request.key = caller.key;
        request.account = caller.account;
        endpoint.respond(&model, request, &caller.headers, tokens).await.map_err(|error| match error {
            PromptRunError::Model(error) => CompletionError::Model(error),
            PromptRunError::Output(_) => CompletionError::Failed(error.to_string()),
        })
    }
}

/// Returns the variables with the text of the user's last message; `takes` removes it from `messages`.
fn message(messages: &mut Vec<Arc<Message>>, takes: bool) -> Result<Value, CompletionError> {
    let last = messages.iter().rposition(|message| matches!(**message, Message::User(_)));
    let last = last.map(|at| if takes { messages.remove(at) } else { messages[at].clone() });
    match last.as_deref() {
        Some(Message::User(parts)) if takes && parts.iter().any(|part| matches!(part, Part::Media { .. })) => {
            let text = "the prompt takes the text of a message: send the picture to a prompt without `message`";
            Err(CompletionError::Input(text.into()))
        }
        Some(Message::User(parts)) => Ok(json!({ "message": text_of(parts) })),
        _ => Err(CompletionError::Input("`messages` has no user message".into())),
    }
}
