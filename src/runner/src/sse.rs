//! Streams a turn as server-sent events (SSE).
//!
//! Each piece of text is an event without a name, `data: {"token":"…"}`. Each tool call is enclosed by the events
//! `tool_call`, `{"id":"…","name":"…","arguments":{…}}`, and `tool_result`, `{"id":"…","ok":true,"tookMs":7}`. A turn that
//! waits for a person has the event `approval` before its end, with what a JSON answer has ([`parking`](super::parking)). The last
//! event is `done`, for an agent with `{"conversation_id":"…","title":"…"}` (the title only with the first reply of a
//! conversation), each with `"models":["openai/gpt-5"]`, one for each request to a model, `"fallback":true` when one of
//! them was not the first model, and `"usage":{"input":7,…}`, the tokens of all of them; or `error` with `{"error":"…"}`; a stream that ends without one of them was cut off. The whole reply
//! is the concatenation of the tokens. A comment is sent every 15 s without an event, for example while a tool runs, so
//! that proxies keep the connection open.

use std::convert::Infallible;
use std::{future::Future, sync::Arc, time::Duration};

use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{models::Answerer, turn_event::TurnEvent, usage::UsageAccount};

/// Header with the model that answers, such as `openai/gpt-5`.
const MODEL: HeaderName = HeaderName::from_static("x-recif-model");
/// Header with the failure of the first model, such as `HTTP 503`, where another one answers.
const FAILURE: HeaderName = HeaderName::from_static("x-recif-model-failure");
/// Failure of the first model where it is not known: another request had an answer of it since.
const UNKNOWN_FAILURE: &str = "no answer";
/// Longest wait for the model that answers before the header of the response is sent without it: a client must see soon that it
/// was heard.
const FIRST_ANSWERER_TIMEOUT: Duration = Duration::from_secs(5);

/// State of the stream.
enum StreamState {
    /// The turn runs. Dropping it, because the client disconnected, aborts the turn.
    Running(mpsc::Receiver<TurnEvent>, AbortOnDropHandle<Result<Value, String>>),
    /// The last event was sent.
    Done,
}

/// Starts `turn` with a channel for its text and tool calls, and responds with its events; its result is the data of
/// `done` or the text of `error`. Where several `models` may answer, the header of the response waits for the one that does.
pub(super) async fn respond<F>(models: &[Arc<str>], turn: impl FnOnce(mpsc::Sender<TurnEvent>) -> F) -> Response
where
    F: Future<Output = Result<Value, String>> + Send + 'static,
{
    let (sender, mut receiver) = mpsc::channel(16);
    let task = AbortOnDropHandle::new(tokio::spawn(turn(sender)));
    let (mut answerer, mut early) = (None, None);
    if let [only] = models {
        answerer = Some(Answerer { model: only.clone(), is_fallback: false });
    } else if !models.is_empty() {
        match tokio::time::timeout(FIRST_ANSWERER_TIMEOUT, receiver.recv()).await {
            Ok(Some(TurnEvent::Answerer(found))) => answerer = Some(found),
            Ok(event) => early = event,
            Err(_) => {}
        }
    }
    let state = StreamState::Running(receiver, task);
    let events = stream::unfold((early, state), |(early, state)| async move {
        let StreamState::Running(mut receiver, task) = state else { return None };
        let mut next = early;
        while let Some(turn_event) = match next.take() {
            Some(event) => Some(event),
            None => receiver.recv().await,
        } {
            if let Some(event) = to_event(turn_event) {
                return Some((event, (None, StreamState::Running(receiver, task))));
            }
        }
        let last = match task.await {
            Ok(Ok(last)) => event(Some("done"), last),
            Ok(Err(error)) => event(Some("error"), json!({ "error": error })),
            Err(_) => event(Some("error"), json!({ "error": "the turn was cut off" })),
        };
        Some((last, (None, StreamState::Done)))
    });
    with_model(Sse::new(events).keep_alive(KeepAlive::default()).into_response(), answerer)
}

