//! Streams a response as server-sent events (SSE), each named by its type.

use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{
    super::{
        backend::{CompletionRequest, ModelBackend},
        error::ApiError,
        reply::{FIRST_TOKEN_TIMEOUT, RunningTurn, cut_off},
    },
    head::ResponseHead,
    output::Output,
};
use crate::{models::Answerer, sse, turn::TurnOutcome, turn_event::TurnEvent};

/// State of the event stream.
struct Events {
    head: ResponseHead,
    output: Output,
    /// Bytes of the request's messages.
    asked: usize,
    /// Events that are ready to be sent.
    queue: VecDeque<Value>,
    /// Source of further events, until the turn has ended.
    turn: Option<RunningTurn>,
}

/// Responds with a stream of events. A client that disconnects cancels the turn.
///
/// # Errors
/// The turn failed before its first event.
pub(super) async fn respond(
    head: ResponseHead,
    answers: Arc<dyn ModelBackend>,
    question: CompletionRequest,
) -> Result<Response, ApiError> {
    let (sender, mut events) = mpsc::channel(16);
    let (asked, mut output) = (question.bytes(), Output::new(head.item_suffix(), &question.model));
    let turn = tokio::spawn(async move { answers.respond(question, Some(&sender)).await });
    let mut turn = AbortOnDropHandle::new(turn);
    for kind in ["response.created", "response.in_progress"] {
        output.emit(kind, json!({ "response": head.in_progress() }));
    }
    let mut stream = Events { head, output, asked, queue: VecDeque::new(), turn: None };
    let mut answerer = None;
    match tokio::time::timeout(FIRST_TOKEN_TIMEOUT, first_event(&mut events, &mut answerer)).await {
        Ok(Some(event)) => stream.output.push(event),
        Ok(None) => {
            let outcome = (&mut turn).await.map_err(|_| cut_off())??;
            stream.end(Ok(outcome));
            return Ok(sse::with_model(stream.respond(), answerer));
        }
        Err(_) => {}
    }
    stream.turn = Some((events, turn));
    Ok(sse::with_model(stream.respond(), answerer))
}

/// Receives the first event that is shown, and before it the model that answers.
async fn first_event(events: &mut mpsc::Receiver<TurnEvent>, answerer: &mut Option<Answerer>) -> Option<TurnEvent> {
    loop {
        match events.recv().await? {
            TurnEvent::Answerer(found) => *answerer = answerer.take().or(Some(found)),
            event => return Some(event),
        }
    }
}

impl Events {
    fn respond(self) -> Response {
        let events = stream::unfold(self, |mut events| async move {
            let data = events.next().await?;
            let event = Event::default().event(data["type"].as_str().unwrap_or_default()).data(data.to_string());
            Some((Ok::<_, Infallible>(event), events))
        });
        Sse::new(events).keep_alive(KeepAlive::default()).into_response()
    }

    async fn next(&mut self) -> Option<Value> {
        loop {
            self.queue.extend(self.output.take_events());
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            let (mut events, turn) = self.turn.take()?;
            if let Some(event) = events.recv().await {
                self.output.push(event);
                self.turn = Some((events, turn));
            } else {
                let outcome = turn.await.map_err(|_| cut_off());
                self.end(outcome.and_then(|outcome| Ok(outcome?)));
            }
        }
    }

    fn end(&mut self, outcome: Result<TurnOutcome, ApiError>) {
        match outcome {
            Ok(outcome) => {
                self.output.end(outcome.truncated);
                let kind = if outcome.truncated { "response.incomplete" } else { "response.completed" };
                let response = self.head.finished(&self.output, &outcome, self.asked);
                self.output.emit(kind, json!({ "response": response }));
            }
            Err(error) => {
                self.output.end(true);
                let response = self.head.failed(&self.output, error.message());
                self.output.emit("response.failed", json!({ "response": response }));
            }
        }
    }
}
