//! One turn of a conversation: from a user's message to the model's answer.
//!
//! Only a finished turn is remembered: one that fails, or whose client goes away, leaves the conversation as it was.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;

use super::Lookup;
use super::config::Config;
use super::conversations::{ConversationId, Conversations};
use super::database::DatabaseError;
use super::models::{self, Http, Message, Model, ModelError, OutputFormat, Request};
use super::told::Told;
use super::tools::Toolbox;
use super::turn::{self, Said, TOOL_TURNS};

/// An agent that can answer.
pub(super) struct Agent {
    model: Arc<dyn Model>,
    background: Arc<dyn Model>,
    system_prompt: Option<Arc<str>>,
    tools: Toolbox,
    conversations: Conversations,
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
    /// The conversation cannot be read, or the turn not be kept.
    #[error("the conversation cannot be kept now, try again: {0}")]
    Conversations(#[from] DatabaseError),
}

impl Agent {
    /// The agent `config` describes; `credentials` finds its models' API keys.
    ///
    /// # Errors
    /// What this runtime cannot serve, as a sentence for `/readyz`.
    pub(super) fn new(config: &Config, tools: Toolbox, credentials: &Lookup) -> Result<Self, String> {
        let http = Http::default();
        let open = |reference| models::open(reference, credentials, &http);
        let model = open(&config.model)?;
        let background = config.background.as_ref().map(open).transpose()?;
        let conversations = Conversations::open(&config.storage, &config.agent)?;
        let prompt = config.system_prompt.clone();
        Ok(Self { conversations, ..Self::with(model.clone(), background.unwrap_or(model), prompt, tools) })
    }

    /// An agent around `model`, with conversations in memory; `background` titles them.
    pub(super) fn with(
        model: Arc<dyn Model>,
        background: Arc<dyn Model>,
        system_prompt: Option<String>,
        tools: Toolbox,
    ) -> Self {
        let conversations = Conversations::memory();
        Self { model, background, system_prompt: system_prompt.map(Into::into), tools, conversations }
    }

    /// Answers. Text goes to `tokens` as it comes, and which tools are called, when somebody listens. Dropping the future ends the turn.
    ///
    /// # Errors
    /// The model failed, or the conversation cannot be kept; a tool that fails is the model's business.
    pub(super) async fn answer(&self, said: Turn, tokens: Option<&Sender<Told>>) -> Result<Reply, TurnError> {
        let id = said.conversation.map_or_else(ConversationId::random, Ok)?;
        let mut messages = self.conversations.messages(&id).await?;
        let before = messages.len();
        messages.push(Arc::new(Message::user(said.message.as_str())));

        let mut request = self.request(messages);
        // The title is asked for meanwhile; a turn that fails does not wait for it.
        let title = async { if before > 0 { Ok(None) } else { Ok(Some(self.background.title(&said.message).await)) } };
        let (reply, title) = futures::try_join!(self.converse(&mut request, tokens), title)?;
        self.conversations.add(&id, request.messages.split_off(before), title.as_deref()).await?;
        Ok(Reply { reply: reply.text, conversation_id: id.to_string(), title })
    }

    /// Answers the last of `messages`, which are the whole conversation; nothing is remembered. `config` and `output` are
    /// the model's. Dropping the future ends the turn.
    ///
    /// # Errors
    /// The model failed; a tool that fails is the model's business.
    pub(super) async fn complete(
        &self,
        messages: Vec<Arc<Message>>,
        config: Map<String, Value>,
        output: Option<OutputFormat>,
        tokens: Option<&Sender<Told>>,
    ) -> Result<Said, ModelError> {
        let mut request = Request { config: config.into(), output, ..self.request(messages) };
        self.converse(&mut request, tokens).await
    }

    fn request(&self, messages: Vec<Arc<Message>>) -> Request {
        Request { system: self.system_prompt.clone(), messages, tools: self.tools.specs(), ..Request::default() }
    }

    async fn converse(&self, request: &mut Request, tokens: Option<&Sender<Told>>) -> Result<Said, ModelError> {
        let talk = turn::Turn { model: &*self.model, tools: &self.tools, tokens };
        talk.run(request, &mut { TOOL_TURNS }).await
    }

    /// Whether its conversations can be read and kept now.
    ///
    /// # Errors
    /// Why not, as a sentence for `/readyz`.
    pub(super) async fn check(&self) -> Result<(), String> {
        self.conversations.check().await.map_err(|error| format!("conversations: {error}"))
    }
}
