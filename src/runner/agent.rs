//! One turn of a conversation: from a user's message to the model's answer.
//!
//! The model is asked, the tools it wants are called, their results go back to it, and so on until it answers with
//! text alone or has used its tool turns. Only a finished turn is remembered: one that fails, or whose client goes
//! away, leaves the conversation as it was.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures::StreamExt;
use serde::Serialize;
use tokio::sync::mpsc::Sender;

use super::config::Config;
use super::conversations::{ConversationId, Conversations, Limits};
use super::model::{self, Chunk, Message, Model, ModelError, Request};
use super::tools::Toolbox;

/// How often a model may ask for tools before it must answer.
const TOOL_TURNS: usize = 5;

/// An agent that can answer.
pub(super) struct Agent {
    model: Arc<dyn Model>,
    background: Arc<dyn Model>,
    system_prompt: Option<Arc<str>>,
    tools: Toolbox,
    conversations: Mutex<Conversations>,
}

/// What a user sends.
pub(super) struct Turn {
    /// The conversation to go on with; none starts one.
    pub(super) conversation: Option<ConversationId>,
    /// The message.
    pub(super) message: String,
}

/// What a user gets: the body of a JSON answer.
#[derive(Debug, Serialize)]
pub(super) struct Reply {
    /// The model's whole text.
    pub(super) reply: String,
    /// To go on with this conversation.
    pub(super) conversation_id: String,
    /// A name for the conversation, with its first reply only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
}

/// A turn without an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum TurnError {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No conversation can be named.
    #[error("the system has no random numbers to name a conversation with: {0}")]
    Random(#[from] getrandom::Error),
}

impl Agent {
    /// The agent `config` describes.
    ///
    /// # Errors
    /// What this runtime cannot serve, as a sentence for `/readyz`.
    pub(super) fn new(config: &Config, tools: Toolbox) -> Result<Self, String> {
        let model = model::open(&config.model)?;
        let background = config.background.as_ref().map(model::open).transpose()?;
        Ok(Self::with(model.clone(), background.unwrap_or(model), config.system_prompt.clone(), tools))
    }

    /// An agent around `model`; `background` titles its conversations.
    pub(super) fn with(
        model: Arc<dyn Model>,
        background: Arc<dyn Model>,
        system_prompt: Option<String>,
        tools: Toolbox,
    ) -> Self {
        let conversations = Mutex::new(Conversations::new(Limits::default()));
        Self { model, background, system_prompt: system_prompt.map(Into::into), tools, conversations }
    }

    /// Answers. Text goes to `tokens` as it comes, when somebody listens. Dropping the future ends the turn.
    ///
    /// # Errors
    /// The model failed; a tool that fails is the model's business.
    pub(super) async fn answer(&self, turn: Turn, tokens: Option<&Sender<String>>) -> Result<Reply, TurnError> {
        let id = turn.conversation.map_or_else(ConversationId::random, Ok)?;
        let mut messages = self.conversations().messages(&id, Instant::now());
        let before = messages.len();
        let title = (before == 0).then(|| self.background.title(&turn.message));
        messages.push(Arc::new(Message::User(turn.message)));

        let mut reply = String::new();
        for tool_turn in 0.. {
            let mut calls = Vec::new();
            let mut text = String::new();
            let mut answer = self.model.answer(Request {
                system_prompt: self.system_prompt.clone(),
                messages: messages.clone(),
                tools: self.tools.definitions(),
            });
            while let Some(chunk) = answer.next().await {
                match chunk? {
                    Chunk::Call(call) => calls.push(call),
                    Chunk::Token(token) => {
                        text.push_str(&token);
                        say(tokens, token).await;
                    }
                }
            }
            reply.push_str(&text);
            if !text.is_empty() {
                messages.push(Arc::new(Message::Assistant(text)));
            }
            if calls.is_empty() {
                break;
            }
            if tool_turn == TOOL_TURNS {
                let note = format!("[stopped: the model asked for tools more than {TOOL_TURNS} times]");
                reply.push_str(&note);
                messages.push(Arc::new(Message::Assistant(note.clone())));
                say(tokens, note).await;
                break;
            }
            for call in calls {
                let outcome = self.tools.call(&call.name, &call.arguments).await.map_err(|error| error.to_string());
                if let Err(error) = &outcome {
                    // What a tool said may be long and may be the user's: only who asks for it sees it.
                    tracing::info!(tool = call.name, "a tool failed; the model was told why");
                    tracing::debug!(tool = call.name, error, "why a tool failed");
                }
                let name = call.name.clone();
                messages.push(Arc::new(Message::Call(call)));
                messages.push(Arc::new(Message::ToolResult { name, outcome }));
            }
        }
        self.conversations().add(&id, messages.split_off(before), Instant::now());
        Ok(Reply { reply, conversation_id: id.to_string(), title })
    }

    fn conversations(&self) -> std::sync::MutexGuard<'_, Conversations> {
        self.conversations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands a token to the listener; one that went away is not waited for, its turn is dropped by whoever runs it.
async fn say(tokens: Option<&Sender<String>>, token: String) {
    if let Some(tokens) = tokens {
        let _ = tokens.send(token).await;
    }
}
