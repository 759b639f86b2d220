//! Routes HTTP requests, and decides to which era of the protocol each belongs.
//!
//! A request belongs to the newer era if its header or its body names such a revision; `initialize` never does. If only
//! one of the two does, they disagree, which is an error of the newer era.

use std::{future::poll_fn, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use daemon::loopback;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{
    body::BridgeBody,
    headers::{self, StatelessParams},
    memory::{MemoryBudget, MemoryPermit, NO_ROOM},
    message::{self, Message, RpcId},
    reply::{self, Accepts, SESSION_HEADER},
    rewrite,
    session::ChildSession,
    session_state::StreamKind,
    sessions::{SessionError, SessionUser},
    state::Bridge,
    stateless::{StatelessRequest, UnavailableError},
};

/// Header with the reason of a refusal, which the sidecar passes on and a gateway understands: another Pod may have
/// room.
const REASON_HEADER: &str = "x-recif-reason";
const NO_SESSION: &str = "no-session";
/// Largest body of a request, in bytes.
const MAX_BODY: usize = 4 << 20;
/// Largest body that is read and discarded, in bytes, so that its client gets the response while it still sends.
const MAX_DISCARDED_BODY: usize = 16 << 20;
/// Longest time for the upload of a body.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(30);

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

/// Response, or error response.
type HandlerResult = Result<Response<BridgeBody>, BoxedErrorResponse>;

/// Boxed, so that the result of a success stays small.
type BoxedErrorResponse = Box<Response<BridgeBody>>;

fn error_response(status: StatusCode, id: Option<&RpcId>, code: i32, why: &str) -> BoxedErrorResponse {
    Box::new(reply::error_response(status, id, code, why))
}

fn not_allowed() -> BoxedErrorResponse {
    let mut response = reply::empty(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    Box::new(response)
}

/// Opens a stream for the messages of a session's child that answer no request.
fn get(bridge: &Bridge, headers: &HeaderMap) -> HandlerResult {
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
fn delete(bridge: &Bridge, headers: &HeaderMap) -> HandlerResult {
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

fn session(bridge: &Bridge, headers: &HeaderMap, id: Option<&RpcId>) -> Result<Arc<ChildSession>, BoxedErrorResponse> {
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

/// Returns the error on which clients begin a new session.
fn session_not_found(id: Option<&RpcId>) -> BoxedErrorResponse {
    error_response(StatusCode::NOT_FOUND, id, -32001, "Session not found")
}

fn header_error_response(why: headers::HeaderError, id: Option<&RpcId>) -> BoxedErrorResponse {
    error_response(StatusCode::BAD_REQUEST, id, why.code, &why.why)
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

/// Sends a message that has no response.
async fn forward(session: &ChildSession, received: ReceivedMessage) -> HandlerResult {
    if session.send(received.line()).await {
        Ok(reply::empty(StatusCode::ACCEPTED))
    } else {
        Err(session_not_found(None))
    }
}

/// Opens a session.
async fn open_session(
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
async fn forward_request(
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

/// Message of a client, with its permit of the memory budget.
struct ReceivedMessage {
    text: String,
    permit: MemoryPermit,
}

impl ReceivedMessage {
    /// Returns the message as the line that a child gets.
    fn line(self) -> Bytes {
        self.permit.attach(message::line(self.text))
    }
}

/// Reads the whole body.
async fn read(body: Incoming, memory: &MemoryBudget) -> Result<ReceivedMessage, BoxedErrorResponse> {
    let too_large = || {
        let why = format!("a message may have {} MiB at most", MAX_BODY >> 20);
        error_response(StatusCode::PAYLOAD_TOO_LARGE, None, -32600, &why)
    };
    if body.size_hint().lower() > MAX_DISCARDED_BODY as u64 {
        return Err(too_large());
    }
    let mut body = pin!(body);
    let (mut bytes, mut share) = (Vec::new(), MemoryPermit::default());
    let mut length = 0;
    let reading = async {
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let Ok(frame) = frame else {
                return Err(error_response(StatusCode::BAD_REQUEST, None, -32700, "the body did not end"));
            };
            let Ok(data) = frame.into_data() else { continue };
            length += data.len();
            if length > MAX_DISCARDED_BODY {
                break;
            }
            if length <= MAX_BODY {
                let no_room = || error_response(StatusCode::SERVICE_UNAVAILABLE, None, -32000, NO_ROOM);
                share.merge(memory.try_acquire(data.len()).ok_or_else(no_room)?);
                bytes.extend_from_slice(&data);
            } else {
                (bytes, share) = (Vec::new(), MemoryPermit::default());
            }
        }
        if length > MAX_BODY { Err(too_large()) } else { Ok(()) }
    };
    let late = |_| error_response(StatusCode::REQUEST_TIMEOUT, None, -32000, "the body did not come in time");
    timeout(UPLOAD_TIMEOUT, reading).await.map_err(late)??;
    let not_text = |_| error_response(StatusCode::BAD_REQUEST, None, -32700, "this is not UTF-8");
    let text = String::from_utf8(bytes).map_err(not_text)?;
    Ok(ReceivedMessage { text, permit: share })
}
