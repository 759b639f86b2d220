//! Parks a turn of an agent, and goes on with it once its calls are decided.

use std::{mem, sync::Arc};

use telemetry::semconv::GEN_AI_CONVERSATION_ID;
use tokio::sync::mpsc::Sender;
use tokio_util::task::TaskTracker;

use super::{
    agent::{Agent, TurnError},
    caller::CallerContext,
    chat_reply::ChatReply,
    conversations::history::{History, StoredConversation, UserName},
    models::{Message, ModelRequest, ToolCall},
    parking::{
        CallProgress, Claim, ClaimedTurn, DecisionError, Decisions, ForcedEnd, OpenTurn, ParkResult, ParkedReply,
        ParkedTurn, Progress, WaitingTurn, a2a_task_of, parked_id, sort_results,
    },
    tools::Consent,
    turn::{TurnLoop, TurnOutcome},
    turn_event::TurnEvent,
    usage::{UsageAccount, UsageLedger},
};

/// Answer to the model for a call of which it is unknown whether it was sent.
const UNKNOWN_EFFECT: &str = "the runtime died while it ran: its effect is unknown";
/// Answer to the model for an approved call whose tool is another one by now.
const CHANGED: &str =
    "the tool has changed since a person approved this call: it was not made. Call it anew if it is still needed";
/// Answer to the model for a call that cannot wait.
const FULL: &str =
    "refused: a person has to approve this call, and it cannot wait: too many wait already, or they are too large";

impl Agent {
    /// Reports whether turns of this agent may wait for a person.
    pub(crate) fn asks_callers(&self) -> bool {
        self.tools.asks_callers()
    }

    /// Reports whether a call can wait now, which is asked before the first call of a turn is made.
    pub(crate) async fn can_park(&self) -> bool {
        if !self.asks_callers() {
            return false;
        }
        let checked = self.parked.check().await;
        if let Err(error) = &checked {
            tracing::warn!("calls that a person has to approve are refused, because turns cannot be parked: {error}");
        }
        checked.is_ok()
    }

    /// Parks a turn that stops at calls, or lets its model go on without them where they cannot wait. With a claim the turn was parked
    /// before. Returns what waits, if it does.
    ///
    /// # Errors
    /// The claim is lost, or a turn that was parked before cannot be stored.
    pub(crate) async fn park(
        &self,
        caller: &CallerContext,
        turn: &mut OpenTurn,
        claim: Option<&Claim>,
        outcome: &mut TurnOutcome,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<Option<ParkedReply>, TurnError> {
        let calls = mem::take(&mut outcome.waiting);
        if calls.is_empty() {
            return Ok(None);
        }
        let task = parked_id(turn.a2a_task.as_deref())?;
        let parked = self.parked_turn(caller, turn, calls, &outcome.text);
        let result = match claim {
            None => self.parked.park(&task, &caller.user, &parked).await.unwrap_or_else(|error| {
                tracing::warn!(
                    "a call is refused that a person has to approve, because its turn is not parked: {error}"
                );
                ParkResult::Full
            }),
            Some(claim) => self.park_again(claim, &task, &parked).await,
        };
        match result {
            ParkResult::Parked(expires) => {
                self.count_pending().await;
                let reply = ParkedReply::new(task.as_str(), &parked.calls, parked.by, expires);
                outcome.waiting = parked.calls;
                Ok(Some(reply))
            }
            ParkResult::ClaimLost => Err(TurnError::ClaimLost),
            ParkResult::Full => {
                let refusal = |ToolCall { id, name, .. }| Message::ToolResult { id, name, outcome: Err(FULL.into()) };
                turn.request.messages.extend(parked.calls.into_iter().map(|call| Arc::new(refusal(call))));
                sort_results(&mut turn.request.messages);
                let further = self.converse_on(caller, turn, tokens, false).await;
                outcome.text.push_str(&further.text);
                outcome.add(further);
                Ok(None)
            }
        }
    }

    /// Returns what a turn that stops at these calls needs to go on.
    fn parked_turn(&self, caller: &CallerContext, turn: &OpenTurn, calls: Vec<ToolCall>, said: &str) -> ParkedTurn {
        let patience = calls.iter().filter_map(|call| self.tools.patience(call)).min();
        let by = calls.iter().filter_map(|call| self.tools.decider(call)).max().unwrap_or_default();
        let forwarded = self.tools.forwarded(&caller.headers);
        let definition = |call: &ToolCall| Some((call.id.clone(), self.tools.digest(&call.name)?.to_owned()));
        ParkedTurn {
            conversation: turn.conversation.clone(),
            title: turn.title.clone(),
            messages: turn.request.messages[turn.earlier..].iter().map(|message| (**message).clone()).collect(),
            definitions: calls.iter().filter_map(definition).collect(),
            calls,
            by,
            patience: patience.unwrap_or_default().as_secs(),
            round: turn.round + 1,
            tool_turns: turn.tool_turns,
            fallback: turn.request.fallback.as_deref().map(str::to_owned),
            text: format!("{}{said}", turn.text),
            budgets: caller.account.budget_headers().clone(),
            needs_caller: self.model.needs_key() || !forwarded.is_empty(),
            forwarded,
            had_history: turn.earlier > 0,
        }
    }

    /// Returns the turns of `user` that wait for a decision, or are decided and have not ended.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) async fn waiting(&self, user: &UserName) -> Result<Vec<WaitingTurn>, TurnError> {
        Ok(self.parked.waiting(user).await?)
    }

