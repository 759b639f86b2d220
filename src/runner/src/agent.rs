//! Runs one turn of a conversation: from a user's message to the model's answer.
//!
//! Only a finished turn is stored: one that fails, whose client disconnects, or that [waits](super::parking) leaves the conversation
//! unchanged.

use std::{sync::Arc, time::Instant};

use crds::usage::Purpose;
use serde_json::{Map, Value};
use telemetry::semconv::GEN_AI_CONVERSATION_ID;
use tokio::sync::mpsc::Sender;

use super::{
    Lookup,
    caller::CallerContext,
    chat_reply::ChatReply,
    config::RunnerConfig,
    conversations::{
        Conversations,
        history::{ConversationId, History, StoredConversation, TurnStorage, UserName},
    },
    database::{DatabaseError, DatabaseScope},
    models::{self, Http, Message, Model, ModelError, ModelRequest, OutputFormat},
    parking::{OpenTurn, ParkedTurns},
    tools::Toolbox,
    turn::{self, TOOL_TURNS, TurnOutcome},
    turn_event::TurnEvent,
};

/// Agent that can answer.
pub(super) struct Agent {
    pub(super) name: Arc<str>,
    pub(super) model: Arc<dyn Model>,
    background: Arc<dyn Model>,
    system_prompt: Option<Arc<str>>,
    pub(super) tools: Toolbox,
    pub(super) conversations: Conversations,
    /// Turns that wait for their callers.
    pub(super) parked: ParkedTurns,
}

/// Request for one turn.
pub(super) struct ChatTurn {
    /// Caller of the turn.
    pub(super) caller: CallerContext,
    /// Conversation to continue; `None` starts one.
    pub(super) conversation: Option<ConversationId>,
    /// Allows that conversation to be created by this turn.
    pub(super) may_create: bool,
    /// Lets calls that the caller has to approve wait; otherwise they are refused.
    pub(super) may_wait: bool,
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
    may_wait: bool,
    /// Task of Agent2Agent that it answers, whose status says what waits in place of the text.
    a2a_task: Option<String>,
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
    /// The first turn of the conversation is parked.
    #[error("the turn before is not over: approve or reject its calls, or wait until it has gone on")]
    Waits,
    /// This process ends, and has given the turn back.
    #[error("this replica ends, and the turn goes on at another one: send the decision again")]
    Draining,
    /// The database did not answer before a call of a parked turn.
    #[error(
        "the turn stopped before a call, because the database did not answer: it goes on by itself, or, where it needs \
         its caller, once the same decision is sent again: {0}"
    )]
    Interrupted(DatabaseError),
    /// Another process has claimed the turn.
    #[error("another replica goes on with this turn: its answer will be in the conversation")]
    ClaimLost,
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

    /// Returns the turn as the answer to a task of Agent2Agent.
    pub(super) fn answering(self, a2a_task: &str) -> Self {
        Self { a2a_task: Some(a2a_task.to_owned()), ..self }
    }
}

impl Agent {
    /// Creates the agent that `config` describes; `credentials` looks up its models' API keys, and `http` is their client.
    ///
    /// # Errors
    /// The reason why this runtime cannot serve it, as a sentence for `/readyz`.
    pub(super) fn new(
        config: &RunnerConfig,
        tools: Toolbox,
        credentials: &Lookup,
        http: &Http,
    ) -> Result<Self, String> {
        let background = config.background.as_ref().map(|reference| models::open(reference, credentials, http));
        let background = background.transpose()?;
        // Only flows have credentials in files.
        let own = models::FallbackSources { variables: credentials, folder: &|_| None };
        let model = models::open_chain(&config.model, &config.fallbacks, credentials, own, http)?;
        let conversations = Conversations::open(&config.storage, &config.agent)?;
        let prompt = config.system_prompt.clone();
        let agent = Self::with(model.clone(), background.unwrap_or(model), prompt, tools);
        let parked = ParkedTurns::open(conversations.database_scope());
        Ok(Self { name: config.agent.as_str().into(), conversations, parked, ..agent })
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
        let parked = ParkedTurns::open(None);
        Self { name, model, background, system_prompt, tools, conversations, parked }
    }

    /// Replaces the conversation store.
    #[cfg(test)]
    pub(super) fn with_conversations(self, conversations: Conversations) -> Self {
        let parked = ParkedTurns::open(conversations.database_scope());
        Self { conversations, parked, ..self }
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
        let ChatTurn { caller, conversation, may_create: may_begin, may_wait, message } = turn;
        if self.model.needs_key() && caller.key.is_none() {
            return Err(ModelError::no_key().into());
        }
        let (id, messages) = match conversation {
            None => (ConversationId::random()?, Vec::new()),
            Some(id) => match self.conversations.history(&id, &caller.user).await? {
                History::Known(StoredConversation { messages, .. }) => (id, messages),
                History::Unknown if may_begin => (id, Vec::new()),
                History::Unknown => {
                    // It is stored once its first turn has ended.
                    let waits = self.parked.is_open(&id, &caller.user).await?;
                    return Err(if waits { TurnError::Waits } else { TurnError::NoConversation(id) });
                }
                History::Foreign => return Err(TurnError::NoConversation(id)),
            },
        };
        Ok(PreparedTurn { caller, id, messages, message, may_wait, a2a_task: None })
    }

