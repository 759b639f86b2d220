//! Streams a turn as server-sent events (SSE).
//!
//! Each piece of text is an event without a name, `data: {"token":"…"}`. Each tool call is enclosed by the events
//! `tool_call`, `{"id":"…","name":"…","arguments":{…}}`, and `tool_result`, `{"id":"…","ok":true,"tookMs":7}`. The last
//! event is `done`, for an agent with `{"conversation_id":"…","title":"…"}` (the title only with the first reply of a
//! conversation), or `error` with `{"error":"…"}`; a stream that ends without one of them was cut off. The whole reply
//! is the concatenation of the tokens. A comment is sent every 15 s without an event, for example while a tool runs, so
//! that proxies keep the connection open.

use std::convert::Infallible;
use std::future::Future;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::turn_event::TurnEvent;

/// State of the stream.
enum StreamState {
    /// The turn runs. Dropping it, because the client disconnected, aborts the turn.
    Running(mpsc::Receiver<TurnEvent>, AbortOnDropHandle<Result<Value, String>>),
    /// The last event was sent.
    Done,
}

/// Starts `turn` with a channel for its text and tool calls, and responds with its events; its result is the data of
/// `done` or the text of `error`.
pub(super) fn respond<F>(turn: impl FnOnce(mpsc::Sender<TurnEvent>) -> F) -> Response
where
    F: Future<Output = Result<Value, String>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(16);
    let state = StreamState::Running(receiver, AbortOnDropHandle::new(tokio::spawn(turn(sender))));
    let events = stream::unfold(state, |state| async move {
        let StreamState::Running(mut receiver, task) = state else { return None };
        if let Some(event) = receiver.recv().await {
            return Some((to_event(event), StreamState::Running(receiver, task)));
        }
        let last = match task.await {
            Ok(Ok(last)) => event(Some("done"), last),
            Ok(Err(error)) => event(Some("error"), json!({ "error": error })),
            Err(_) => event(Some("error"), json!({ "error": "the turn was cut off" })),
        };
        Some((last, StreamState::Done))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

fn to_event(turn_event: TurnEvent) -> Result<Event, Infallible> {
    match turn_event {
        TurnEvent::Text(text) => event(None, json!({ "token": text })),
        TurnEvent::Call(call) => {
            event(Some("tool_call"), json!({ "id": call.id, "name": call.name, "arguments": call.arguments }))
        }
        TurnEvent::Outcome { id, ok, took } => {
            event(Some("tool_result"), json!({ "id": id, "ok": ok, "tookMs": took.as_millis() }))
        }
    }
}

/// Creates an event; JSON has no raw line breaks, so it is always one `data` line.
fn event(name: Option<&str>, data: Value) -> Result<Event, Infallible> {
    let event = Event::default().data(data.to_string());
    Ok(match name {
        Some(name) => event.event(name),
        None => event,
    })
}