/// Mark of a response by a model that is not the first one. Its name does not say so: the same model may stand in at another provider.
#[derive(Debug, Clone, Copy)]
struct AnsweredByFallback;

/// Sets the header that says which model answers.
pub(super) fn with_model(mut response: Response, answerer: Option<Answerer>) -> Response {
    let Some(Answerer { model, is_fallback }) = answerer else { return response };
    if is_fallback {
        response.extensions_mut().insert(AnsweredByFallback);
    }
    // A name that no header may hold is left out: the last event has it.
    if let Ok(model) = HeaderValue::from_str(&model) {
        response.headers_mut().insert(MODEL, model);
    }
    response
}

/// Sets the header that says why the first model did not answer, where another one does.
pub(super) fn add_failure(response: &mut Response, failure: Option<&str>) {
    if response.extensions().get::<AnsweredByFallback>().is_none() {
        return;
    }
    let failure = HeaderValue::from_str(failure.unwrap_or(UNKNOWN_FAILURE));
    response.headers_mut().insert(FAILURE, failure.unwrap_or_else(|_| HeaderValue::from_static(UNKNOWN_FAILURE)));
}

/// Adds the models that answered to the data of the last event: one for each request to a model, and whether one of them was not
/// the first.
pub(super) fn add_models(last: &mut Value, answerers: &[Answerer]) {
    if !answerers.is_empty() {
        last["models"] = answerers.iter().map(|answerer| Value::from(&*answerer.model)).collect();
    }
    if answerers.iter().any(|answerer| answerer.is_fallback) {
        last["fallback"] = true.into();
    }
}

/// Adds what the models used for the request to the data of the last event.
pub(super) fn add_usage(last: &mut Value, account: &UsageAccount) {
    if let Some(usage) = account.json() {
        last["usage"] = usage;
    }
}

fn to_event(turn_event: TurnEvent) -> Option<Result<Event, Infallible>> {
    Some(match turn_event {
        TurnEvent::Answerer(_) => return None,
        TurnEvent::Text(text) | TurnEvent::WaitNote(text) => event(None, json!({ "token": text })),
        TurnEvent::Call(call) => {
            event(Some("tool_call"), json!({ "id": call.id, "name": call.name, "arguments": call.arguments }))
        }
        TurnEvent::Outcome { id, ok, took } => {
            event(Some("tool_result"), json!({ "id": id, "ok": ok, "tookMs": took.as_millis() }))
        }
        TurnEvent::Parked(waiting) => event(Some("approval"), waiting),
    })
}

/// Creates an event; JSON has no raw line breaks, so it is always one `data` line.
fn event(name: Option<&str>, data: Value) -> Result<Event, Infallible> {
    let event = Event::default().data(data.to_string());
    Ok(match name {
        Some(name) => event.event(name),
        None => event,
    })
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn a_fallback_is_known_by_its_place_and_not_by_its_name() {
        for (is_fallback, failure, expected) in [
            (true, Some("HTTP 503"), Some("HTTP 503")),
            (true, Some("a\nb"), Some("no answer")),
            (true, None, Some("no answer")),
            (false, Some("HTTP 503"), None),
        ] {
            let answerer = Answerer { model: "openai/gpt".into(), is_fallback };
            let mut response = with_model(().into_response(), Some(answerer));
            add_failure(&mut response, failure);
            assert_eq!(response.headers()[MODEL], "openai/gpt");
            let found = response.headers().get(FAILURE).map(|failure| failure.to_str().unwrap());
            assert_eq!(found, expected, "{is_fallback} {failure:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_waits_5_s_for_the_model_that_answers_at_most() {
        let began = Instant::now();
        let turn = |sender: mpsc::Sender<TurnEvent>| async move {
            let _sender = sender;
            std::future::pending::<Result<Value, String>>().await
        };
        let response = respond(&["a/1".into(), "b/2".into()], turn).await;
        assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
        assert!(!response.headers().contains_key(MODEL));
    }
}
