//! Routes HTTP requests, and decides to which era of the protocol each belongs.
//!
//! A request belongs to the newer era if its header or its body names such a revision; `initialize` never does. If only
//! one of the two does, they disagree, which is an error of the newer era.

use std::sync::Arc;

use daemon::loopback;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;

use super::{
    body::BridgeBody,
    headers::{self, StatelessParams},
    http_errors::{HandlerResult, error_response, header_error_response, not_allowed},
    message::{self, Message, RpcId},
    received_message::read,
    reply::{self, Accepts},
    rewrite,
    session_requests::{delete, forward, forward_request, get, open_session, session},
    state::Bridge,
    stateless::{StatelessRequest, UnavailableError},
};

/// Mark of a connection that is over the limit of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overload {
    No,
    Yes,
}

/// Answers a request.
pub(super) async fn handle(
    bridge: Arc<Bridge>,
    request: Request<Incoming>,
    overload: Overload,
) -> Response<BridgeBody> {
    let fields = request.headers();
    if bridge.resources.options.local
        && !loopback::is_local(|name| fields.get_all(name).iter().map(HeaderValue::as_bytes))
    {
        return reply::error_response(StatusCode::FORBIDDEN, None, -32600, loopback::REFUSAL);
    }
    match request.uri().path() {
        "/livez" => return reply::text(StatusCode::OK, "ok\n"),
        "/readyz" if bridge.resources.closing.is_cancelled() => {
            return reply::text(StatusCode::SERVICE_UNAVAILABLE, "about to end\n");
        }
        "/readyz" => {
            return match bridge.stateless.unready() {
                None => reply::text(StatusCode::OK, "ok\n"),
                Some(why) => reply::text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            };
        }
        path if path != bridge.resources.options.path => return reply::text(StatusCode::NOT_FOUND, "unknown path\n"),
        _ => {}
    }
    if let Some(origin) = request.headers().get(header::ORIGIN)
        && !bridge.resources.options.allowed_origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
    {
        let why = "this origin is not allowed; those that are, are in --allowed-origins of the bridge, or RECIF_ALLOWED_ORIGINS in \
                   spec.deployment.env of its MCPServer";
        return reply::error_response(StatusCode::FORBIDDEN, None, -32600, why);
    }
    let why = match overload {
        _ if bridge.resources.closing.is_cancelled() => Some("the MCP server is about to end"),
        Overload::Yes => Some("there are as many connections as there may be; try again"),
        Overload::No => None,
    };
    if let Some(why) = why {
        let mut response = reply::error_response(StatusCode::SERVICE_UNAVAILABLE, None, -32000, why);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    let answer = match *request.method() {
        Method::POST => post(&bridge, request).await,
        Method::GET => get(&bridge, request.headers()),
        Method::DELETE => delete(&bridge, request.headers()),
        _ => Err(not_allowed()),
    };
    answer.unwrap_or_else(|refusal| *refusal)
}

async fn post(bridge: &Arc<Bridge>, request: Request<Incoming>) -> HandlerResult {
    let (head, body) = request.into_parts();
    let headers = &head.headers;
    if !headers::has_json(headers) {
        let why = "the Content-Type has to be application/json";
        return Err(error_response(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, -32000, why));
    }
    let accepts = headers::accepts(headers);
    if accepts == (Accepts { json: false, events: false }) {
        let why = "accept application/json and text/event-stream";
        return Err(error_response(StatusCode::NOT_ACCEPTABLE, None, -32000, why));
    }
    let received = read(body, &bridge.resources.memory).await?;
    let text = received.text.as_str();
    let bad =
        |error: message::MessageError| error_response(StatusCode::BAD_REQUEST, None, error.code(), &error.to_string());
    let message = Message::read(text).map_err(bad)?;
    let id = if let Message::Request { id, .. } = &message { Some(id.clone()) } else { None };
    let version = headers::version(headers).map_err(|why| header_error_response(why, id.as_ref()))?;
    let is_newer = version.is_some_and(headers::is_stateless);
    match message {
        Message::Request { id, method, .. } if method == "initialize" => {
            open_session(bridge, headers, id, received, accepts).await
        }
        Message::Request { id, method, params } => {
            let fields = StatelessParams::read(params);
            let claims =
                fields.as_ref().and_then(|fields| fields.meta.as_ref()).is_some_and(|meta| meta.version.is_some());
            if !is_newer && !claims {
                let token = params.and_then(message::progress_token);
                return forward_request(bridge, headers, id, token, received, accepts).await;
            }
            headers::check_body_agreement(headers, &method, fields.as_ref())
                .map_err(|why| header_error_response(why, Some(&id)))?;
            let meta = fields.and_then(|fields| fields.meta);
            let written = meta.as_ref().and_then(|meta| meta.token);
            let token = written.and_then(|token| RpcId::read(token.get()));
            if written.is_some() && token.is_none() {
                // The child could return it in another form, which may be the token of another client.
                let why = "progressToken has to be a text or a whole number";
                return Err(error_response(StatusCode::BAD_REQUEST, Some(&id), -32602, why));
            }
            let wants_log = meta.is_some_and(|meta| meta.log_level.is_some());
            let given = StatelessRequest { id: id.clone(), method: &method, params, token, wants_log };
            let inlet = bridge.stateless.send_request(given, &bridge.resources).await;
            let busy = |why: UnavailableError| {
                let status = match why {
                    UnavailableError::NotStarted(_) => StatusCode::BAD_GATEWAY,
                    _ => StatusCode::SERVICE_UNAVAILABLE,
                };
                error_response(status, Some(&id), -32000, &why.to_string())
            };
            let accepts = Accepts { json: accepts.json && method != "subscriptions/listen", ..accepts };
            Ok(reply::respond(inlet.map_err(busy)?, accepts).await)
        }
        // Clients have no names, so a cancellation could be of any client's request; in this era a client cancels by
        // closing its stream.
        Message::Notification { .. } if is_newer => Ok(reply::empty(StatusCode::ACCEPTED)),
        Message::Response { .. } if is_newer => {
            let why = "this revision of the protocol has no answers of clients";
            Err(error_response(StatusCode::BAD_REQUEST, None, -32600, why))
        }
        Message::Notification { method, params } => {
            let session = session(bridge, headers, None)?;
            let cancelled = params.filter(|_| method == "notifications/cancelled").and_then(rewrite::cancelled_request);
            let sent = forward(&session, received).await;
            cancelled.iter().for_each(|id| session.cancel_request(id));
            sent
        }
        Message::Response { .. } => {
            let session = session(bridge, headers, None)?;
            forward(&session, received).await
        }
    }
}
