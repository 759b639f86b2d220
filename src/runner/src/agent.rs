//! Runs one turn of a conversation: from a user's message to the model's answer.
//!
//! Only a finished turn is stored: one that fails, or whose client disconnects, leaves the conversation unchanged.

use std::{sync::Arc, time::Instant};

use crds::usage::Purpose;
use serde::Serialize;
use serde_json::{Map, Value};
use telemetry::semconv::GEN_AI_CONVERSATION_ID;
use tokio::sync::mpsc::Sender;

use super::{
    Lookup,
    caller::CallerContext,
    config::RunnerConfig,
    conversations::{
        Conversations,
        history::{ConversationId, History, StoredConversation, TurnStorage, UserName},
    },
    database::{DatabaseError, DatabaseScope},
    models::{self, Answerer, Http, Message, Model, ModelError, ModelRequest, OutputFormat},
    tools::Toolbox,
    turn::{self, TOOL_TURNS, TurnOutcome},
    turn_event::TurnEvent,
    usage::UsageLedger,
};

/// Agent that can answer.
pub(super) struct Agent {
    name: Arc<str>,
    model: Arc<dyn Model>,
    background: Arc<dyn Model>,
    system_prompt: Option<Arc<str>>,
    tools: Toolbox,
    conversations: Conversations,
}

/// Request for one turn.
pub(super) struct ChatTurn {
    /// Caller of the turn.
    pub(super) caller: CallerContext,
    /// Conversation to continue; `None` starts one.
    pub(super) conversation: Option<ConversationId>,
    /// Allows that conversation to be created by this turn.
    pub(super) may_create: bool,
    /// Message of the user.
    pub(super) message: String,
}

/// Conversation that keeps a turn once it is answered.
#[derive(Debug)]
pub(super) struct TurnRecord {
    /// Conversation; begun by the turn if it does not exist.
    pub(super) conversation: ConversationId,
    /// Number of the request's first messages that are not part of the turn.
    pub(super) earlier: usize,
    /// Number of turns that the conversation has had, if the turn continues one.
    pub(super) turns: Option<i64>,
}

/// Turn whose conversation has been loaded, or will be created by it.
pub(super) struct PreparedTurn {
    caller: CallerContext,
    id: ConversationId,
    /// Messages of the earlier turns.
    messages: Vec<Arc<Message>>,
    message: String,
}

/// Body of a JSON answer.
#[derive(Debug, Serialize)]
pub(super) struct ChatReply {
    /// Whole text of the model.
    pub(super) reply: String,
    /// Id by which the conversation is continued.
    pub(super) conversation_id: String,
    /// Title of the conversation; only with its first reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<String>,
    /// Model that answered each request of the turn.
    #[serde(skip)]
    pub(super) answerers: Vec<Answerer>,
}