    /// Returns the same of all users, for an approver.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) async fn all_waiting(&self) -> Result<Vec<WaitingTurn>, TurnError> {
        Ok(self.parked.all_waiting().await?)
    }

    /// Returns the turn of this task, if it waits for a decision, or is decided and has not ended, and is of `user`, or for an approver.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) async fn waiting_for(
        &self,
        task: &str,
        user: &UserName,
        is_approver: bool,
    ) -> Result<Option<WaitingTurn>, TurnError> {
        Ok(self.parked.waiting_for(task, user, is_approver).await?)
    }

    /// Takes the decision of the caller, of whom the turn is, or who is an approver, and claims the turn.
    ///
    /// # Errors
    /// The reason why the turn is not claimed. Nothing has changed, but where the decision is [kept](DecisionError::Kept).
    pub(crate) async fn decide(
        &self,
        task: &str,
        caller: &CallerContext,
        decisions: Decisions,
    ) -> Result<ClaimedTurn, DecisionError> {
        let decided = self.parked.decide(task, caller, self.model.needs_key(), decisions).await;
        match &decided {
            Ok(claimed) => self.note_claim(caller, claimed),
            Err(DecisionError::Kept(kept)) => self.note_kept(caller, task, kept).await,
            Err(_) => {}
        }
        decided
    }

    /// Claims a turn of the caller that is decided and needs its headers or key, where the request has these and no process continues the
    /// turn.
    ///
    /// # Errors
    /// The database did not take it, or there are no random numbers.
    pub(crate) async fn claim_decided(
        &self,
        task: &str,
        caller: &CallerContext,
    ) -> Result<Option<ClaimedTurn>, DecisionError> {
        self.parked.claim_decided(task, caller, self.model.needs_key()).await
    }

    /// Claims a turn that is to be continued without its caller, and returns it with what is known of that caller: the name, and the
    /// budgets of the last request.
    pub(crate) async fn claim_due(&self, ledger: &UsageLedger) -> Option<(ClaimedTurn, CallerContext)> {
        let claimed = match self.parked.claim_due().await {
            Ok(claimed) => claimed?,
            Err(error) => {
                // Each request that needs the database says so itself.
                tracing::debug!("parked turns were not looked for: {error}");
                return None;
            }
        };
        self.count_expired(&claimed);
        let owner = claimed.owner_without_request(ledger);
        Some((claimed, owner))
    }

    /// Returns the caller as whom a turn goes on that `decider` has claimed: the user whose turn it is. Of an approver who decided for that
    /// user only the trace is kept.
    pub(crate) fn caller_of(claimed: &ClaimedTurn, decider: CallerContext, ledger: &UsageLedger) -> CallerContext {
        if decider.user == claimed.owner {
            return decider;
        }
        claimed.owner_without_request(ledger).within(decider.account.trace())
    }

    /// Goes on with a claimed turn and stores it at its end, or parks it anew. With `tokens`, text and tool calls are sent there as they
    /// happen. A model that fails ends the turn with a note, because its calls were made. What was made is written until the database takes
    /// it. Once `requests` is closed, no further approved call begins that another process can make.
    ///
    /// # Errors
    /// The claim is lost or was given back, or the database did not answer before a call: the next process to claim the turn continues it.
    pub(crate) async fn resume(
        &self,
        claimed: ClaimedTurn,
        caller: CallerContext,
        requests: &TaskTracker,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<ChatReply, TurnError> {
        let span = caller.account.trace().begin_turn(&self.name);
        span.set(GEN_AI_CONVERSATION_ID, claimed.turn.conversation.to_string());
        let caller = caller.within(span.scope());
        let (claim, owner) = (claimed.claim.clone(), claimed.owner.clone());
        if claimed.ruling.is_none() {
            let (round, refused) = (claimed.turn.round, claimed.turn.tool_names());
            tracing::info!(
                user = owner.as_deref(),
                task = claim.task,
                round,
                refused,
                "no user decided on calls in time"
            );
        }
        self.count_pending().await;
        let going_on = async {
            let (mut turn, mut outcome) = self.go_on(claimed, &caller, requests, tokens).await?;
            let parked = self.park(&caller, &mut turn, Some(&claim), &mut outcome, tokens).await?;
            if parked.is_none() {
                self.store(&claim, &owner, &mut turn).await?;
            }
            Ok::<_, TurnError>((turn, outcome, parked))
        };
        let continued = tokio::select! {
            continued = going_on => continued,
            () = self.keep(&claim) => Err(TurnError::ClaimLost),
        };
        let (turn, outcome, parked) = continued.map_err(|error| match error {
            TurnError::Conversations(error) => TurnError::Interrupted(error),
            other => other,
        })?;
        span.end_turn(Ok(&outcome));
        let OpenTurn { conversation, title, text, .. } = turn;
        let mut reply = ChatReply {
            reply: text + &outcome.text,
            conversation_id: conversation.to_string(),
            title,
            answerers: outcome.answerers,
            parked: None,
        };
        if let Some(parked) = parked {
            reply.park(parked, tokens).await;
        }
        Ok(reply)
    }

    /// Makes the approved calls and lets the model go on with the results; a turn that can only be ended gets a note in place of both.
    async fn go_on(
        &self,
        claimed: ClaimedTurn,
        caller: &CallerContext,
        requests: &TaskTracker,
        tokens: Option<&Sender<TurnEvent>>,
    ) -> Result<(OpenTurn, TurnOutcome), TurnError> {
        let mut forced = claimed.forced_end();
        let ClaimedTurn { claim, owner, turn: parked, ruling, mut progress, .. } = claimed;
        let ParkedTurn { conversation, title, messages, calls, definitions, patience, round, tool_turns, .. } = parked;
        let mut all = match self.conversations.history(&conversation, &owner).await? {
            History::Known(StoredConversation { messages, .. }) => messages,
            History::Unknown => {
                forced = forced.or(parked.had_history.then_some(ForcedEnd::Forgotten));
                Vec::new()
            }
            History::Foreign => return Err(self.give_up(&claim, conversation).await?),
        };
        let earlier = all.len();
        all.extend(messages.into_iter().map(Arc::new));
        let fallback = parked.fallback.map(Into::into);
        let request = ModelRequest { fallback, ..self.request(all) };
        let (text, a2a_task) = (parked.text, a2a_task_of(&claim.task).map(str::to_owned));
        let mut turn = OpenTurn { conversation, title, request, earlier, tool_turns, text, round, a2a_task };

        let tools = self.tools.for_request(&caller.headers, &caller.account);
        let maker = TurnLoop { model: &*self.model, tools: &tools, events: tokens, may_wait: true };
        for call in &calls {
            let ToolCall { id, name, .. } = call;
            let consent = match &ruling {
                Some(ruling) => ruling.check(call),
                None => Err(format!("no user approved this call within {patience} s")),
            };
            let is_same = definitions.get(id).is_some_and(|known| tools.digest(name) == Some(known.as_str()));
            let outcome = match (consent, progress.get(id).cloned()) {
                (Err(refusal), _) => Err(refusal),
                (Ok(()), Some(CallProgress::Finished(outcome))) => outcome,
                (Ok(()), Some(CallProgress::Started)) if forced.is_some() || !is_same || !tools.may_repeat(call) => {
                    Err(UNKNOWN_EFFECT.to_owned())
                }
                (Ok(()), _) => match forced {
                    Some(why) => Err(format!("this call was not made: {why}")),
                    None if !is_same => Err(CHANGED.to_owned()),
                    None => self.make_approved(&maker, call, &claim, &mut progress, requests).await?,
                },
            };
            turn.request.messages.push(Arc::new(Message::ToolResult { id: id.clone(), name: name.clone(), outcome }));
        }
        sort_results(&mut turn.request.messages);
        let outcome = match forced {
            Some(why) => end_with_note(&mut turn, stopped(why), tokens).await,
            None => self.converse_on(caller, &mut turn, tokens, true).await,
        };
        Ok((turn, outcome))
    }

    /// Makes an approved call, which is recorded before and after. The client's event is sent first: one that does not read delays no
    /// call that is recorded as started.
    async fn make_approved(
        &self,
        maker: &TurnLoop<'_>,
        call: &ToolCall,
        claim: &Claim,
        progress: &mut Progress,
        requests: &TaskTracker,
    ) -> Result<Result<String, String>, TurnError> {
        if requests.is_closed() && self.parked.is_shared() {
            self.parked.release(claim).await?;
            return Err(TurnError::Draining);
        }
        maker.announce(call).await;
        progress.insert(call.id.clone(), CallProgress::Started);
        if !self.parked.record(claim, progress).await? {
            return Err(TurnError::ClaimLost);
        }
        let key = format!("{}.{}", claim.task, call.id);
        let (outcome, event) = maker.make_call(call, Consent::Given(&key)).await;
        progress.insert(call.id.clone(), CallProgress::Finished(outcome.clone()));
        self.record_result(claim, progress).await?;
        maker.emit(event).await;
        Ok(outcome)
    }

    /// Lets the model go on with a turn whose calls were made, so that a model that fails ends it with a note.
    async fn converse_on(
        &self,
        caller: &CallerContext,
        turn: &mut OpenTurn,
        tokens: Option<&Sender<TurnEvent>>,
        may_wait: bool,
    ) -> TurnOutcome {
        let before = turn.request.messages.len();
        match self.converse(caller, &mut turn.request, tokens, &mut turn.tool_turns, may_wait).await {
            Ok(outcome) => outcome,
            Err(error) => {
                let said = |message: &Arc<Message>| match &**message {
                    Message::Assistant(text) => Some(text.clone()),
                    _ => None,
                };
                let said: String = turn.request.messages[before..].iter().filter_map(said).collect();
                let ended = end_with_note(turn, stopped(error), tokens).await;
                TurnOutcome { text: said + &ended.text, ..ended }
            }
        }
    }
}

impl ClaimedTurn {
    /// Returns what is known of the user whose turn it is without a request: the name, and the budgets of the last request.
    fn owner_without_request(&self, ledger: &UsageLedger) -> CallerContext {
        let user = self.owner.clone();
        let account = UsageAccount::new(user.as_deref().unwrap_or_default());
        let account = account.with_budget_headers(self.turn.budgets.clone(), ledger);
        CallerContext { user, account, ..CallerContext::default() }
    }
}

fn stopped(why: impl std::fmt::Display) -> String {
    format!("[stopped: {why}]")
}

/// Ends a turn with a note for the user in place of an answer, or of its rest.
async fn end_with_note(turn: &mut OpenTurn, note: String, tokens: Option<&Sender<TurnEvent>>) -> TurnOutcome {
    turn.request.messages.push(Arc::new(Message::Assistant(note.clone())));
    if let Some(tokens) = tokens {
        let _ = tokens.send(TurnEvent::Text(note.clone())).await;
    }
    TurnOutcome { text: note, ..TurnOutcome::default() }
}
