//! Parks a turn of an agent, and goes on with it once its calls are decided.

use std::sync::Arc;

use telemetry::semconv::GEN_AI_CONVERSATION_ID;
use tokio::sync::mpsc::Sender;

use super::{
    agent::{Agent, TurnError},
    caller::CallerContext,
    chat_reply::ChatReply,
    conversations::history::{ConversationId, History, StoredConversation, TurnStorage, UserName},
    models::{Message, ModelError, ModelRequest, ToolCall},
    parking::{
        CallProgress, Claim, ClaimedTurn, DecisionError, Decisions, ParkedReply, ParkedTurn, Progress, RENEWAL, Ruling,
        StoppedTurn, WaitingTurn, sort_results,
    },
    tools::Consent,
    turn::{TurnLoop, TurnOutcome},
    turn_event::TurnEvent,
    usage::UsageAccount,
};

/// Answer to the model for a call of which nobody knows whether it was sent.
const UNKNOWN_EFFECT: &str = "the runtime died while it ran: its effect is unknown";

/// Turn that was continued up to its end, or to further calls that wait.
struct ContinuedTurn {
    request: ModelRequest,
    earlier: usize,
    tool_turns: usize,
    /// Outcome since the turn was continued.
    outcome: TurnOutcome,
}

impl Agent {
    /// Returns what a stopped turn needs to go on.
    fn parked_turn(&self, stopped: &StoppedTurn<'_>) -> ParkedTurn {
        let patience = stopped.calls.iter().filter_map(|call| self.tools.patience(call)).min();
        ParkedTurn {
            conversation: stopped.conversation.clone(),
            title: stopped.title.map(str::to_owned),
            messages: stopped.request.messages[stopped.earlier..].iter().map(|message| (**message).clone()).collect(),
            calls: stopped.calls.to_vec(),
            patience: patience.unwrap_or_default().as_secs(),
            tool_turns: stopped.tool_turns,
            fallback: stopped.request.fallback.as_deref().map(str::to_owned),
            text: stopped.text.to_owned(),
            needs_caller: self.model.needs_key() || self.tools.forwards_headers(),
        }
    }

    /// Parks a stopped turn of `user`; `None` when too many are parked.
    ///
    /// # Errors
    /// The turn cannot be stored.
    pub(crate) async fn park(
        &self,
        user: &UserName,
        stopped: &StoppedTurn<'_>,
    ) -> Result<Option<ParkedReply>, TurnError> {
        let (task, turn) = (ConversationId::random()?, self.parked_turn(stopped));
        let expires = self.parked.park(&task, user, &turn).await?;
        Ok(expires.map(|expires| ParkedReply::new(task.as_str(), &turn, expires)))
    }

