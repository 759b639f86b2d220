//! Admin port: probes, metrics, and the demand endpoints that the scaler polls.
//!
//! `GET /_recif/demand` reports every workload for which a request has waited or was refused since the process started,
//! every agent for which a model answered a minute ago or that reports calls which wait for a person, and every workload with a budget of
//! tokens for all callers.
//! It responds only to processes that hold the keys of Secret `recif-identity` and send a token signed with them in
//! `X-Recif-Caller`. A gateway without keys and with `--auth none` responds to every caller.
//!
//! ```json
//! {
//!   "instance": "0123456789abcdef", "uptimeMs": 61000,
//!   "workloads": [
//!     { "kind": "Agent", "namespace": "default", "name": "weather", "waiting": 2, "waitingMs": 5400, "refused": 7,
//!       "halted": 0, "models": { "openai/gpt": 3, "stub/echo (HTTP 503)": 5 },
//!       "tokens": { "day": 20784, "spent": 12000, "cost": 36000000 },
//!       "pending": { "at": 1795763226123, "calls": 2, "since": 1795763040, "until": 1795766640 } }
//!   ]
//! }
//! ```
//!
//! `instance` is new after each start. `waiting` is the current number of queued requests. `waitingMs` is that number
//! integrated over time: its difference between two polls, divided by the difference of `uptimeMs`, is the mean queue
//! length. `refused` counts requests refused for want of room. `halted` counts requests to a workload that is Failed
//! without Pods for a reason that a ready Pod would end. `waitingMs` and both counters only grow within an instance,
//! unless the workload is deleted. `models` says which models answered in the last minute that is over, for agents that
//! were called in it, and in brackets the failure of the first model where another one answered. `tokens` has those that all callers of
//! a workload with a budget have used today, their cost in 10⁻⁹ of the currency if there is a budget of it, and the day, in days since
//! 1970 (UTC). `pending` is the newest report of an agent's [calls that wait](crds::pending_calls::PendingCalls). Reading changes nothing.
//!
//! `GET /_recif/demand/cold?after=N` is a [long poll](https://www.rfc-editor.org/rfc/rfc6202) for the same callers. It
//! responds with `{"times": M, "workloads": […]}` as soon as `times` differs from N, and after 25 s in any case, so the
//! scaler learns at once that a request waits. `times` counts the cold starts: how often requests began to wait for a
//! workload that had no ready Pod and no earlier waiter. `workloads` lists the workloads that have no ready Pod now and
//! have waiters, with the fields above.
//!
//! `POST /_recif/limits` exchanges admissions with another gateway: [`limits`](super::limits). Its token is of another audience.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::to_bytes,
    extract::{Query, Request, State},
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::{get, post},
};
use cluster::cache::IDENTITY_SECRET;
use crds::pending_calls::PendingCalls;
use identity::{CALLER_HEADER, COLD_DEMAND_PATH, DEMAND_AUDIENCE, DEMAND_PATH, LIMITS_AUDIENCE, LIMITS_PATH, unix_now};
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpListener,
    time::{Instant, timeout},
};

use super::{
    auth::Auth,
    limits::{CostBudgets, LimitReport, LimitTime, MAX_REPORT},
    routes::Route,
    state::GatewayContext,
    workload::WorkloadState,
};

/// Longest time for which a long poll is held open without a change.
const LONGEST_POLL: Duration = Duration::from_secs(25);

/// Handlers of the admin port.
#[derive(Debug, Clone)]
pub(super) struct Admin {
    shared: Arc<GatewayContext>,
    started: Instant,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DemandReport {
    instance: String,
    uptime_ms: u64,
    workloads: Vec<WorkloadDemand>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadDemand {
    kind: &'static str,
    namespace: String,
    name: String,
    waiting: usize,
    waiting_ms: u64,
    refused: u64,
    halted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<BTreeMap<String, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<DayTokens>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<PendingCalls>,
}

/// Tokens that all callers of a workload have used in a day, and their cost in 10⁻⁹ of the currency.
#[derive(Debug, Serialize)]
struct DayTokens {
    day: i64,
    spent: u64,
    cost: u64,
    reporting: ReportingCounts,
}

/// Whether any response reported what its models used, and the number of those that should have and did not.
#[derive(Debug, Serialize)]
struct ReportingCounts {
    any: bool,
    without: u64,
}

impl Admin {
    /// Creates the handlers. The uptime is counted from this call.
    pub(super) fn new(shared: Arc<GatewayContext>) -> Self {
        Self { shared, started: Instant::now() }
    }

    /// Serves the admin port until the listener fails. On loopback it serves no web pages.
    ///
    /// # Errors
    /// The listener failed.
    pub(super) async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        daemon::admin::serve_routes(listener, self.router()).await
    }

    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route(DEMAND_PATH, get(demand))
            .route(COLD_DEMAND_PATH, get(cold))
            .route(LIMITS_PATH, post(exchange))
            .with_state(self)
    }
}

async fn readyz(State(admin): State<Admin>) -> (StatusCode, String) {
    let mut problems = admin.shared.watch_health.unready();
    if admin.shared.leaving() {
        problems.push("the gateway is shutting down".into());
    }
    if matches!(admin.shared.auth, Auth::Kubernetes(_)) && admin.shared.keys.get().is_none() {
        problems.push(format!(
            "Secret {IDENTITY_SECRET}, by which callers are vouched for, is not there: the operator makes it"
        ));
    }
    match problems.as_slice() {
        [] => (StatusCode::OK, [vec!["ok".into()], admin.shared.watch_health.notes()].concat().join("\n") + "\n"),
        lines => (StatusCode::SERVICE_UNAVAILABLE, lines.join("\n") + "\n"),
    }
}

