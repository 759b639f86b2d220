//! What every mode of the runtime serves around its own routes: probes, metrics, counting, draining, errors.
//!
//! | route | answer |
//! |---|---|
//! | `GET /healthz` | 200 while the process runs |
//! | `GET /readyz` | 200, or 503 with what cannot be served or that it drains |
//! | `GET /metrics` | OpenMetrics text |
//!
//! Every error is `{"error": "…"}`, under `/v1/` in OpenAI's form. The other routes also give 404, 405, 413 for a body over 1 MiB and 503 while
//! draining.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::metrics::Metrics;
use super::openai_api::ApiError;

/// Largest request body, in bytes.
const BODY: usize = 1 << 20;

/// An answer that is an error: status and text.
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<BytesRejection> for Refusal {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Self(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 1 MiB".into())
            }
            _ => Self(StatusCode::BAD_REQUEST, "the body broke off".into()),
        }
    }
}

/// Whether what is needed is there now; the error is a sentence for `/readyz`.
pub(super) type Check = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// What the routes around a mode's own share.
#[derive(Clone)]
pub(super) struct Shell {
    /// Asked for `/readyz` where `readiness` says nothing against it.
    pub(super) check: Option<Check>,
    /// The body of `/readyz`: of a 200, or of a 503.
    pub(super) readiness: Arc<Result<Value, Value>>,
    /// Everything counted.
    pub(super) metrics: Metrics,
    /// Requests in flight; closed once the process drains.
    pub(super) requests: TaskTracker,
}

/// All routes of a process, and its requests in flight.
pub(super) struct Service {
    /// What answers.
    pub(super) router: Router,
    /// Closed once the process drains.
    pub(super) requests: TaskTracker,
}

impl Shell {
    /// The whole service around `routes`.
    pub(super) fn around(self, routes: Router) -> Service {
        let requests = self.requests.clone();
        let router = routes
            .method_not_allowed_fallback(not_allowed)
            .layer(DefaultBodyLimit::max(BODY))
            .layer(middleware::from_fn_with_state(self.clone(), track))
            .merge(self.probes());
        Service { router, requests }
    }

    fn probes(self) -> Router {
        Router::new()
            .route("/healthz", get(async || Json(json!({ "status": "ok" }))))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .method_not_allowed_fallback(not_allowed)
            .with_state(self)
    }
}

/// Whether the client wants server-sent events.
pub(super) fn wants_events(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    kinds.any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream")))
}

async fn not_allowed(method: Method) -> Refusal {
    Refusal(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not allowed here"))
}

/// Counts a request until the last byte of its answer is handed over, and refuses it while draining.
async fn track(State(shell): State<Shell>, request: Request, next: Next) -> Response {
    let token = shell.requests.token();
    let mut in_flight = shell.metrics.request();
    let mut response = if shell.requests.is_closed() {
        let why = "this runtime is shutting down; try again";
        let mut response = match request.uri().path().starts_with("/v1/") {
            true => ApiError::unavailable(why).into_response(),
            false => Refusal(StatusCode::SERVICE_UNAVAILABLE, why.into()).into_response(),
        };
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

async fn ready(State(shell): State<Shell>) -> Response {
    if shell.requests.is_closed() {
        return Refusal(StatusCode::SERVICE_UNAVAILABLE, "draining".into()).into_response();
    }
    match &*shell.readiness {
        Ok(body) => match &shell.check {
            Some(check) => match check().await {
                Ok(()) => Json(body).into_response(),
                Err(why) => Refusal(StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
            },
            None => Json(body).into_response(),
        },
        Err(body) => (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response(),
    }
}

async fn metrics(State(shell): State<Shell>) -> Result<Response, Refusal> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match shell.metrics.encode() {
        Ok(text) => Ok(([(CONTENT_TYPE, kind)], text).into_response()),
        Err(error) => {
            Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {error}")))
        }
    }
}
