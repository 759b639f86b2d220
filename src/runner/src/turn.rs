//! The loop of a turn, the same for agents and flows.
//!
//! The model is asked, the tools it wants are called, their results go back to it, and so on until it answers with
//! text alone or has used its tool turns.

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use tokio::sync::mpsc::Sender;

use super::models::{Chunk, Message, Model, ModelError, ModelRequest, Usage};
use super::tools::Toolbox;
use super::turn_event::TurnEvent;

/// How often a model may ask for tools before it must answer, at most.
pub(super) const TOOL_TURNS: usize = 5;

/// What a turn runs on.
pub(super) struct TurnLoop<'a> {
    /// Who answers.
    pub(super) model: &'a dyn Model,
    /// What it may call.
    pub(super) tools: &'a Toolbox,
    /// Where text goes as it comes, and what else happens, when somebody listens.
    pub(super) events: Option<&'a Sender<TurnEvent>>,
}

/// The outcome of a turn.
#[derive(Debug, Default)]
pub(super) struct TurnOutcome {
    /// All text that was said to the user.
    pub(super) text: String,
    /// Tokens of all requests of the turn; none when the provider does not count.
    pub(super) usage: Option<Usage>,
    /// An answer broke off because it reached the most tokens it may have.
    pub(super) truncated: bool,
}

impl TurnOutcome {
    /// Adds what a further turn said, but for its text.
    pub(super) fn add(&mut self, further: Self) {
        if let Some(usage) = further.usage {
            let total = self.usage.get_or_insert_default();
            total.input += usage.input;
            total.output += usage.output;
        }
        self.truncated |= further.truncated;
    }
}

impl TurnLoop<'_> {
    /// Answers the last message of `request` and adds all that was said to its messages; `tool_turns` counts down.
    /// Dropping the future ends the turn.
    ///
    /// # Errors
    /// The model failed; a tool that fails is the model's business.
    pub(super) async fn run(
        &self,
        request: &mut ModelRequest,
        tool_turns: &mut usize,
    ) -> Result<TurnOutcome, ModelError> {
        let allowed = *tool_turns;
        let mut said = TurnOutcome::default();
        loop {
            let mut calls = Vec::new();
            let mut text = String::new();
            let mut answer = self.model.respond(request.clone());
            while let Some(chunk) = answer.next().await {
                match chunk? {
                    Chunk::Call(call) => calls.push(call),
                    Chunk::Token(token) => {
                        text.push_str(&token);
                        self.emit(TurnEvent::Text(token)).await;
                    }
                    Chunk::Truncated => {
                        tracing::info!("the model's answer reached the most tokens it may have");
                        said.truncated = true;
                    }
                    Chunk::Usage(usage) => {
                        tracing::debug!(input = usage.input, output = usage.output, "tokens");
                        let total = said.usage.get_or_insert_default();
                        total.input += usage.input;
                        total.output += usage.output;
                    }
                }
            }
            said.text.push_str(&text);
            if !text.is_empty() {
                request.messages.push(Arc::new(Message::Assistant(text)));
            }
            if calls.is_empty() {
                return Ok(said);
            }
            if *tool_turns == 0 {
                let note = format!("[stopped: the model asked for tools more than {allowed} times]");
                said.text.push_str(&note);
                request.messages.push(Arc::new(Message::Assistant(note.clone())));
                self.emit(TurnEvent::Text(note)).await;
                return Ok(said);
            }
            *tool_turns -= 1;
            // A provider wants all calls of one answer before the first result.
            request.messages.extend(calls.iter().cloned().map(|call| Arc::new(Message::Call(call))));
            for call in calls {
                self.emit(TurnEvent::Call(call.clone())).await;
                let began = Instant::now();
                let outcome = self.tools.call(&call.name, &call.arguments).await.map_err(|error| error.to_string());
                let (id, ok, took) = (call.id.clone(), outcome.is_ok(), began.elapsed());
                self.emit(TurnEvent::Outcome { id, ok, took }).await;
                if let Err(error) = &outcome {
                    // What a tool said may be long and may be the user's: only who asks for it sees it.
                    tracing::info!(tool = call.name, "a tool failed; the model was told why");
                    tracing::debug!(tool = call.name, error, "why a tool failed");
                }
                request.messages.push(Arc::new(Message::ToolResult { id: call.id, name: call.name, outcome }));
            }
        }
    }

    /// Tells the listener; one that went away is not waited for, its turn is dropped by whoever runs it.
    async fn emit(&self, told: TurnEvent) {
        if let Some(tokens) = self.events {
            let _ = tokens.send(told).await;
        }
    }
}
