//! Requests of clients that have sessions: to open one, to send through one, to listen to one, to end one.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode};

use super::{
    headers,
    http_errors::{
        BoxedErrorResponse, HandlerResult, error_response, header_error_response, not_allowed, session_not_found,
    },
    message::RpcId,
    received_message::ReceivedMessage,
    reply::{self, Accepts, SESSION_HEADER},
    session::ChildSession,
    session_state::StreamKind,
    sessions::{SessionError, SessionUser},
    state::Bridge,
};

/// Header with the reason of a refusal, which the sidecar passes on and a gateway understands: another Pod may have
/// room.
const REASON_HEADER: &str = "x-recif-reason";
const NO_SESSION: &str = "no-session";

/// Opens a stream for the messages of a session's child that answer no request.
pub(super) fn get(bridge: &Bridge, headers: &HeaderMap) -> HandlerResult {
    let session = session_without_body(bridge, headers)?;
    if !headers::accepts(headers).events {
        return Err(error_response(StatusCode::NOT_ACCEPTABLE, None, -32000, "this is a text/event-stream"));
    }
    session
        .stream(None, StreamKind::Listening)
        .map(|inlet| reply::event_stream(inlet, None))
        .map_err(|_| session_not_found(None))
}

/// Ends a session.
pub(super) fn delete(bridge: &Bridge, headers: &HeaderMap) -> HandlerResult {
    session_without_body(bridge, headers)?.end();
    Ok(reply::empty(StatusCode::OK))
}

/// Returns the session of a request without a body.
fn session_without_body(bridge: &Bridge, headers: &HeaderMap) -> Result<Arc<ChildSession>, BoxedErrorResponse> {
    let version = headers::version(headers).map_err(|why| header_error_response(why, None))?;
    if version.is_some_and(headers::is_stateless) || !headers.contains_key(SESSION_HEADER) {
        return Err(not_allowed());
    }
    session(bridge, headers, None)
}

/// Returns the session that the header names.
pub(super) fn session(
    bridge: &Bridge,
    headers: &HeaderMap,
    id: Option<&RpcId>,
) -> Result<Arc<ChildSession>, BoxedErrorResponse> {
    let name = headers::single(headers, SESSION_HEADER).map_err(|why| header_error_response(why, id))?;
    let Some(name) = name else {
        let why = "the header Mcp-Session-Id is missing: open a session with `initialize` first";
        return Err(error_response(StatusCode::BAD_REQUEST, id, -32000, why));
    };
    bridge.sessions.get(name, &user(headers)).ok_or_else(|| session_not_found(id))
}

/// Returns the caller's name, as the sidecar passes it on.
fn user(headers: &HeaderMap) -> SessionUser {
    let name = headers.get("x-recif-user").and_then(|value| value.to_str().ok());
    name.filter(|name| !name.is_empty()).map(Into::into)
}

/// Sends a message that has no response.
pub(super) async fn forward(session: &ChildSession, received: ReceivedMessage) -> HandlerResult {
    if session.send(received.line()).await {
        Ok(reply::empty(StatusCode::ACCEPTED))
    } else {
        Err(session_not_found(None))
    }
}

/// Opens a session.
pub(super) async fn open_session(
    bridge: &Arc<Bridge>,
    headers: &HeaderMap,
    id: RpcId,
    received: ReceivedMessage,
    accepts: Accepts,
) -> HandlerResult {
    let given = headers::single(headers, SESSION_HEADER).map_err(|why| header_error_response(why, Some(&id)))?;
    if given.is_some_and(|given| bridge.sessions.get(given, &user(headers)).is_some()) {
        let why = "this session is open: end it by DELETE, or leave the header Mcp-Session-Id out to open another";
        return Err(error_response(StatusCode::BAD_REQUEST, Some(&id), -32600, why));
    }
    let session = bridge.sessions.begin(id.clone(), user(headers), &bridge.resources).await.map_err(|error| {
        let full = matches!(error, SessionError::Full(_));
        let status = if full { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_GATEWAY };
        tracing::warn!("no new session: {error}");
        let mut refusal = error_response(status, Some(&id), -32000, &error.to_string());
        if full {
            refusal.headers_mut().insert(REASON_HEADER, HeaderValue::from_static(NO_SESSION));
        }
        if let SessionError::Start(error) = error {
            bridge.stateless.not_started(error, &bridge.resources);
        }
        refusal
    })?;
    let mut response = relay(&session, id, None, received, accepts).await?;
    if !session.is_over()
        && let Ok(name) = HeaderValue::from_str(&session.id)
    {
        response.headers_mut().insert(SESSION_HEADER, name);
    }
    Ok(response)
}

/// Forwards a request of a session.
pub(super) async fn forward_request(
    bridge: &Bridge,
    headers: &HeaderMap,
    id: RpcId,
    token: Option<RpcId>,
    received: ReceivedMessage,
    accepts: Accepts,
) -> HandlerResult {
    let session = session(bridge, headers, Some(&id))?;
    relay(&session, id, token, received, accepts).await
}

async fn relay(
    session: &Arc<ChildSession>,
    id: RpcId,
    token: Option<RpcId>,
    received: ReceivedMessage,
    accepts: Accepts,
) -> HandlerResult {
    let kind = StreamKind::Response { token, takes_events: accepts.events };
    let inlet = session.stream(Some(id.clone()), kind).map_err(|_| {
        let why = "another request with this id is in flight";
        error_response(StatusCode::BAD_REQUEST, Some(&id), -32600, why)
    })?;
    // A child that is gone by now fails this request like any other one.
    session.send(received.line()).await;
    Ok(reply::respond(inlet, accepts).await)
}
