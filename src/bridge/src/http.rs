//! What a request asks for, and which era it belongs to.
//!
//! A request belongs to the newer era if its header or its body names such a revision; `initialize` never does. If only one
//! of the two does, they disagree, which is an error of the newer era.

use std::{future::poll_fn, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{
    body::Body,
    headers::{self, Params},
    memory::{Memory, NO_ROOM, Share},
    message::{self, Id, Message},
    reply::{self, Accepts, SESSION},
    rewrite,
    serve::Bridge,
    session::Session,
    session_state::Kind,
    sessions::{NoSession, User},
    shared::{Ask, Unable},
};

/// Says why nothing was done, in words that the sidecar passes on and a gateway understands: another Pod may have room.
const REASON: &str = "x-recif-reason";
const NO_SESSION: &str = "no-session";
/// Largest body of a request, in bytes.
const BODY: usize = 4 << 20;
/// Up to how many bytes a larger one is passed over, so that its client hears of it while it still sends.
const PASSED_OVER: usize = 16 << 20;
/// How long a body may take.
const UPLOAD: Duration = Duration::from_secs(30);

/// Whether there are more connections than there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crowd {
    No,
    Yes,
}

/// Answers a request.
pub(super) async fn handle(bridge: Arc<Bridge>, request: Request<Incoming>, crowd: Crowd) -> Response<Body> {
    match request.uri().path() {
        "/livez" => return reply::text(StatusCode::OK, "ok\n"),
        "/readyz" if bridge.closing.is_cancelled() => {
            return reply::text(StatusCode::SERVICE_UNAVAILABLE, "about to end\n");
        }
        "/readyz" => {
            return match bridge.shared.unready() {
                None => reply::text(StatusCode::OK, "ok\n"),
                Some(why) => reply::text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            };
        }
        path if path != bridge.options.path => return reply::text(StatusCode::NOT_FOUND, "there is no such path\n"),
        _ => {}
    }
    if let Some(origin) = request.headers().get(header::ORIGIN)
        && !bridge.options.allowed_origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
    {
        let why = "this origin is not allowed; those that are, are in --allowed-origins of the bridge, or RECIF_ALLOWED_ORIGINS in \
                   spec.deployment.env of its MCPServer";
        return reply::refusal(StatusCode::FORBIDDEN, None, -32600, why);
    }
    let why = match crowd {
        _ if bridge.closing.is_cancelled() => Some("the MCP server is about to end"),
        Crowd::Yes => Some("there are as many connections as there may be; try again"),
        Crowd::No => None,
    };
    if let Some(why) = why {
        let mut response = reply::refusal(StatusCode::SERVICE_UNAVAILABLE, None, -32000, why);
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

/// An answer, or why there is none.
type Answer = Result<Response<Body>, Refusal>;

/// Small, so that the way of what succeeds is.
type Refusal = Box<Response<Body>>;

fn refusal(status: StatusCode, id: Option<&Id>, code: i32, why: &str) -> Refusal {
    Box::new(reply::refusal(status, id, code, why))
}

fn not_allowed() -> Refusal {
    let mut response = reply::empty(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    Box::new(response)
}

/// A stream of whatever the child of a session has to say.
fn get(bridge: &Bridge, headers: &HeaderMap) -> Answer {
    let session = named(bridge, headers)?;
    if !headers::accepts(headers).events {
        return Err(refusal(StatusCode::NOT_ACCEPTABLE, None, -32000, "this is a text/event-stream"));
    }
    session.stream(None, Kind::Listens).map(|inlet| reply::events(inlet, None)).map_err(|_| unknown(None))
}

/// Ends a session.
fn delete(bridge: &Bridge, headers: &HeaderMap) -> Answer {
    named(bridge, headers)?.end();
    Ok(reply::empty(StatusCode::OK))
}

/// The session of a request without a body.
fn named(bridge: &Bridge, headers: &HeaderMap) -> Result<Arc<Session>, Refusal> {
    let version = headers::version(headers).map_err(|why| refused(why, None))?;
    if version.is_some_and(headers::is_newer) || !headers.contains_key(SESSION) {
        return Err(not_allowed());
    }
    session(bridge, headers, None)
}

fn session(bridge: &Bridge, headers: &HeaderMap, id: Option<&Id>) -> Result<Arc<Session>, Refusal> {
    let name = headers::single(headers, SESSION).map_err(|why| refused(why, id))?;
    let Some(name) = name else {
        let why = "the header Mcp-Session-Id is missing: open a session with `initialize` first";
        return Err(refusal(StatusCode::BAD_REQUEST, id, -32000, why));
    };
    bridge.sessions.get(name, &user(headers)).ok_or_else(|| unknown(id))
}

/// Who calls.
fn user(headers: &HeaderMap) -> User {
    let name = headers.get("x-recif-user").and_then(|value| value.to_str().ok());
    name.filter(|name| !name.is_empty()).map(Into::into)
}

/// Upon which clients start anew.
fn unknown(id: Option<&Id>) -> Refusal {
    refusal(StatusCode::NOT_FOUND, id, -32001, "Session not found")
}

fn refused(why: headers::Refusal, id: Option<&Id>) -> Refusal {
    refusal(StatusCode::BAD_REQUEST, id, why.code, &why.why)
}

async fn post(bridge: &Arc<Bridge>, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    let headers = &head.headers;
    if !headers::has_json(headers) {
        let why = "the Content-Type has to be application/json";
        return Err(refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, -32000, why));
    }
    let accepts = headers::accepts(headers);
    if accepts == (Accepts { json: false, events: false }) {
        let why = "accept application/json and text/event-stream";
        return Err(refusal(StatusCode::NOT_ACCEPTABLE, None, -32000, why));
    }
    let received = read(body, &bridge.memory).await?;
    let text = received.text.as_str();
    let bad = |error: message::NoMessage| refusal(StatusCode::BAD_REQUEST, None, error.code(), &error.to_string());
    let message = Message::read(text).map_err(bad)?;
    let id = if let Message::Request { id, .. } = &message { Some(id.clone()) } else { None };
    let version = headers::version(headers).map_err(|why| refused(why, id.as_ref()))?;
    let is_newer = version.is_some_and(headers::is_newer);
    match message {
        Message::Request { id, method, .. } if method == "initialize" => {
            open(bridge, headers, id, received, accepts).await
        }
        Message::Request { id, method, params } => {
            let fields = Params::read(params);
            let claims =
                fields.as_ref().and_then(|fields| fields.meta.as_ref()).is_some_and(|meta| meta.version.is_some());
            if !is_newer && !claims {
                let token = params.and_then(message::progress_token);
                return ask(bridge, headers, id, token, received, accepts).await;
            }
            headers::agree(headers, &method, fields.as_ref()).map_err(|why| refused(why, Some(&id)))?;
            let meta = fields.and_then(|fields| fields.meta);
            let written = meta.as_ref().and_then(|meta| meta.token);
            let token = written.and_then(|token| Id::read(token.get()));
            if written.is_some() && token.is_none() {
                // The child could give it back in another form, which may be the token of somebody else.
                let why = "progressToken has to be a text or a whole number";
                return Err(refusal(StatusCode::BAD_REQUEST, Some(&id), -32602, why));
            }
            let wants_log = meta.is_some_and(|meta| meta.log_level.is_some());
            let given = Ask { id: id.clone(), method: &method, params, token, wants_log };
            let inlet = bridge.shared.ask(given, bridge).await;
            let busy = |why: Unable| {
                let status = match why {
                    Unable::NotStarted(_) => StatusCode::BAD_GATEWAY,
                    _ => StatusCode::SERVICE_UNAVAILABLE,
                };
                refusal(status, Some(&id), -32000, &why.to_string())
            };
            let accepts = Accepts { json: accepts.json && method != "subscriptions/listen", ..accepts };
            Ok(reply::answer(inlet.map_err(busy)?, accepts).await)
        }
        // Clients have no names, so a cancellation could be of anybody's request; in this era a client cancels by leaving.
        Message::Notification { .. } if is_newer => Ok(reply::empty(StatusCode::ACCEPTED)),
        Message::Answer { .. } if is_newer => {
            let why = "this revision of the protocol has no answers of clients";
            Err(refusal(StatusCode::BAD_REQUEST, None, -32600, why))
        }
        Message::Notification { method, params } => {
            let session = session(bridge, headers, None)?;
            let cancelled = params.filter(|_| method == "notifications/cancelled").and_then(rewrite::cancelled);
            let sent = tell(&session, received).await;
            cancelled.iter().for_each(|id| session.cancelled(id));
            sent
        }
        Message::Answer { .. } => {
            let session = session(bridge, headers, None)?;
            tell(&session, received).await
        }
    }
}

/// Sends what nobody answers.
async fn tell(session: &Session, received: Received) -> Answer {
    if session.send(received.line()).await { Ok(reply::empty(StatusCode::ACCEPTED)) } else { Err(unknown(None)) }
}

/// Opens a session.
async fn open(bridge: &Arc<Bridge>, headers: &HeaderMap, id: Id, received: Received, accepts: Accepts) -> Answer {
    let given = headers::single(headers, SESSION).map_err(|why| refused(why, Some(&id)))?;
    if given.is_some_and(|given| bridge.sessions.get(given, &user(headers)).is_some()) {
        let why = "this session is open: end it by DELETE, or leave the header Mcp-Session-Id out to open another";
        return Err(refusal(StatusCode::BAD_REQUEST, Some(&id), -32600, why));
    }
    let session = bridge.sessions.begin(id.clone(), user(headers), bridge).await.map_err(|error| {
        let full = matches!(error, NoSession::Full(_));
        let status = if full { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_GATEWAY };
        tracing::warn!("no new session: {error}");
        let mut refusal = refusal(status, Some(&id), -32000, &error.to_string());
        if full {
            refusal.headers_mut().insert(REASON, HeaderValue::from_static(NO_SESSION));
        }
        if let NoSession::Start(error) = error {
            bridge.shared.not_started(error, bridge);
        }
        refusal
    })?;
    let mut response = relay(&session, id, None, received, accepts).await?;
    if !session.is_over()
        && let Ok(name) = HeaderValue::from_str(&session.id)
    {
        response.headers_mut().insert(SESSION, name);
    }
    Ok(response)
}

/// A request in a session.
async fn ask(
    bridge: &Bridge,
    headers: &HeaderMap,
    id: Id,
    token: Option<Id>,
    received: Received,
    accepts: Accepts,
) -> Answer {
    let session = session(bridge, headers, Some(&id))?;
    relay(&session, id, token, received, accepts).await
}

async fn relay(session: &Arc<Session>, id: Id, token: Option<Id>, received: Received, accepts: Accepts) -> Answer {
    let kind = Kind::Answers { token, takes_events: accepts.events };
    let inlet = session.stream(Some(id.clone()), kind).map_err(|_| {
        let why = "another request with this id is in flight";
        refusal(StatusCode::BAD_REQUEST, Some(&id), -32600, why)
    })?;
    // A child that is gone by now fails the request like any other.
    session.send(received.line()).await;
    Ok(reply::answer(inlet, accepts).await)
}

/// A message of a client, with its share of the memory of all.
struct Received {
    text: String,
    share: Share,
}

impl Received {
    /// As a child gets it.
    fn line(self) -> Bytes {
        self.share.hold(message::line(self.text))
    }
}

/// The whole body.
async fn read(body: Incoming, memory: &Memory) -> Result<Received, Refusal> {
    let too_large = || {
        let why = format!("a message may have {} MiB at most", BODY >> 20);
        refusal(StatusCode::PAYLOAD_TOO_LARGE, None, -32600, &why)
    };
    if body.size_hint().lower() > PASSED_OVER as u64 {
        return Err(too_large());
    }
    let mut body = pin!(body);
    let (mut bytes, mut share) = (Vec::new(), Share::default());
    let mut length = 0;
    let reading = async {
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let Ok(frame) = frame else {
                return Err(refusal(StatusCode::BAD_REQUEST, None, -32700, "the body did not end"));
            };
            let Ok(data) = frame.into_data() else { continue };
            length += data.len();
            if length > PASSED_OVER {
                break;
            }
            if length <= BODY {
                let no_room = || refusal(StatusCode::SERVICE_UNAVAILABLE, None, -32000, NO_ROOM);
                share.add(memory.try_take(data.len()).ok_or_else(no_room)?);
                bytes.extend_from_slice(&data);
            } else {
                (bytes, share) = (Vec::new(), Share::default());
            }
        }
        if length > BODY { Err(too_large()) } else { Ok(()) }
    };
    let late = |_| refusal(StatusCode::REQUEST_TIMEOUT, None, -32000, "the body did not come in time");
    timeout(UPLOAD, reading).await.map_err(late)??;
    let not_text = |_| refusal(StatusCode::BAD_REQUEST, None, -32700, "this is not UTF-8");
    let text = String::from_utf8(bytes).map_err(not_text)?;
    Ok(Received { text, share })
}
