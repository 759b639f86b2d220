//! Sends a message to the `/chat` of an agent, on the path of every other request: with the caller's credentials, and
//! with the same admission, limits and metrics.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use http::{HeaderName, HeaderValue, Request, header};
use http1::RequestHead;
use serde_json::{Value, json};

use super::super::{memory, peer::Peer, state::GatewayContext};

/// Largest answer of an agent, events included. Each call that runs may hold one.
const MAX_ANSWER: usize = 1 << 20;
/// Header fields of the caller that the agent's request has too.
const PASSED_ON: [&str; 11] = [
    "host",
    "authorization",
    "x-recif-authorization",
    "origin",
    "sec-fetch-site",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-prefix",
    "traceparent",
    "tracestate",
];

/// Failure of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CallError {
    /// HTTP status of the refusal; 200 for a turn that failed after its answer began.
    pub(super) status: u16,
    /// Value of `x-recif-reason`; empty if the agent itself answered.
    pub(super) reason: String,
    /// Sentence on what happened, and what to do.
    pub(super) message: String,
}

impl CallError {
    fn broken(message: impl Into<String>) -> Self {
        Self { status: 502, reason: String::new(), message: message.into() }
    }
}

/// Sends `message` to the agent at this path prefix, such as `/v1/agents/default/weather`, for the caller of `head`.
/// Returns the text of the answer.
///
/// # Errors
/// The request was refused, or the turn failed.
pub(super) async fn chat(
    prefix: &str,
    message: String,
    head: &RequestHead<'_>,
    peer: &Peer,
    shared: &Arc<GatewayContext>,
) -> Result<String, CallError> {
    let mut request = Request::post(format!("{prefix}/chat"))
        .header(header::CONTENT_TYPE, "application/json")
        // A stream begins at once, however long the turn takes.
        .header(header::ACCEPT, "text/event-stream, application/json");
    for name in PASSED_ON {
        for value in head.fields.values(head.bytes, name) {
            if let Ok(value) = HeaderValue::from_bytes(value) {
                request = request.header(HeaderName::from_static(name), value);
            }
        }
    }
    if head.host.is_empty() {
        request = request.header(header::HOST, "localhost");
    }
    let request = request
        .body(Body::from(chat_body(&message)))
        .map_err(|error| CallError::broken(format!("the agent cannot be asked: {error}")))?;
    drop(message);
    let response = memory::send(request, Arc::new(peer.clone()), shared.clone())
        .await
        .map_err(|_| CallError::broken("the agent closed the connection without an answer"))?;
    let status = response.status().as_u16();
    let is_stream = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let reason = response.headers().get("x-recif-reason").and_then(|reason| reason.to_str().ok());
    let reason = reason.unwrap_or_default().to_owned();
    let body = to_bytes(Body::new(response.into_body()), MAX_ANSWER)
        .await
        .map_err(|_| CallError::broken("the agent's answer broke off, or is larger than 1 MiB"))?;
    let text = String::from_utf8_lossy(&body);
    match (status, is_stream) {
        (200..=299, true) => reply_of_events(&text),
        (200..=299, false) => reply_of_json(&text),
        _ => Err(CallError { status, reason, message: error_of(&text, status) }),
    }
}

/// Returns the body of the agent's request: no call may wait for a person, because clients of this protocol cannot approve one.
fn chat_body(message: &str) -> String {
    json!({ "message": message, "may_wait": false }).to_string()
}

/// Returns the text of a whole answer.
fn reply_of_json(text: &str) -> Result<String, CallError> {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let reply = answer["reply"].as_str().map(str::to_owned);
    reply.ok_or_else(|| CallError::broken("the agent did not answer with JSON that has a `reply`"))
}

/// Returns the text of an answer in server-sent events, which end with `done` or `error`. The fields of an event come in any order,
/// and count once its empty line has come.
fn reply_of_events(text: &str) -> Result<String, CallError> {
    let (mut reply, mut event, mut data) = (String::new(), "", String::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("event:") {
            event = name.trim();
        } else if let Some(more) = line.strip_prefix("data:") {
            data.push_str(more);
        } else if line.is_empty() {
            let value: Value = serde_json::from_str(&data).unwrap_or_default();
            match event {
                "" => reply.push_str(value["token"].as_str().unwrap_or_default()),
                "done" => return Ok(reply),
                "error" => {
                    let message = value["error"].as_str().unwrap_or("the agent failed").to_owned();
                    return Err(CallError { status: 200, reason: String::new(), message });
                }
                _ => {}
            }
            event = "";
            data.clear();
        }
    }
    Err(CallError::broken("the agent's answer was cut off"))
}

/// Returns the message of a refusal.
fn error_of(text: &str, status: u16) -> String {
    let refusal: Value = serde_json::from_str(text).unwrap_or_default();
    refusal["error"].as_str().map_or_else(|| format!("the agent answered with HTTP status {status}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_of_the_asked_agent_waits_for_a_person() {
        let body: Value = serde_json::from_str(&chat_body("say \"hi\"")).unwrap();
        assert_eq!(body, json!({ "message": "say \"hi\"", "may_wait": false }));
    }

    #[test]
    fn an_answer_is_the_text_of_its_events() {
        let whole = ": hi\n\ndata: {\"token\":\"a \"}\n\nevent: tool_call\ndata: {\"token\":\"x\"}\n\ndata: {\"token\":\"b\"}\n\n\
                     event: done\ndata: {\"conversation_id\":\"c\"}\n\n";
        assert_eq!(reply_of_events(whole), Ok("a b".into()));
        let name_last = "data: {\"token\":\"a\"}\n\ndata: {\"models\":[\"m\"]}\nevent: done\n\n";
        assert_eq!(reply_of_events(name_last), Ok("a".into()));
        let failed = "data: {\"token\":\"a\"}\n\nevent: error\ndata: {\"error\":\"it is asleep\"}\n\n";
        let expected = CallError { status: 200, reason: String::new(), message: "it is asleep".into() };
        assert_eq!(reply_of_events(failed), Err(expected));
        assert_eq!(reply_of_events("data: {\"token\":\"a\"}\n\n").unwrap_err().status, 502);
    }

    #[test]
    fn what_an_agent_refuses_is_told_in_its_words() {
        assert_eq!(reply_of_json("{\"reply\":\"hi\"}"), Ok("hi".into()));
        assert_eq!(reply_of_json("[]").unwrap_err().status, 502);
        assert_eq!(error_of("{\"error\":\"draining\"}", 503), "draining");
        assert_eq!(error_of("<html>", 503), "the agent answered with HTTP status 503");
    }
}