    /// Returns the turns that wait for a decision of `user`.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) async fn waiting(&self, user: &UserName) -> Result<Vec<WaitingTurn>, TurnError> {
        Ok(self.parked.waiting(user).await?)
    }

    /// Reports whether a turn of this conversation of `user` waits for a decision.
    ///
    /// # Errors
    /// The turns cannot be read.
    pub(crate) async fn is_waiting(&self, conversation: &ConversationId, user: &UserName) -> Result<bool, TurnError> {
        Ok(self.parked.waiting(user).await?.iter().any(|turn| turn.is_of(conversation)))
    }

    /// Returns the turn of this task, if it waits for a decision of `user`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) async fn waiting_for(&self, task: &str, user: &UserName) -> Result<Option<WaitingTurn>, TurnError> {
        Ok(self.parked.waiting_for(task, user).await?)
    }

    /// Takes the decision of the caller on a turn of this caller, and claims the turn.
    ///
    /// # Errors
    /// The reason why the decision is not taken; nothing has changed.
    pub(crate) async fn decide(
        &self,
        task: &str,
        caller: &CallerContext,
        decisions: Decisions,
    ) -> Result<ClaimedTurn, DecisionError> {
        if self.model.needs_key() && caller.key.is_none() {
            return Err(ModelError::no_key().into());
        }
        let claimed = self.parked.decide(task, &caller.user, decisions).await?;
        tracing::info!(user = caller.user.as_deref(), task, "calls that waited were decided on");
        Ok(claimed)
    }

    /// Claims a turn that is to be continued without its caller, and returns it with what is known of that caller.
    pub(crate) async fn claim_due(&self) -> Option<(ClaimedTurn, CallerContext)> {
        let claimed = match self.parked.claim_due().await {
            Ok(claimed) => claimed?,
            Err(error) => {
                // Each request that needs the database says so itself.
                tracing::debug!("parked turns were not looked for: {error}");
                return None;
            }
        };
        let user = claimed.owner.clone();
        let account = UsageAccount::new(user.as_deref().unwrap_or_default());
        Some((claimed, CallerContext { user, account, ..CallerContext::default() }))
    }

    /// Reports whether turns of this agent may wait for a person.
    pub(crate) fn asks_callers(&self) -> bool {
        self.tools.asks_callers()
    }

    /// Goes on with a claimed turn and stores it at its end, or parks it anew. With `tokens`, text and tool calls are sent there as they
    /// happen. A model that fails ends the turn with a note, because its calls were made.
    ///
    /// # Errors
    /// The claim is lost, or the turn cannot be stored: whoever claims it next goes on with it.
    pub(crate) async fn resume(
        &self,
        claimed: ClaimedTurn,
        caller: CallerContext,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<ChatReply, TurnError> {
        let span = caller.account.trace().begin_turn(&self.name);
        span.set(GEN_AI_CONVERSATION_ID, claimed.turn.conversation.to_string());
        let caller = caller.within(span.scope());
        let ClaimedTurn { claim, owner, turn, ruling, progress } = claimed;
        let (conversation, title, said) = (turn.conversation.clone(), turn.title.clone(), turn.text.clone());
        let continued = tokio::select! {
            continued = self.go_on(&claim, turn, ruling.as_ref(), progress, &caller, tokens) => continued?,
            () = self.keep(&claim) => return Err(TurnError::ClaimLost),
        };
        span.end_turn(Ok(&continued.outcome));
        let ContinuedTurn { mut request, earlier, tool_turns, outcome } = continued;
        let mut reply = ChatReply {
            reply: said + &outcome.text,
            conversation_id: conversation.to_string(),
            title,
            answerers: outcome.answerers,
            parked: None,
        };
        if !outcome.waiting.is_empty() {
            let stopped = StoppedTurn {
                conversation: &conversation,
                title: reply.title.as_deref(),
                request: &request,
                earlier,
                tool_turns,
                text: &reply.reply,
                calls: &outcome.waiting,
            };
            let (task, turn) = (ConversationId::random()?, self.parked_turn(&stopped));
            let expires = self.parked.park_again(&claim, &task, &turn).await?.ok_or(TurnError::ClaimLost)?;
            reply.park(ParkedReply::new(task.as_str(), &turn, expires), tokens).await;
            return Ok(reply);
        }
        let messages = request.messages.split_off(earlier);
        if !self.parked.forget(&claim) {
            return Err(TurnError::ClaimLost);
        }
        let title = reply.title.as_deref();
        match self.conversations.add_claimed(&claim, &conversation, &owner, messages, title).await? {
            TurnStorage::Stored => Ok(reply),
            TurnStorage::Foreign => Err(TurnError::NoConversation(conversation)),
            TurnStorage::Overtaken => Err(TurnError::ClaimLost),
        }
    }

    /// Renews the claim until it is lost.
    async fn keep(&self, claim: &Claim) {
        loop {
            tokio::time::sleep(RENEWAL).await;
            match self.parked.renew(claim).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => tracing::warn!("the claim on a parked turn was not renewed: {error}"),
            }
        }
    }

    /// Makes the approved calls and lets the model go on with the results.
    async fn go_on(
        &self,
        claim: &Claim,
        turn: ParkedTurn,
        ruling: Option<&Ruling>,
        mut progress: Progress,
        caller: &CallerContext,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<ContinuedTurn, TurnError> {
        let ParkedTurn { conversation, messages, calls, patience, mut tool_turns, fallback, .. } = turn;
        let mut all = match self.conversations.history(&conversation, &caller.user).await? {
            History::Known(StoredConversation { messages, .. }) => messages,
            History::Unknown => Vec::new(),
            History::Foreign => return Err(TurnError::NoConversation(conversation)),
        };
        let earlier = all.len();
        all.extend(messages.into_iter().map(Arc::new));
        let mut request = ModelRequest { fallback: fallback.map(Into::into), ..self.request(all) };

        let tools = self.tools.for_request(&caller.headers, &caller.account);
        let maker = TurnLoop { model: &*self.model, tools: &tools, events: tokens, may_wait: true };
        for call in &calls {
            let ToolCall { id, name, .. } = call;
            let consent = match ruling {
                Some(ruling) => ruling.check(call),
                None => Err(format!("nobody approved this call within {patience} s")),
            };
            let outcome = match (consent, progress.get(id).cloned()) {
                (Err(refusal), _) => Err(refusal),
                (Ok(()), Some(CallProgress::Finished(outcome))) => outcome,
                (Ok(()), Some(CallProgress::Started)) if !tools.may_repeat(call) => Err(UNKNOWN_EFFECT.to_owned()),
                (Ok(()), Some(CallProgress::Started) | None) => {
                    progress.insert(id.clone(), CallProgress::Started);
                    self.record(claim, &progress).await?;
                    let key = format!("{}.{id}", claim.task);
                    let outcome = maker.make_call(call, Consent::Given(&key)).await;
                    progress.insert(id.clone(), CallProgress::Finished(outcome.clone()));
                    self.record(claim, &progress).await?;
                    outcome
                }
            };
            request.messages.push(Arc::new(Message::ToolResult { id: id.clone(), name: name.clone(), outcome }));
        }
        sort_results(&mut request.messages);

        let outcome = match self.converse(caller, &mut request, tokens, &mut tool_turns, true).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let note = format!("[stopped: {error}]");
                request.messages.push(Arc::new(Message::Assistant(note.clone())));
                if let Some(tokens) = tokens {
                    let _ = tokens.send(TurnEvent::Text(note.clone())).await;
                }
                TurnOutcome { text: note, ..TurnOutcome::default() }
            }
        };
        Ok(ContinuedTurn { request, earlier, tool_turns, outcome })
    }

    /// Stores how far the approved calls are.
    ///
    /// # Errors
    /// The claim is lost, or the database did not take it.
    async fn record(&self, claim: &Claim, progress: &Progress) -> Result<(), TurnError> {
        if self.parked.record(claim, progress).await? { Ok(()) } else { Err(TurnError::ClaimLost) }
    }
}