async fn metrics(State(admin): State<Admin>) -> Result<impl IntoResponse, (StatusCode, String)> {
    let text = admin.shared.metrics.encode();
    let text = text.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], text))
}

/// Checks that the caller has a token for this audience.
fn authorize(admin: &Admin, headers: &HeaderMap, audience: &str) -> Result<(), (StatusCode, String)> {
    let Some(keys) = admin.shared.keys.get() else {
        let unknown = format!("Secret {IDENTITY_SECRET} is not there\n");
        let is_open = matches!(admin.shared.auth, Auth::None { .. });
        return if is_open { Ok(()) } else { Err((StatusCode::UNAUTHORIZED, unknown)) };
    };
    let token = headers.get(CALLER_HEADER).map_or(&[][..], |token| token.as_bytes());
    let admitted = keys.verifier(audience).verify(token, unix_now());
    admitted.map(drop).map_err(|why| (StatusCode::UNAUTHORIZED, format!("of {CALLER_HEADER}, {why}\n")))
}

async fn demand(State(admin): State<Admin>, headers: HeaderMap) -> Result<Json<DemandReport>, (StatusCode, String)> {
    authorize(&admin, &headers, DEMAND_AUDIENCE)?;
    let routes = admin.shared.routes.all().into_iter();
    let counted = routes.filter(|route| {
        let demand = route.workload.demand();
        let has_waited = demand.waiting > 0 || demand.waited > Duration::ZERO;
        let was_called = || route.workload.models.last_minute(Instant::now()).is_some();
        let is_noted = || route.object.has_budget() || route.workload.pending.latest().is_some();
        has_waited || demand.refused + demand.halted > 0 || is_noted() || was_called()
    });
    let now = LimitTime::now(&admin.shared.clock);
    let tokens = |route: &Route| {
        let (name, spent) = (&route.workload.full_name, |name: &str| admin.shared.limits.spent_today(name, now));
        let cost = |cost: &CostBudgets| spent(&cost.name(name));
        let (spent, cost) = (spent(name), route.object.cost.as_ref().map_or(0, cost));
        let reporting = &route.workload.reporting;
        if spent > 0 || cost > 0 {
            reporting.found();
        }
        let reporting = ReportingCounts { any: reporting.any(), without: reporting.without() };
        DayTokens { day: now.day(), spent, cost, reporting }
    };
    let report = |route: &Route| WorkloadDemand {
        models: route.workload.models.last_minute(Instant::now()),
        tokens: route.object.has_budget().then(|| tokens(route)),
        pending: route.workload.pending.latest(),
        ..WorkloadDemand::of(&route.workload)
    };
    Ok(Json(DemandReport {
        instance: admin.shared.instance.clone(),
        uptime_ms: millis(admin.started.elapsed()),
        workloads: counted.map(|route| report(&route)).collect(),
    }))
}

impl WorkloadDemand {
    fn of(workload: &WorkloadState) -> Self {
        let demand = workload.demand();
        Self {
            kind: workload.kind.name(),
            namespace: workload.namespace.clone().into(),
            name: workload.name.clone().into(),
            waiting: demand.waiting,
            waiting_ms: millis(demand.waited),
            refused: demand.refused,
            halted: demand.halted,
            models: None,
            tokens: None,
            pending: None,
        }
    }
}

#[derive(Debug, Serialize)]
struct ColdDemand {
    times: u64,
    workloads: Vec<WorkloadDemand>,
}

#[derive(Debug, Deserialize)]
struct AfterQuery {
    after: Option<u64>,
}

async fn cold(
    State(admin): State<Admin>,
    headers: HeaderMap,
    Query(AfterQuery { after }): Query<AfterQuery>,
) -> Result<Json<ColdDemand>, (StatusCode, String)> {
    authorize(&admin, &headers, DEMAND_AUDIENCE)?;
    let mut cold = admin.shared.cold_starts.subscribe();
    let _ = timeout(LONGEST_POLL, cold.wait_for(|times| Some(*times) != after)).await;
    let times = *cold.borrow();
    let routes = admin.shared.routes.all().into_iter();
    let waited = routes.filter(|route| route.pods.is_empty() && route.workload.slots.has_waiters());
    Ok(Json(ColdDemand { times, workloads: waited.map(|route| WorkloadDemand::of(&route.workload)).collect() }))
}

async fn exchange(State(admin): State<Admin>, request: Request) -> Result<Json<LimitReport>, (StatusCode, String)> {
    authorize(&admin, request.headers(), LIMITS_AUDIENCE)?;
    let body = to_bytes(request.into_body(), MAX_REPORT).await;
    let body = body.map_err(|error| (StatusCode::PAYLOAD_TOO_LARGE, format!("{error}\n")))?;
    let question: LimitReport =
        serde_json::from_slice(&body).map_err(|error| (StatusCode::BAD_REQUEST, format!("{error}\n")))?;
    let shared = &admin.shared;
    Ok(Json(shared.limits.answer(&question, LimitTime::now(&shared.clock))))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
