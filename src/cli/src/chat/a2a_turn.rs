//! Turns with an agent that speaks Agent2Agent: its answer is a task, or a message.
//!
//! The context of the agent is the conversation. A stream that breaks off goes on by asking for the task each second, as does the
//! answer of an agent that does not stream. Ctrl-C cancels the task. An agent that offers the extension for approvals names the calls
//! that it asks to approve, which are shown.

use std::{io, pin::pin, time::Duration};

use ::a2a::{
    A2aInterface, A2aTurn, CARD_PATH, CardError, HITL_EXTENSION, OutgoingMessage, TaskState, VERSION_HEADER,
    cancel_task, get_task, send_message, stream_message,
};
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, StatusCode};
use serde_json::Value;
use sse_stream::SseStream;
use tokio::time::{sleep, timeout};

use super::{
    gateway::{GatewayResponse, JSON, STREAM},
    reply::typable,
    session::{ChatSession, cut_off, read_all, with_progress},
};
use crate::{error::CliError, progress::ProgressLine};

/// Interval at which a task that works is asked for.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time for the cancellation of a task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

impl ChatSession {
    /// Sends a message and prints the answer as it comes.
    ///
    /// # Errors
    /// There is no answer, or the task failed.
    pub(super) async fn print_a2a_reply(&mut self, message: &str) -> Result<(), CliError> {
        let what = format!("waiting for {}", self.target.display());
        let mut progress = ProgressLine::begin();
        let interface = with_progress(&mut progress, &what, self.interface()).await?;
        let chat = self.a2a.get_or_insert_default();
        chat.interface = Some(interface.clone());
        let id = message_id()?;
        let context = chat.context.as_deref().or(self.conversation.as_deref());
        let outgoing = OutgoingMessage { id: &id, text: message, context, task: chat.waiting.as_deref() };
        let body = match interface.streams {
            true => stream_message(interface.version, &outgoing),
            false => send_message(interface.version, &outgoing),
        };
        let accept = if interface.streams { STREAM } else { JSON };
        let answer = with_progress(&mut progress, &what, self.request(&interface, &body, accept)).await?;
        let mut turn = A2aTurn::default();
        if !answer.status.is_success() {
            progress.clear();
            return Err(self.refusal_error(answer).await);
        }
        if answer.is_stream {
            let mut events = pin!(SseStream::from_bytes_stream(answer.body.map_err(io::Error::other)));
            // What breaks off is asked for below.
            while let Some(Ok(event)) = with_progress(&mut progress, &what, events.next()).await {
                progress.clear();
                if let Some(data) = &event.data {
                    self.show(&mut turn, data)?;
                }
                if !turn.is_working() {
                    break;
                }
                progress = ProgressLine::begin();
            }
        } else {
            let text = with_progress(&mut progress, &what, read_all(answer.body)).await?;
            progress.clear();
            self.show(&mut turn, &text)?;
        }
        while turn.is_working() {
            let task = turn.task().ok_or_else(|| cut_off("it ended without saying so"))?;
            let body = get_task(interface.version, task);
            with_progress(&mut progress, &what, sleep(POLL_INTERVAL)).await;
            let answer = with_progress(&mut progress, &what, self.request(&interface, &body, JSON)).await?;
            progress.clear();
            if !answer.status.is_success() {
                return Err(self.refusal_error(answer).await);
            }
            let text = read_all(answer.body).await?;
            self.show(&mut turn, &text)?;
        }
        match turn.failure() {
            Some(why) => Err(CliError::FailedAnswer(format!("{}: {why}", self.target.display()))),
            None => Ok(()),
        }
    }

    /// Cancels the task of a turn that was stopped. A failure to cancel is not printed: the user has stopped waiting.
    pub(super) async fn cancel_task(&mut self) {
        let Some(chat) = &mut self.a2a else { return };
        let (Some(task), Some(interface)) = (chat.running.take(), chat.interface.clone()) else { return };
        let body = cancel_task(interface.version, &task);
        let _ = timeout(CANCEL_TIMEOUT, self.request(&interface, &body, JSON)).await;
    }

    /// Reads a response or an event, prints what it adds to the answer, and remembers what the next message needs.
    fn show(&mut self, turn: &mut A2aTurn, json: &str) -> Result<(), CliError> {
        let text = match turn.read(json) {
            Ok(text) => text,
            Err(error) => {
                // A task that takes no message is not named by the next one.
                self.a2a.get_or_insert_default().waiting = None;
                return Err(CliError::FailedAnswer(format!("{}: {error}", self.target.display())));
            }
        };
        let task = || turn.task().map(str::to_owned);
        let chat = self.a2a.get_or_insert_default();
        chat.running = if turn.is_working() { task() } else { None };
        // No message decides on calls.
        let is_asked = turn.state() == Some(TaskState::InputRequired) && turn.decision_task().is_none();
        chat.waiting = if is_asked { task() } else { None };
        if let Some(context) = turn.context() {
            chat.context = Some(context.to_owned());
            self.conversation = typable(context);
        }
        self.screen.text(&text)?;
        self.note_calls(turn.requested_calls())?;
        turn.decision_task().and_then(typable).map_or(Ok(()), |task| self.note_waiting(&task))
    }

    /// Returns the interface of the agent, from its card if that was not read yet.
    async fn interface(&self) -> Result<A2aInterface, CliError> {
        if let Some(known) = self.a2a.as_ref().and_then(|chat| chat.interface.clone()) {
            return Ok(known);
        }
        let root = self.target.root(&self.namespace);
        let answer =
            self.gateway.send(Method::GET, &format!("{root}{CARD_PATH}"), &[("accept", JSON)], String::new()).await?;
        let interface = match answer.status {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE => Err(CardError::NoCard),
            status if status.is_success() => A2aInterface::choose(read_all(answer.body).await?.as_bytes(), &root),
            _ => return Err(self.refusal_error(answer).await),
        };
        interface.map_err(|error| CliError::FailedAnswer(format!("{} {error}", self.gateway.url_of(&root))))
    }

    async fn request(&self, interface: &A2aInterface, body: &Value, accept: &str) -> Result<GatewayResponse, CliError> {
        let mut headers = vec![("content-type", JSON), ("accept", accept)];
        headers.extend(interface.version.header().map(|version| (VERSION_HEADER, version)));
        if interface.asks_people {
            headers.push((interface.version.extensions_header(), HITL_EXTENSION));
        }
        self.gateway.send(Method::POST, &interface.path, &headers, body.to_string()).await
    }
}

/// Returns an id for a message, of 128 random bits.
fn message_id() -> Result<String, CliError> {
    let mut random = [0; 16];
    let filled = getrandom::fill(&mut random);
    filled.map_err(|error| CliError::FailedAnswer(format!("there are no random numbers: {error}")))?;
    Ok(hex::encode(random))
}
