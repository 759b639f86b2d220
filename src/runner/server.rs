//! The HTTP interface.
//!
//! | route | answer |
//! |---|---|
//! | `POST /chat` `{message, conversation_id?}` | `{reply, conversation_id, title?}`, or events when `Accept` has `text/event-stream` |
//! | `GET /healthz` | 200 while the process runs |
//! | `GET /readyz` | 200, or 503 with what is unsupported or that it drains |
//! | `GET /metrics` | OpenMetrics text |
//!
//! Every error is `{"error": "…"}`: 400 for a body that is not the object above, 404, 405, 413 for one over 1 MiB, 502
//! when the model fails, 503 while draining or not ready. A conversation id that is not known starts anew under that id.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::agent::{Agent, Turn, TurnError};
use super::conversations::ConversationId;
use super::metrics::Metrics;
use super::sse;

/// Largest request body, in bytes.
const BODY: usize = 1 << 20;

/// What the routes share.
#[derive(Clone)]
pub(super) struct App {
    /// The agent, or why it cannot be served.
    pub(super) agent: Result<Arc<Agent>, String>,
    /// Everything counted.
    pub(super) metrics: Metrics,
    /// Requests in flight; closed once the process drains.
    pub(super) requests: TaskTracker,
}

/// Body of `POST /chat`.
#[derive(Deserialize)]
struct Chat {
    message: String,
    conversation_id: Option<String>,
}

/// An answer that is an error: status and text.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

/// All routes.
pub(super) fn router(app: App) -> Router {
    Router::new()
        .route("/chat", post(chat))
        .fallback(async || Refusal(StatusCode::NOT_FOUND, "there is no such route; POST to /chat".into()))
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(app.clone(), track))
        .route("/healthz", get(async || Json(json!({ "status": "ok" }))))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .method_not_allowed_fallback(not_allowed)
        .with_state(app)
}

async fn not_allowed(method: Method) -> Refusal {
    Refusal(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not allowed here"))
}

async fn chat(
    State(app): State<App>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refusal> {
    let agent = app.agent.map_err(|why| Refusal(StatusCode::SERVICE_UNAVAILABLE, why))?;
    let turn = turn(&body.map_err(unread)?)?;
    if wants_events(&headers) {
        return Ok(sse::respond(agent, turn));
    }
    match agent.answer(turn, None).await {
        Ok(reply) => Ok(Json(reply).into_response()),
        Err(error @ TurnError::Model(_)) => Err(Refusal(StatusCode::BAD_GATEWAY, error.to_string())),
        Err(error) => Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

/// Reads the body of `POST /chat`.
fn turn(body: &[u8]) -> Result<Turn, Refusal> {
    let bad = |text: String| Refusal(StatusCode::BAD_REQUEST, text);
    let chat: Chat = serde_json::from_slice(body)
        .map_err(|error| bad(format!("the body must be JSON like {{\"message\": \"…\"}}: {error}")))?;
    if chat.message.trim().is_empty() {
        return Err(bad("`message` is empty".into()));
    }
    let parse = |id: String| {
        ConversationId::parse(&id)
            .ok_or_else(|| bad("`conversation_id` must be 1 to 128 letters, digits, `.`, `_`, `:` or `-`".into()))
    };
    Ok(Turn { conversation: chat.conversation_id.map(parse).transpose()?, message: chat.message })
}

fn unread(rejection: BytesRejection) -> Refusal {
    match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 1 MiB".into()),
        _ => Refusal(StatusCode::BAD_REQUEST, "the body broke off".into()),
    }
}

fn wants_events(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    kinds.any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream")))
}

/// Counts a request until the last byte of its answer is handed over, and refuses it while draining.
async fn track(State(app): State<App>, request: Request, next: Next) -> Response {
    let token = app.requests.token();
    let mut in_flight = app.metrics.request();
    let mut response = if app.requests.is_closed() {
        let mut response =
            Refusal(StatusCode::SERVICE_UNAVAILABLE, "the agent is shutting down; try again".into()).into_response();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    } else {
        next.run(request).await
    };
    in_flight.answered(response.status());
    if response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream") {
        let held = (token, in_flight);
        response = response.map(|body| {
            Body::from_stream(body.into_data_stream().inspect(move |_| {
                let _ = &held;
            }))
        });
    }
    response
}

async fn ready(State(app): State<App>) -> Result<Response, Refusal> {
    if app.requests.is_closed() {
        return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, "draining".into()));
    }
    app.agent.map_err(|why| Refusal(StatusCode::SERVICE_UNAVAILABLE, why))?;
    Ok(Json(json!({ "status": "ok" })).into_response())
}

async fn metrics(State(app): State<App>) -> Result<Response, Refusal> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match app.metrics.encode() {
        Ok(text) => Ok(([(CONTENT_TYPE, kind)], text).into_response()),
        Err(error) => {
            Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {error}")))
        }
    }
}
