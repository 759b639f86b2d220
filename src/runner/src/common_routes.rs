//! Routes and middleware shared by all modes of the runtime: probes, metrics, request counting, draining, errors.
//!
//! | route | answer |
//! |---|---|
//! | `GET /healthz` | 200 while the process runs |
//! | `GET /readyz` | 200, also while a database is unreachable, which the body reports; 503 otherwise |
//! | `GET /metrics` | OpenMetrics text |
//! | `GET /_recif/usage` | what the models used, for the Pod's own sidecar: [`crds::usage::UsageReport`] |
//!
//! `/readyz` is 503 while the process drains, and 503 with `x-recif-ready: never` and the reason where no request can
//! ever be answered.
//!
//! Every error is `{"error": "…"}`, under `/v1/` in OpenAI's form. The other routes also give 404, 405, 413 for a body
//! over 1 MiB and 503 while draining.
//!
//! Protection against cross-site requests: a web page may send a simple request without a CORS preflight, also to an
//! agent whose port is forwarded to the user's machine. So an `Origin` that is not this host is 403, unless the request
//! has `X-Forwarded-Prefix`, set by a gateway that checks origins itself; and with an `Origin` a body is 415 unless its
//! `Content-Type` is JSON. On a developer's machine (`RECIF_LOCAL`), where pages reach every port, [`loopback`] applies too.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    body::Body,
    extract::{ConnectInfo, DefaultBodyLimit, Query, Request, State, rejection::BytesRejection},
    http::{
        Method, StatusCode,
        header::{
            ACCEPT, CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER, TRAILER,
        },
    },
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use crds::usage::{USAGE_PATH, UsageReport};
use daemon::loopback;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};
use telemetry::Tracing;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{
    caller::CallerContext,
    metrics::RunnerMetrics,
    openai_api::ApiError,
    traces::{RUN_HEADER, TraceScope},
    usage::{RESPONSE_HEADER, TRAILERS, UsageAccount, UsageBody},
};

/// Largest request body, in bytes.
const MAX_BODY: usize = 1 << 20;
/// Header by which clients of OpenAI and Anthropic learn whether to repeat a request by themselves.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Error response: status and text.
pub(super) struct ErrorResponse(pub(super) StatusCode, pub(super) String);

impl IntoResponse for ErrorResponse {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<BytesRejection> for ErrorResponse {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Self(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 1 MiB".into())
            }
            _ => Self(StatusCode::BAD_REQUEST, "the body broke off".into()),
        }
    }
}

