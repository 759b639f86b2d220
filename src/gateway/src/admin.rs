//! The admin port: probes, metrics, and what the scaler asks for.
//!
//! `GET /_recif/demand` answers processes that have the keys of Secret `recif-identity`, by a token of theirs in
//! `X-Recif-Caller` (a gateway without keys and with `--auth none` answers all), for every workload for which a request has waited
//! or was refused since the process started:
//!
//! ```json
//! {
//!   "instance": "0123456789abcdef", "uptimeMs": 61000,
//!   "workloads": [
//!     { "kind": "Agent", "namespace": "default", "name": "weather", "waiting": 2, "waitingMs": 5400, "refused": 7,
//!       "halted": 0 }
//!   ]
//! }
//! ```
//!
//! `instance` is new after each start. `waiting` is how many requests wait now; `waitingMs` is that number integrated over
//! time, so that its difference between two looks, divided by the difference of `uptimeMs`, is the mean number that waited.
//! `refused` counts those that were refused for want of room, `halted` those of a workload that is Failed without Pods for a
//! reason that a ready Pod would end. `waitingMs` and both counts only grow within an instance, unless the workload is
//! deleted; reading changes nothing.
//!
//! `GET /_recif/demand/cold?after=N` answers the same processes with `{"times": M, "workloads": […]}` as soon as `times` is not N, and
//! after 25 s in any case, so that the scaler learns at once of who waits. `times` counts how often requests began to wait for a
//! workload that had no ready Pod and for which none waited before; `workloads` are those that have none now and are waited for, with
//! the fields above.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::get,
};
use cluster::cache::IDENTITY_SECRET;
use identity::{CALLER_HEADER, COLD_DEMAND_PATH, DEMAND_AUDIENCE, DEMAND_PATH, unix_now};
use serde::{Deserialize, Serialize};
use tokio::{
    net::TcpListener,
    time::{Instant, timeout},
};

use super::{auth::Auth, state::GatewayContext, workload::WorkloadState};

/// How long nothing may happen until that is said.
const LONGEST_POLL: Duration = Duration::from_secs(25);

/// What the admin port shows.
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
}

impl Admin {
    /// Shows these; the process started now.
    pub(super) fn new(shared: Arc<GatewayContext>) -> Self {
        Self { shared, started: Instant::now() }
    }

    /// Serves them for ever.
    ///
    /// # Errors
    /// When the listener breaks.
    pub(super) async fn serve(self, listener: TcpListener) -> std::io::Result<()> {
        axum::serve(listener, self.router()).await
    }

    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route(DEMAND_PATH, get(demand))
            .route(COLD_DEMAND_PATH, get(cold))
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

/// Whether whom this request comes from may know every workload.
fn authorize(admin: &Admin, headers: &HeaderMap) -> Result<(), (StatusCode, String)> {
    let Some(keys) = admin.shared.keys.get() else {
        let unknown = format!("Secret {IDENTITY_SECRET} is not there\n");
        return if matches!(admin.shared.auth, Auth::None) { Ok(()) } else { Err((StatusCode::UNAUTHORIZED, unknown)) };
    };
    let token = headers.get(CALLER_HEADER).map_or(&[][..], |token| token.as_bytes());
    let admitted = keys.verifier(DEMAND_AUDIENCE).verify(token, unix_now());
    admitted.map(drop).map_err(|why| (StatusCode::UNAUTHORIZED, format!("of {CALLER_HEADER}, {why}\n")))
}

async fn demand(State(admin): State<Admin>, headers: HeaderMap) -> Result<Json<DemandReport>, (StatusCode, String)> {
    authorize(&admin, &headers)?;
    let routes = admin.shared.routes.all().into_iter();
    let counted = routes.filter(|route| {
        let demand = route.workload.demand();
        demand.waiting > 0 || demand.waited > Duration::ZERO || demand.refused + demand.halted > 0
    });
    Ok(Json(DemandReport {
        instance: admin.shared.instance.clone(),
        uptime_ms: millis(admin.started.elapsed()),
        workloads: counted.map(|route| WorkloadDemand::of(&route.workload)).collect(),
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
    authorize(&admin, &headers)?;
    let mut cold = admin.shared.cold_starts.subscribe();
    let _ = timeout(LONGEST_POLL, cold.wait_for(|times| Some(*times) != after)).await;
    let times = *cold.borrow();
    let routes = admin.shared.routes.all().into_iter();
    let waited = routes.filter(|route| route.pods.is_empty() && route.workload.has_waiters());
    Ok(Json(ColdDemand { times, workloads: waited.map(|route| WorkloadDemand::of(&route.workload)).collect() }))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