    /// Answers the turn and stores it, or parks it where calls wait for the caller. With `tokens`, text and tool calls are sent there as
    /// they happen. Dropping the future cancels the turn.
    ///
    /// # Errors
    /// The model failed, or the conversation cannot be stored. An error of a tool goes to the model instead.
    pub(super) async fn respond(
        &self,
        turn: PreparedTurn,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<ChatReply, TurnError> {
        let PreparedTurn { caller, id, mut messages, message, may_wait, a2a_task } = turn;
        let span = caller.account.trace().begin_turn(&self.name);
        span.set(GEN_AI_CONVERSATION_ID, id.to_string());
        let caller = caller.within(span.scope());
        let before = messages.len();
        messages.push(Arc::new(Message::user(message.as_str())));

        let mut turn = OpenTurn {
            conversation: id,
            title: None,
            request: self.request(messages),
            earlier: before,
            tool_turns: TOOL_TURNS,
            text: String::new(),
            round: 0,
            a2a_task,
        };
        // A call that could not wait must not be found out after others were made.
        let may_wait = may_wait && self.can_park().await;
        // The title is generated concurrently; a turn that fails does not wait for it.
        let title = async {
            if before > 0 {
                return Ok(None);
            }
            let account = caller.account.clone().with_purpose(Purpose::Title);
            Ok(Some(self.background.title(&message, caller.key.clone(), account).await))
        };
        let answer = self.converse(&caller, &mut turn.request, tokens, &mut turn.tool_turns, may_wait);
        let (mut outcome, title) = match futures::try_join!(answer, title) {
            Ok(both) => both,
            Err(error) => {
                span.end_turn(Err(error.word()));
                return Err(error.into());
            }
        };
        turn.title = title;
        let parked = self.park(&caller, &mut turn, None, &mut outcome, tokens).await?;
        span.end_turn(Ok(&outcome));
        let OpenTurn { conversation, title, mut request, a2a_task, .. } = turn;
        let TurnOutcome { text, answerers, .. } = outcome;
        let mut reply =
            ChatReply { reply: text, conversation_id: conversation.to_string(), title, answerers, parked: None };
        if let Some(parked) = parked {
            reply.park(parked, tokens.filter(|_| a2a_task.is_none())).await;
            return Ok(reply);
        }
        let messages = request.messages.split_off(before);
        if !self.conversations.add(&conversation, &caller.user, messages, reply.title.as_deref()).await? {
            return Err(TurnError::NoConversation(conversation));
        }
        Ok(reply)
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
        let outcome = self.converse(caller, &mut request, tokens, &mut { TOOL_TURNS }, false).await;
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

    /// Returns a request to the model with these messages.
    pub(super) fn request(&self, messages: Vec<Arc<Message>>) -> ModelRequest {
        ModelRequest {
            system: self.system_prompt.clone(),
            messages,
            tools: self.tools.specs(),
            ..ModelRequest::default()
        }
    }

    /// Lets the model answer the last message of the request for this caller, with at most `tool_turns` tool turns. Calls that the
    /// caller has to approve wait only where they may.
    pub(super) async fn converse(
        &self,
        caller: &CallerContext,
        request: &mut ModelRequest,
        tokens: Option<&Sender<TurnEvent>>,
        tool_turns: &mut usize,
        may_wait: bool,
    ) -> Result<TurnOutcome, ModelError> {
        let mut line =
            AccessLog { caller, began: Instant::now(), tools: Vec::new(), models: Vec::new(), outcome: "cut off" };
        let before = request.messages.len();
        request.key = caller.key.clone();
        request.account = caller.account.clone();
        let tools = self.tools.for_request(&caller.headers, &caller.account);
        let talk = turn::TurnLoop { model: &*self.model, tools: &tools, events: tokens, may_wait };
        let outcome = talk.run(request, tool_turns).await;
        let name = |message: &Arc<Message>| match &**message {
            // The name comes from the model and may be of any length.
            Message::Call(call) => Some(call.name.chars().take(64).collect()),
            _ => None,
        };
        line.tools = request.messages[before..].iter().filter_map(name).collect();
        line.outcome = match &outcome {
            Ok(outcome) if outcome.waiting.is_empty() => "answered",
            Ok(_) => "waits",
            Err(_) => "failed",
        };
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

    /// Checks that conversations can be read and written, and that turns can wait where tools ask.
    ///
    /// # Errors
    /// The reason why not, as a sentence for `/readyz`.
    pub(super) async fn check(&self) -> Result<(), String> {
        self.conversations.check().await.map_err(|error| format!("conversations: {error}"))?;
        if self.asks_callers() {
            self.parked.check().await.map_err(|error| format!("turns that wait for a person: {error}"))?;
        }
        Ok(())
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
