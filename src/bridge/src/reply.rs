//! Responses as HTTP.
//!
//! The choice between a JSON document and a stream of events is made as late as possible: if the child's response is
//! the first event, it is a document with the matching status; if another event precedes it, or nothing comes for 15 s,
//! it is a stream.

use http::{HeaderValue, Response, StatusCode, header};
use tokio::time::timeout;

use super::{
    body::{BridgeBody, KEEP_ALIVE_INTERVAL},
    event_channel::{StreamEvent, StreamReceiver},
    message::{self, RpcId},
};

/// Header with the id of a session.
pub(super) const SESSION_HEADER: &str = "mcp-session-id";

/// Media types that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

/// Returns a response without a body.
pub(super) fn empty(status: StatusCode) -> Response<BridgeBody> {
    with(status, None, BridgeBody::full(""))
}

/// Returns a text response, for probes.
pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response<BridgeBody> {
    with(status, Some("text/plain; charset=utf-8"), BridgeBody::full(text.into()))
}

/// Returns a JSON-RPC error response.
pub(super) fn error_response(status: StatusCode, id: Option<&RpcId>, code: i32, why: &str) -> Response<BridgeBody> {
    let mut response = with(status, Some("application/json"), BridgeBody::full(message::error_message(id, code, why)));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Returns a stream of the events of `inlet`, from now on.
pub(super) fn event_stream(inlet: StreamReceiver, first: Option<StreamEvent>) -> Response<BridgeBody> {
    let mut response = with(StatusCode::OK, Some("text/event-stream"), BridgeBody::events(inlet, first));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Waits for the response from `inlet`; returns a stream at once if the client accepts nothing else.
pub(super) async fn respond(mut inlet: StreamReceiver, accepts: Accepts) -> Response<BridgeBody> {
    if !accepts.json {
        return event_stream(inlet, None);
    }
    loop {
        let next = match timeout(KEEP_ALIVE_INTERVAL, inlet.next()).await {
            Ok(next) => next,
            Err(_) if accepts.events => return event_stream(inlet, None),
            Err(_) => continue,
        };
        match next {
            Some(StreamEvent::Response { message, status }) => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
                return with(status, Some("application/json"), BridgeBody::full(message));
            }
            Some(first @ StreamEvent::Message(_)) if accepts.events => return event_stream(inlet, Some(first)),
            // A JSON document has no place for it.
            Some(StreamEvent::Message(_)) => {}
            // The stream ended without an event, as it should.
            Some(end @ StreamEvent::End) if accepts.events => return event_stream(inlet, Some(end)),
            Some(StreamEvent::End) | None => {
                return error_response(StatusCode::BAD_GATEWAY, None, -32000, "the MCP server gave no answer");
            }
        }
    }
}

fn with(status: StatusCode, content_type: Option<&'static str>, body: BridgeBody) -> Response<BridgeBody> {
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
    use crate::event_channel::channel;

    const BOTH: Accepts = Accepts { json: true, events: true };

    fn kind(response: &Response<BridgeBody>) -> (u16, &str) {
        (response.status().as_u16(), response.headers()[header::CONTENT_TYPE].to_str().unwrap())
    }

    fn done(status: u16) -> StreamEvent {
        StreamEvent::Response { message: "{}".into(), status }
    }

    #[tokio::test]
    async fn an_answer_that_comes_first_is_a_document() {
        let (outlet, inlet) = channel(|| ());
        outlet.force(done(404));
        assert_eq!(kind(&respond(inlet, BOTH).await), (404, "application/json"));
    }

    #[tokio::test]
    async fn an_answer_that_comes_later_is_the_end_of_a_stream() {
        let (outlet, inlet) = channel(|| ());
        outlet.force(StreamEvent::Message("{}".into()));
        outlet.force(done(404));
        assert_eq!(kind(&respond(inlet, BOTH).await), (200, "text/event-stream"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_is_sent_no_later_than_a_keep_alive() {
        let (_outlet, inlet) = channel(|| ());
        assert_eq!(kind(&respond(inlet, BOTH).await), (200, "text/event-stream"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_gets_only_what_it_takes() {
        let (outlet, inlet) = channel(|| ());
        outlet.force(StreamEvent::Message("{}".into()));
        tokio::spawn(async move {
            tokio::time::sleep(4 * KEEP_ALIVE_INTERVAL).await;
            outlet.force(done(200));
        });
        assert_eq!(kind(&respond(inlet, Accepts { json: true, events: false }).await), (200, "application/json"));
        let (_outlet, inlet) = channel(|| ());
        assert_eq!(kind(&respond(inlet, Accepts { json: false, events: true }).await), (200, "text/event-stream"));
    }
}