/// Failure of a turn.
#[derive(Debug, thiserror::Error)]
pub(super) enum TurnError {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The conversation does not exist, or is another user's.
    #[error(
        "unknown conversation `{0}`: it was never begun, has been forgotten, or is another user's; leave its id out to \
         begin one"
    )]
    NoConversation(ConversationId),
    /// Another turn has followed the one that this turn continues.
    #[error(
        "another response continued the same one meanwhile, so this one was not kept: continue the last response of the \
         conversation"
    )]
    Overtaken,
    /// No random id can be generated.
    #[error("the system has no random numbers to name a conversation with: {0}")]
    Random(#[from] getrandom::Error),
    /// The conversation cannot be read, or the turn not be stored.
    #[error("the conversation cannot be kept now, try again: {0}")]
    Conversations(#[from] DatabaseError),
}

impl PreparedTurn {
    /// Returns the id of the conversation.
    pub(super) fn id(&self) -> &ConversationId {
        &self.id
    }
}

impl Agent {
    /// Creates the agent that `config` describes; `credentials` looks up its models' API keys, and `usage` counts what they use.
    ///
    /// # Errors
    /// The reason why this runtime cannot serve it, as a sentence for `/readyz`.
    pub(super) fn new(
        config: &RunnerConfig,
        tools: Toolbox,
        credentials: &Lookup,
        usage: UsageLedger,
    ) -> Result<Self, String> {
        let http = Http::counting(usage);
        let background = config.background.as_ref().map(|reference| models::open(reference, credentials, &http));
        let background = background.transpose()?;
        // Only flows have credentials in files.
        let own = models::FallbackSources { variables: credentials, folder: &|_| None };
        let model = models::open_chain(&config.model, &config.fallbacks, credentials, own, &http)?;
        let conversations = Conversations::open(&config.storage, &config.agent)?;
        let prompt = config.system_prompt.clone();
        let agent = Self::with(model.clone(), background.unwrap_or(model), prompt, tools);
        Ok(Self { name: config.agent.as_str().into(), conversations, ..agent })
    }

    /// Creates an agent around `model`, with conversations in memory; `background` generates their titles.
    pub(super) fn with(
        model: Arc<dyn Model>,
        background: Arc<dyn Model>,
        system_prompt: Option<String>,
        tools: Toolbox,
    ) -> Self {
        let conversations = Conversations::memory();
        let (name, system_prompt) = ("agent".into(), system_prompt.map(Into::into));
        Self { name, model, background, system_prompt, tools, conversations }
    }

    /// Replaces the conversation store.
    #[cfg(test)]
    pub(super) fn with_conversations(self, conversations: Conversations) -> Self {
        Self { conversations, ..self }
    }

    /// Returns the database and scope of the agent's rows; `None` when conversations are in memory.
    pub(super) fn database_scope(&self) -> Option<DatabaseScope> {
        self.conversations.database_scope()
    }

    /// Loads the conversation of a turn.
    ///
    /// # Errors
    /// It does not exist, or cannot be read.
    pub(super) async fn prepare_turn(&self, turn: ChatTurn) -> Result<PreparedTurn, TurnError> {
        let ChatTurn { caller, conversation, may_create: may_begin, message } = turn;
        if self.model.needs_key() && caller.key.is_none() {
            return Err(ModelError::no_key().into());
        }
        let (id, messages) = match conversation {
            None => (ConversationId::random()?, Vec::new()),
            Some(id) => match self.conversations.history(&id, &caller.user).await? {
                History::Known(StoredConversation { messages, .. }) => (id, messages),
                History::Unknown if may_begin => (id, Vec::new()),
                History::Unknown | History::Foreign => return Err(TurnError::NoConversation(id)),
            },
        };
        Ok(PreparedTurn { caller, id, messages, message })
    }

    /// Answers the turn and stores it. With `tokens`, text and tool calls are sent there as they happen. Dropping the
    /// future cancels the turn.
    ///
    /// # Errors
    /// The model failed, or the conversation cannot be stored. An error of a tool goes to the model instead.
    pub(super) async fn respond(
        &self,
        turn: PreparedTurn,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<ChatReply, TurnError> {
        let PreparedTurn { caller, id, mut messages, message } = turn;
        let span = caller.account.trace().begin_turn(&self.name);
        span.set(GEN_AI_CONVERSATION_ID, id.to_string());
        let caller = caller.within(span.scope());
        let before = messages.len();
        messages.push(Arc::new(Message::user(message.as_str())));

        let mut request = self.request(messages);
        // The title is generated concurrently; a turn that fails does not wait for it.
        let title = async {
            if before > 0 {
                return Ok(None);
            }
            let account = caller.account.clone().with_purpose(Purpose::Title);
            Ok(Some(self.background.title(&message, caller.key.clone(), account).await))
        };
        let (reply, title) = match futures::try_join!(self.converse(&caller, &mut request, tokens), title) {
            Ok(both) => both,
            Err(error) => {
                span.end_turn(Err(error.word()));
                return Err(error.into());
            }
        };
        span.end_turn(Ok(&reply));
        let turn = request.messages.split_off(before);
        if !self.conversations.add(&id, &caller.user, turn, title.as_deref()).await? {
            return Err(TurnError::NoConversation(id));
        }
        Ok(ChatReply { reply: reply.text, conversation_id: id.to_string(), title, answerers: reply.answerers })
    }

    /// Returns a conversation.
    ///
    /// # Errors
    /// It does not exist for this user, or cannot be read.
    pub(super) async fn history(&self, id: &ConversationId, user: &UserName) -> Result<StoredConversation, TurnError> {
        match self.conversations.history(id, user).await? {
            History::Known(conversation) => Ok(conversation),
            History::Unknown | History::Foreign => Err(TurnError::NoConversation(id.clone())),
        }
    }

    /// Answers the last of `messages`, which are the whole conversation; only with a `record` the turn is stored. `config`
    /// and `output` are passed to the model. Dropping the future cancels the turn.
    ///
    /// # Errors
    /// The model failed, or the turn cannot be stored. An error of a tool goes to the model instead.
    pub(super) async fn complete(
        &self,
        caller: &CallerContext,
        messages: Vec<Arc<Message>>,
        config: Map<String, Value>,
        output: Option<OutputFormat>,
        record: Option<TurnRecord>,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<TurnOutcome, TurnError> {
        let span = caller.account.trace().begin_turn(&self.name);
        if let Some(record) = &record {
            span.set(GEN_AI_CONVERSATION_ID, record.conversation.to_string());
        }
        let caller = &caller.clone().within(span.scope());
        let mut request = ModelRequest { config: config.into(), output, ..self.request(messages) };
        let outcome = self.converse(caller, &mut request, tokens).await;
        span.end_turn(outcome.as_ref().map_err(ModelError::word));
        let outcome = outcome?;
        if let Some(TurnRecord { conversation, earlier, turns }) = record {
            let turn = request.messages.split_off(earlier);
            match self.conversations.add_after(turns, &conversation, &caller.user, turn, None).await? {
                TurnStorage::Stored => {}
                TurnStorage::Foreign => return Err(TurnError::NoConversation(conversation)),
                TurnStorage::Overtaken => return Err(TurnError::Overtaken),
            }
        }
        Ok(outcome)
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
        let mut line =
            AccessLog { caller, began: Instant::now(), tools: Vec::new(), models: Vec::new(), outcome: "cut off" };
        let before = request.messages.len();
        request.key = caller.key.clone();
        request.account = caller.account.clone();
        let tools = self.tools.for_request(&caller.headers, &caller.account);
        let talk = turn::TurnLoop { model: &*self.model, tools: &tools, events: tokens };
        let outcome = talk.run(request, &mut { TOOL_TURNS }).await;
        let name = |message: &Arc<Message>| match &**message {
            // The name comes from the model and may be of any length.
            Message::Call(call) => Some(call.name.chars().take(64).collect()),
            _ => None,
        };
        line.tools = request.messages[before..].iter().filter_map(name).collect();
        line.outcome = if outcome.is_ok() { "answered" } else { "failed" };
        line.models = outcome.as_ref().map(|outcome| models::answerer_names(&outcome.answerers)).unwrap_or_default();
        outcome
    }

    /// Returns the names of the models that may answer, the first one first.
    pub(super) fn models(&self) -> Vec<Arc<str>> {
        self.model.names()
    }

    /// Returns why the first model did not answer last, in a few words, if others stand in for it.
    pub(super) fn model_failure(&self) -> Option<Arc<str>> {
        self.model.failure()
    }

    /// Checks that conversations can be read and written.
    ///
    /// # Errors
    /// The reason why not, as a sentence for `/readyz`.
    pub(super) async fn check(&self) -> Result<(), String> {
        self.conversations.check().await.map_err(|error| format!("conversations: {error}"))
    }
}

/// Access log: one line per turn, written on drop, so also for a canceled turn. It holds no message text.
struct AccessLog<'a> {
    caller: &'a CallerContext,
    began: Instant,
    /// Names of the tools that were called.
    tools: Vec<String>,
    /// Models that answered, each once.
    models: Vec<Arc<str>>,
    outcome: &'static str,
}

impl Drop for AccessLog<'_> {
    fn drop(&mut self) {
        let CallerContext { user, account, .. } = self.caller;
        let run = account.trace().run_id();
        let took = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (tools, models) = (self.tools.join(","), self.models.join(","));
        tracing::info!(user = user.as_deref(), run, took_ms = took, tools, models, outcome = self.outcome, "turn");
    }
}