/// Reports whether the `Content-Type` is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// Returns the refusal of a request that a web page sent, if any; the rules are in the module's documentation.
fn cross_origin(request: &Request) -> Option<(StatusCode, &'static str)> {
    let headers = request.headers();
    let origin = headers.get(ORIGIN)?;
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_ascii_lowercase();
    let origin = text(origin);
    let host = headers.get(HOST).map(text).unwrap_or_default();
    let is_own = origin.split_once("://").is_some_and(|(_, authority)| authority == host);
    if !is_own && !headers.contains_key("x-forwarded-prefix") {
        return Some((StatusCode::FORBIDDEN, "this request comes from a web page of another origin, by its Origin"));
    }
    let has_body = request.method() == Method::POST && !is_json(headers);
    has_body
        .then_some((StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be JSON: send Content-Type: application/json"))
}

/// Probe of the dependencies; the error is a sentence for `/readyz`.
pub(super) type ReadinessCheck = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// State shared by the routes around a mode's own.
#[derive(Clone)]
pub(super) struct CommonRoutes {
    /// Probe that `/readyz` runs in addition, when `readiness` is `Ok`.
    pub(super) check: Option<ReadinessCheck>,
    /// Body of `/readyz`: of a 200, or of a 503 that will never change.
    pub(super) readiness: Arc<Result<Value, Value>>,
    /// Metrics.
    pub(super) metrics: RunnerMetrics,
    /// Requests in flight; closed once the process drains.
    pub(super) requests: TaskTracker,
}

/// Router of a process, and its requests in flight.
pub(super) struct RunnerService {
    /// Router.
    pub(super) router: Router,
    /// Closed once the process drains.
    pub(super) requests: TaskTracker,
    /// Recorder of spans, whose last ones are sent at the end.
    pub(super) tracing: Tracing,
    /// Task that goes on with turns which no request carries, if there is one. It ends with the service.
    pub(super) sweep: Option<AbortOnDropHandle<()>>,
}

impl CommonRoutes {
    /// Wraps `routes` with the shared routes and middleware.
    pub(super) fn wrap(self, routes: Router) -> RunnerService {
        let (requests, tracing) = (self.requests.clone(), self.metrics.tracing.clone());
        let router = routes
            .method_not_allowed_fallback(not_allowed)
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(middleware::from_fn_with_state(self.clone(), track))
            .merge(self.probes());
        RunnerService { router, requests, tracing, sweep: None }
    }

    fn probes(self) -> Router {
        Router::new()
            .route("/healthz", get(async || Json(json!({ "status": "ok" }))))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .route(USAGE_PATH, get(usage))
            .method_not_allowed_fallback(not_allowed)
            .with_state(self)
    }
}

impl RunnerService {
    /// Restricts the service to the sidecar, which authenticates callers and listens at `port`: peers outside the Pod get
    /// only the probes answered.
    pub(super) fn behind_sidecar(self, port: u16) -> Self {
        Self { router: self.router.layer(middleware::from_fn_with_state(port, require_own_pod)), ..self }
    }

    /// Refuses requests of web pages, which a browser on the same machine can send.
    pub(super) fn local(self) -> Self {
        Self { router: self.router.layer(middleware::from_fn(require_local)), ..self }
    }
}

async fn require_own_pod(
    State(port): State<u16>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let probe = matches!(request.uri().path(), "/healthz" | "/readyz");
    if probe || is_in_pod(peer) {
        return next.run(request).await;
    }
    let why = format!("this runtime answers its sidecar alone: call port {port} of this Pod, or the gateway");
    ErrorResponse(StatusCode::FORBIDDEN, why).into_response()
}

/// Reports whether a peer is in this Pod, as its sidecar is.
fn is_in_pod(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

async fn require_local(request: Request, next: Next) -> Response {
    let headers = request.headers();
    match loopback::is_local(|name| headers.get_all(name).iter().map(HeaderValue::as_bytes)) {
        true => next.run(request).await,
        false => ErrorResponse(StatusCode::FORBIDDEN, loopback::REFUSAL.into()).into_response(),
    }
}

/// Reports whether the client accepts server-sent events.
pub(super) fn wants_events(headers: &HeaderMap) -> bool {
    let mut kinds = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    kinds.any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream")))
}

async fn not_allowed(method: Method) -> ErrorResponse {
    ErrorResponse(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not allowed here"))
}

/// Counts a request until the last byte of its response is handed over, and refuses it while draining.
async fn track(State(shell): State<CommonRoutes>, request: Request, next: Next) -> Response {
    let token = shell.requests.token();
    let mut in_flight = shell.metrics.start_request();
    let mut account = UsageAccount::default();
    let mut response = if shell.requests.is_closed() {
        let why = "this runtime is shutting down; try again";
        let mut response = match request.uri().path().starts_with("/v1/") {
            true => ApiError::unavailable(why).into_response(),
            false => ErrorResponse(StatusCode::SERVICE_UNAVAILABLE, why.into()).into_response(),
        };
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        response
    } else if let Some((status, why)) = cross_origin(&request) {
        match request.uri().path().starts_with("/v1/") {
            true => ApiError::with_status(status, why).into_response(),
            false => ErrorResponse(status, why.into()).into_response(),
        }
    } else {
        let caller = CallerContext::user_of(request.headers());
        let trace = TraceScope::of_request(&shell.metrics.tracing, request.headers());
        let trace = trace.capturing(shell.metrics.secrets.as_ref(), request.headers());
        let run = trace.run_id();
        account = UsageAccount::new(caller.as_deref().unwrap_or_default()).within(&trace);
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let is_by_sidecar = peer.is_some_and(|ConnectInfo(peer)| is_in_pod(*peer));
        account = account.with_budgets(request.headers(), is_by_sidecar, &shell.metrics.usage);
        let mut response = account.clone().scope(next.run(request)).await;
        response.headers_mut().extend(account.decision_header());
        if let Some(run) = run.and_then(|run| HeaderValue::from_str(&run).ok()) {
            response.headers_mut().insert(RUN_HEADER, run);
        }
        // The sums of a stream are known at its end: its last event and its trailer have them.
        if !is_event_stream(&response)
            && let Some(usage) = account.header()
        {
            response.headers_mut().insert(RESPONSE_HEADER, usage);
        }
        response
    };
    in_flight.set_status(response.status());
    // At the head of a stream too, which may decide on calls: its trailer says what waits at its end.
    response.headers_mut().extend(shell.metrics.approvals.header());
    if response.status() == StatusCode::TOO_MANY_REQUESTS
        && let Some(end) = account.budget_end()
    {
        response.headers_mut().insert(RETRY_AFTER, end.wait.into());
        response.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    let ledger = &shell.metrics.usage;
    // At the head of a stream too: the end is not reached by a client that leaves. A gateway with a budget learns from any response that
    // this image counts.
    let has_used = || response.headers().contains_key(RESPONSE_HEADER);
    if is_event_stream(&response) || account.has_budgets() || has_used() {
        response.headers_mut().extend(account.total_headers(ledger));
    }
    if is_event_stream(&response) {
        response.headers_mut().insert(TRAILER, HeaderValue::from_static(TRAILERS));
        let counted = (ledger.clone(), shell.metrics.approvals.clone());
        response = response.map(|body| Body::new(UsageBody::new(body, account, counted, (token, in_flight))));
    }
    response
}

fn is_event_stream(response: &Response) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream")
}

async fn ready(State(shell): State<CommonRoutes>) -> Response {
    if shell.requests.is_closed() {
        return ErrorResponse(StatusCode::SERVICE_UNAVAILABLE, "draining".into()).into_response();
    }
    match &*shell.readiness {
        Ok(body) => match &shell.check {
            Some(check) => match check().await {
                Ok(()) => Json(body).into_response(),
                // A dependency may recover, and each request reports the error itself; without ready Pods no request
                // would reach one.
                Err(why) => Json(json!({ "status": "degraded", "reason": why })).into_response(),
            },
            None => Json(body).into_response(),
        },
        Err(body) => (StatusCode::SERVICE_UNAVAILABLE, [("x-recif-ready", "never")], Json(body)).into_response(),
    }
}

/// Query of [`usage`]: what is known of this process already.
#[derive(Default, Deserialize)]
#[serde(default)]
struct KnownUsage {
    instance: String,
    after: u64,
}

/// Reports the usage of models. It names callers, so it answers the Pod's own sidecar alone, also where there is none.
async fn usage(
    State(shell): State<CommonRoutes>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Query(known): Query<KnownUsage>,
) -> Result<Json<UsageReport>, ErrorResponse> {
    if !is_in_pod(peer) {
        return Err(ErrorResponse(StatusCode::NOT_FOUND, "unknown route".into()));
    }
    Ok(Json(shell.metrics.usage.report(&known.instance, known.after)))
}

async fn metrics(State(shell): State<CommonRoutes>) -> Result<Response, ErrorResponse> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match shell.metrics.encode() {
        Ok(text) => Ok(([(CONTENT_TYPE, kind)], text).into_response()),
        Err(error) => {
            Err(ErrorResponse(StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {error}")))
        }
    }
}
