//! One turn of a conversation: from a user's message to the model's answer.
//!
//! Only a finished turn is remembered: one that fails, or whose client goes away, leaves the conversation as it was.

use std::{sync::Arc, time::Instant};

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc::Sender;

use super::{
    Lookup,
    caller::CallerContext,
    config::RunnerConfig,
    conversations::{
        Conversations,
        history::{ConversationId, History},
    },
    database::{DatabaseError, DatabaseScope},
    models::{self, Http, Message, Model, ModelError, ModelRequest, OutputFormat},
    tools::Toolbox,
    turn::{self, TOOL_TURNS, TurnOutcome},
    turn_event::TurnEvent,
};

/// An agent that can answer.
pub(super) struct Agent {
    model: Arc<dyn Model>,
    background: Arc<dyn Model>,
    system_prompt: Option<Arc<str>>,
    tools: Toolbox,
    conversations: Conversations,
}

/// What a user sends.
pub(super) struct ChatTurn {
    /// Who asks.
    pub(super) caller: CallerContext,
    /// The conversation to go on with; none starts one.
    pub(super) conversation: Option<ConversationId>,
    /// Whether that conversation may begin with this turn.
    pub(super) may_create: bool,
    /// The message.
    pub(super) message: String,
}

/// A turn whose conversation is there, or begins with it.
pub(super) struct PreparedTurn {
    caller: CallerContext,
    id: ConversationId,
    /// What was said before.
    messages: Vec<Arc<Message>>,
    message: String,
}

/// What a user gets: the body of a JSON answer.
#[derive(Debug, Serialize)]
pub(super) struct ChatReply {
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
    /// The conversation is not there, or another user's.
    #[error(
        "there is no conversation `{0}`: it was never begun, has been forgotten, or is another user's; leave its id out to \
         begin one"
    )]
    NoConversation(ConversationId),
    /// No conversation can be named.
    #[error("the system has no random numbers to name a conversation with: {0}")]
    Random(#[from] getrandom::Error),
    /// The conversation cannot be read, or the turn not be kept.
    #[error("the conversation cannot be kept now, try again: {0}")]
    Conversations(#[from] DatabaseError),
}

impl PreparedTurn {
    /// The conversation.
    pub(super) fn id(&self) -> &ConversationId {
        &self.id
    }
}

impl Agent {
    /// The agent `config` describes; `credentials` finds its models' API keys.
    ///
    /// # Errors
    /// What this runtime cannot serve, as a sentence for `/readyz`.
    pub(super) fn new(config: &RunnerConfig, tools: Toolbox, credentials: &Lookup) -> Result<Self, String> {
        let http = Http::default();
        let open = |reference| models::open(reference, credentials, &http);
        let model = open(&config.model)?;
        let background = config.background.as_ref().map(open).transpose()?;
        let conversations = Conversations::open(&config.storage, &config.agent)?;
        let prompt = config.system_prompt.clone();
        Ok(Self::with(model.clone(), background.unwrap_or(model), prompt, tools).with_conversations(conversations))
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

    /// The same agent with these conversations.
    pub(super) fn with_conversations(self, conversations: Conversations) -> Self {
        Self { conversations, ..self }
    }

    /// Where the agent has its rows; none when what it keeps is of this process alone.
    pub(super) fn database_scope(&self) -> Option<DatabaseScope> {
        self.conversations.database_scope()
    }

    /// Looks for the conversation of a turn.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub(super) async fn prepare_turn(&self, turn: ChatTurn) -> Result<PreparedTurn, TurnError> {
        let ChatTurn { caller, conversation, may_create: may_begin, message } = turn;
        let (id, messages) = match conversation {
            None => (ConversationId::random()?, Vec::new()),
            Some(id) => match self.conversations.history(&id, &caller.user).await? {
                History::Known(messages) => (id, messages),
                History::Unknown if may_begin => (id, Vec::new()),
                History::Unknown | History::Foreign => return Err(TurnError::NoConversation(id)),
            },
        };
        Ok(PreparedTurn { caller, id, messages, message })
    }

    /// Answers. Text goes to `tokens` as it comes, and which tools are called, when somebody listens. Dropping the future ends the turn.
    ///
    /// # Errors
    /// The model failed, or the conversation cannot be kept; a tool that fails is the model's business.
    pub(super) async fn respond(
        &self,
        turn: PreparedTurn,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<ChatReply, TurnError> {
        let PreparedTurn { caller, id, mut messages, message } = turn;
        let before = messages.len();
        messages.push(Arc::new(Message::user(message.as_str())));

        let mut request = self.request(messages);
        // The title is asked for meanwhile; a turn that fails does not wait for it.
        let title = async { if before > 0 { Ok(None) } else { Ok(Some(self.background.title(&message).await)) } };
        let (reply, title) = futures::try_join!(self.converse(&caller, &mut request, tokens), title)?;
        let turn = request.messages.split_off(before);
        if !self.conversations.add(&id, &caller.user, turn, title.as_deref()).await? {
            return Err(TurnError::NoConversation(id));
        }
        Ok(ChatReply { reply: reply.text, conversation_id: id.to_string(), title })
    }

    /// Answers the last of `messages`, which are the whole conversation; nothing is remembered. `config` and `output` are
    /// the model's. Dropping the future ends the turn.
    ///
    /// # Errors
    /// The model failed; a tool that fails is the model's business.
    pub(super) async fn complete(
        &self,
        caller: &CallerContext,
        messages: Vec<Arc<Message>>,
        config: Map<String, Value>,
        output: Option<OutputFormat>,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, ModelError> {
        let mut request = ModelRequest { config: config.into(), output, ..self.request(messages) };
        self.converse(caller, &mut request, tokens).await
    }

    fn request(&self, messages: Vec<Arc<Message>>) -> ModelRequest {
        ModelRequest {
            system: self.system_prompt.clone(),
            messages,
            tools: self.tools.specs(),
            ..ModelRequest::default()
        }
    }

    async fn converse(
        &self,
        caller: &CallerContext,
        request: &mut ModelRequest,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, ModelError> {
        let mut line = AccessLog { caller, began: Instant::now(), tools: Vec::new(), outcome: "cut off" };
        let before = request.messages.len();
        let talk = turn::TurnLoop { model: &*self.model, tools: &self.tools, events: tokens };
        let said = talk.run(request, &mut { TOOL_TURNS }).await;
        let name = |message: &Arc<Message>| match &**message {
            // A model may ask for anything.
            Message::Call(call) => Some(call.name.chars().take(64).collect()),
            _ => None,
        };
        line.tools = request.messages[before..].iter().filter_map(name).collect();
        line.outcome = if said.is_ok() { "answered" } else { "failed" };
        said
    }

    /// Whether its conversations can be read and kept now.
    ///
    /// # Errors
    /// Why not, as a sentence for `/readyz`.
    pub(super) async fn check(&self) -> Result<(), String> {
        self.conversations.check().await.map_err(|error| format!("conversations: {error}"))
    }
}

/// Access log: one line per turn, written when it ends, however it ends. Nothing of what was said is in it.
struct AccessLog<'a> {
    caller: &'a CallerContext,
    began: Instant,
    /// Names of the tools that were called.
    tools: Vec<String>,
    outcome: &'static str,
}

impl Drop for AccessLog<'_> {
    fn drop(&mut self) {
        let CallerContext { user, trace_id: run } = self.caller;
        let took = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let tools = self.tools.join(",");
        tracing::info!(user = user.as_deref(), run, took_ms = took, tools, outcome = self.outcome, "turn");
    }
}
