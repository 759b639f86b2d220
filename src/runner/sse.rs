//! A turn as server-sent events.
//!
//! Each piece of text is an event without a name, `data: {"token":"…"}`. The last event is `done` with
//! `{"conversation_id":"…","title":"…"}` (the title with the first reply of a conversation only), or `error` with
//! `{"error":"…"}`; a stream that ends without one of them was cut off. The whole reply is the tokens joined. A
//! comment goes out each 15 s while a tool runs, so that proxies keep the connection.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::agent::{Agent, Reply, Turn, TurnError};

/// Where the stream stands.
enum State {
    /// The turn runs. Dropping it, because the client went away, ends the turn.
    Running(mpsc::Receiver<String>, AbortOnDropHandle<Result<Reply, TurnError>>),
    /// The last event went out.
    Done,
}

/// Starts the turn and answers with its events.
pub(super) fn respond(agent: Arc<Agent>, turn: Turn) -> Response {
    let (sender, receiver) = mpsc::channel(16);
    let task = tokio::spawn(async move { agent.answer(turn, Some(&sender)).await });
    let state = State::Running(receiver, AbortOnDropHandle::new(task));
    let events = stream::unfold(state, |state| async move {
        let State::Running(mut receiver, task) = state else { return None };
        if let Some(token) = receiver.recv().await {
            return Some((event(None, json!({ "token": token })), State::Running(receiver, task)));
        }
        let last = match task.await {
            Ok(Ok(reply)) => event(Some("done"), last_words(reply)),
            Ok(Err(error)) => event(Some("error"), json!({ "error": error.to_string() })),
            Err(_) => event(Some("error"), json!({ "error": "the turn was cut off" })),
        };
        Some((last, State::Done))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

fn last_words(reply: Reply) -> Value {
    let mut words = json!({ "conversation_id": reply.conversation_id });
    if let Some(title) = reply.title {
        words["title"] = title.into();
    }
    words
}

/// One event; JSON has no bare line breaks, so it is always one `data` line.
fn event(name: Option<&str>, data: Value) -> Result<Event, Infallible> {
    let event = Event::default().data(data.to_string());
    Ok(match name {
        Some(name) => event.event(name),
        None => event,
    })
}
