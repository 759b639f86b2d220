//! Turn loop (agent loop with tool calls) of agents and flows.
//!
//! The model is called, the tools that it requests are called, their results go back to the model, and so on until it
//! answers with text only, has used up its tool turns, or has spent the tokens of the request's budget.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use telemetry::semconv::{EVENT_PARKED, GEN_AI_TOOL_NAME, RECIF_TOOL_TURNS};
use tokio::sync::mpsc::Sender;

use super::conversations::history::ConversationId;
use super::models::{Answerer, Chunk, Message, Model, ModelError, ModelErrorKind, ModelRequest, ToolCall, Usage};
use super::tools::{Consent, Toolbox};
use super::traces::ActiveSpan;
use super::turn_event::TurnEvent;

/// Maximum number of tool turns: answers with tool calls before the model must answer with text.
pub(super) const TOOL_TURNS: usize = 5;

/// Dependencies of a turn.
pub(super) struct TurnLoop<'a> {
    /// Model that answers.
    pub(super) model: &'a dyn Model,
    /// Tools that the model may call.
    pub(super) tools: &'a Toolbox,
    /// Receiver of text and tool calls as they happen, if any.
    pub(super) events: Option<&'a Sender<TurnEvent>>,
    /// Set when calls may wait until the caller approves them; otherwise they are refused.
    pub(super) may_wait: bool,
}

/// Outcome of a turn.
#[derive(Debug, Default)]
pub(super) struct TurnOutcome {
    /// All text of the model for the user.
    pub(super) text: String,
    /// Tokens of all requests of the turn; `None` when the provider does not report them.
    pub(super) usage: Option<Usage>,
    /// Set when an answer was truncated at its maximum number of tokens, or the turn was stopped because its budget is spent.
    pub(super) truncated: bool,
    /// Model that answered each request of the turn, as far as known.
    pub(super) answerers: Vec<Answerer>,
    /// Number of answers with calls of tools that were made.
    pub(super) tool_turns: usize,
    /// Calls that wait until the caller approves them. The turn goes on with their results.
    pub(super) waiting: Vec<ToolCall>,
}

impl TurnOutcome {
    /// Adds the outcome of a further turn, except its text and the calls that wait.
    pub(super) fn add(&mut self, further: Self) {
        if let Some(usage) = further.usage {
            self.usage.get_or_insert_default().add(usage);
        }
        self.truncated |= further.truncated;
        self.answerers.extend(further.answerers);
        self.tool_turns += further.tool_turns;
    }
}

impl ActiveSpan {
    /// Ends the span of a turn with its outcome, with an event for each call that waits for a person, or the kind of its failure.
    pub(crate) fn end_turn(self, outcome: Result<&TurnOutcome, Cow<'static, str>>) {
        match outcome {
            Ok(outcome) => {
                if let Some(usage) = &outcome.usage {
                    self.scope().set_usage(usage);
                }
                self.set(RECIF_TOOL_TURNS, u64::try_from(outcome.tool_turns).unwrap_or(u64::MAX));
                let reason = match (outcome.truncated, outcome.waiting.is_empty()) {
                    (true, _) => "length",
                    (false, false) => "tool_call",
                    (false, true) => "stop",
                };
                for call in &outcome.waiting {
                    self.scope().event(EVENT_PARKED, vec![(GEN_AI_TOOL_NAME, call.name.clone().into())]);
                }
                self.scope().capture_answer(&outcome.text, &outcome.waiting, reason);
                self.succeed();
            }
            Err(kind) => self.fail(kind),
        }
    }
}

