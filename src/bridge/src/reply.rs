//! Answers, as HTTP.
//!
//! Whether an answer is a JSON document or a stream of events is decided as late as possible: if the child's answer is the
//! first thing that comes, it is a document with a fitting status; if anything comes before it, or nothing for 15 s, it is
//! a stream.

use http::{HeaderValue, Response, StatusCode, header};
use tokio::time::timeout;

use super::{
    body::{Body, SILENCE},
    message::{self, Id},
    outlet::{Event, Inlet},
};

/// The header that names a session.
pub(super) const SESSION: &str = "mcp-session-id";

/// What a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

/// A status without a body.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    with(status, None, Body::whole(""))
}

/// A text, for probes.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    with(status, Some("text/plain; charset=utf-8"), Body::whole(text.into()))
}

/// A JSON-RPC error.
pub(super) fn refusal(status: StatusCode, id: Option<&Id>, code: i32, why: &str) -> Response<Body> {
    let mut response = with(status, Some("application/json"), Body::whole(message::error(id, code, why)));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Whatever comes out of `inlet`, from now on.
pub(super) fn events(inlet: Inlet, first: Option<Event>) -> Response<Body> {
    let mut response = with(StatusCode::OK, Some("text/event-stream"), Body::events(inlet, first));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The answer that comes out of `inlet`; a stream at once if the client takes nothing else.
pub(super) async fn answer(mut inlet: Inlet, accepts: Accepts) -> Response<Body> {
    if !accepts.json {
        return events(inlet, None);
    }
    loop {
        let next = match timeout(SILENCE, inlet.next()).await {
            Ok(next) => next,
            Err(_) if accepts.events => return events(inlet, None),
            Err(_) => continue,
        };
        match next {
            Some(Event::Answer { message, status }) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
                return with(status, Some("application/json"), Body::whole(message));
            }
            Some(first @ Event::Message(_)) if accepts.events => return events(inlet, Some(first)),
            // There is no place for it.
            Some(Event::Message(_)) => {}
            // Nothing came, and that is how it is meant.
            Some(end @ Event::End) if accepts.events => return events(inlet, Some(end)),
            Some(Event::End) | None => {
                return refusal(StatusCode::BAD_GATEWAY, None, -32000, "the MCP server gave no answer");
            }
        }
    }
}

fn with(status: StatusCode, content_type: Option<&'static str>, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outlet::stream;

    const BOTH: Accepts = Accepts { json: true, events: true };

    fn kind(response: &Response<Body>) -> (u16, &str) {
        (response.status().as_u16(), response.headers()[header::CONTENT_TYPE].to_str().unwrap())
    }

    fn done(status: u16) -> Event {
        Event::Answer { message: "{}".into(), status }
    }

    #[tokio::test]
    async fn an_answer_that_comes_first_is_a_document() {
        let (outlet, inlet) = stream(|| ());
        outlet.force(done(404));
        assert_eq!(kind(&answer(inlet, BOTH).await), (404, "application/json"));
    }

    #[tokio::test]
    async fn an_answer_that_comes_later_is_the_end_of_a_stream() {
        let (outlet, inlet) = stream(|| ());
        outlet.force(Event::Message("{}".into()));
        outlet.force(done(404));
        assert_eq!(kind(&answer(inlet, BOTH).await), (200, "text/event-stream"));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_head_longer_than_for_a_sign_of_life() {
        let (_outlet, inlet) = stream(|| ());
        assert_eq!(kind(&answer(inlet, BOTH).await), (200, "text/event-stream"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_gets_only_what_it_takes() {
        let (outlet, inlet) = stream(|| ());
        outlet.force(Event::Message("{}".into()));
        tokio::spawn(async move {
            tokio::time::sleep(4 * SILENCE).await;
            outlet.force(done(200));
        });
        assert_eq!(kind(&answer(inlet, Accepts { json: true, events: false }).await), (200, "application/json"));
        let (_outlet, inlet) = stream(|| ());
        assert_eq!(kind(&answer(inlet, Accepts { json: false, events: true }).await), (200, "text/event-stream"));
    }
}