impl TurnLoop<'_> {
    /// Answers the last message of `request` and appends all new messages to it; `tool_turns` counts down. Where calls wait, the others
    /// of the same answer are made, and the turn stops there. Dropping the future cancels the turn.
    ///
    /// # Errors
    /// The model failed, or the budget is spent and it has said nothing yet. An error of a tool goes to the model instead.
    pub(super) async fn run(
        &self,
        request: &mut ModelRequest,
        tool_turns: &mut usize,
    ) -> Result<TurnOutcome, ModelError> {
        let allowed = *tool_turns;
        let mut outcome = TurnOutcome::default();
        request.account.trace().capture_request(request);
        loop {
            if let Some(end) = request.account.budget_end() {
                return self.end_by_budget(request, outcome, end.unit).await;
            }
            let (mut calls, mut is_cut) = (Vec::new(), false);
            let mut text = String::new();
            let mut answer = self.model.respond(request.clone());
            while let Some(chunk) = answer.next().await {
                match chunk? {
                    Chunk::Answerer(answerer) => {
                        if answerer.is_fallback {
                            request.fallback = Some(answerer.model.clone());
                        }
                        outcome.answerers.push(answerer.clone());
                        self.emit(TurnEvent::Answerer(answerer)).await;
                    }
                    Chunk::Call(call) => calls.push(call),
                    Chunk::Token(token) => {
                        text.push_str(&token);
                        self.emit(TurnEvent::Text(token)).await;
                    }
                    Chunk::Truncated => {
                        tracing::info!("the model's answer reached the most tokens it may have");
                        (outcome.truncated, is_cut) = (true, true);
                    }
                    Chunk::Usage(usage) => {
                        tracing::debug!(input = usage.input, output = usage.output, "tokens");
                        outcome.usage.get_or_insert_default().add(usage);
                    }
                }
            }
            outcome.text.push_str(&text);
            if !text.is_empty() {
                request.messages.push(Arc::new(Message::Assistant(text)));
            }
            // An answer may be cut off because no more tokens were left for it: its calls may not be whole.
            if is_cut && let Some(end) = request.account.budget_end() {
                return self.end_by_budget(request, outcome, end.unit).await;
            }
            if calls.is_empty() {
                return Ok(outcome);
            }
            if *tool_turns == 0 {
                let note = format!("[stopped: the model asked for tools more than {allowed} times]");
                self.stop(request, &mut outcome, note).await;
                return Ok(outcome);
            }
            *tool_turns -= 1;
            outcome.tool_turns += 1;
            rename_repeated(&request.messages, &mut calls)?;
            // Providers require all calls of one answer before the first result.
            request.messages.extend(calls.iter().cloned().map(|call| Arc::new(Message::Call(call))));
            for call in calls {
                if self.may_wait && self.tools.patience(&call).is_some() {
                    outcome.waiting.push(call);
                    continue;
                }
                self.announce(&call).await;
                let (result, event) = self.make_call(&call, Consent::Missing).await;
                self.emit(event).await;
                request.messages.push(Arc::new(Message::ToolResult { id: call.id, name: call.name, outcome: result }));
            }
            if !outcome.waiting.is_empty() {
                return Ok(outcome);
            }
        }
    }

    /// Tells the receiver that a call begins.
    pub(super) async fn announce(&self, call: &ToolCall) {
        self.emit(TurnEvent::Call(call.clone())).await;
    }

    /// Makes a call with this consent. Returns its result or the text of its error, and the event on its end.
    pub(super) async fn make_call(&self, call: &ToolCall, consent: Consent<'_>) -> (Result<String, String>, TurnEvent) {
        let began = Instant::now();
        let result = self.tools.execute(call, consent).await.map_err(|error| error.to_string());
        let (id, ok, took) = (call.id.clone(), result.is_ok(), began.elapsed());
        if let Err(error) = &result {
            // The error of a tool may be long and may contain the user's data: it is logged at debug level only.
            tracing::info!(tool = call.name, "a tool failed; the model got the error");
            tracing::debug!(tool = call.name, error, "why a tool failed");
        }
        (result, TurnEvent::Outcome { id, ok, took })
    }

    /// Ends a turn whose budget of this unit is spent.
    ///
    /// # Errors
    /// It has said nothing yet.
    async fn end_by_budget(
        &self,
        request: &mut ModelRequest,
        mut outcome: TurnOutcome,
        unit: &str,
    ) -> Result<TurnOutcome, ModelError> {
        tracing::info!("today's {unit} budget is spent: no further request of this turn goes to a model");
        if outcome.text.is_empty() {
            return Err(ModelError::over_budget(unit));
        }
        outcome.truncated = true;
        let note = format!("[stopped: today's {unit} budget is spent]");
        self.stop(request, &mut outcome, note).await;
        Ok(outcome)
    }

    /// Ends the text of a turn with a note for the user.
    async fn stop(&self, request: &mut ModelRequest, outcome: &mut TurnOutcome, note: String) {
        outcome.text.push_str(&note);
        request.messages.push(Arc::new(Message::Assistant(note.clone())));
        self.emit(TurnEvent::Text(note)).await;
    }

    /// Sends an event to the receiver, if any. A closed channel is ignored: the owner of the turn drops it.
    pub(super) async fn emit(&self, event: TurnEvent) {
        if let Some(tokens) = self.events {
            let _ = tokens.send(event).await;
        }
    }
}

/// Gives a random id to each call that has the id of an earlier one: some providers count anew in each answer, and a decision names a
/// call by its id.
fn rename_repeated(earlier: &[Arc<Message>], calls: &mut [ToolCall]) -> Result<(), ModelError> {
    let id = |message: &Arc<Message>| match &**message {
        Message::Call(call) => Some(call.id.clone()),
        _ => None,
    };
    let mut known: HashSet<String> = earlier.iter().filter_map(id).collect();
    for call in calls {
        if !known.insert(call.id.clone()) {
            let random = ConversationId::random().map_err(|error| {
                let text = format!("the system has no random numbers to name a call with: {error}");
                ModelError::new(ModelErrorKind::Unavailable, text)
            })?;
            call.id = random.to_string();
        }
    }
    Ok(())
}
