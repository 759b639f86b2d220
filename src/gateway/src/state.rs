//! State shared by all connections of a gateway.

use crate::local_response::unknown_workload;
use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use cluster::{WatchHealth, cache::Keys};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    args::GatewaySettings,
    auth::Auth,
    clients::ClientLimiter,
    clock::Clock,
    limits::{LimitTime, RateLimiter, TokenBudgets},
    local_response::LocalResponse,
    metrics::GatewayMetrics,
    peer::Peer,
    record::RequestLog,
    root::RootLimits,
    routes::Routes,
};

/// State shared by all requests.
#[derive(Debug)]
pub(super) struct GatewayContext {
    /// Settings from the command line.
    pub(super) settings: GatewaySettings,
    /// Routing table.
    pub(super) routes: Routes,
    /// Authentication and authorization of callers.
    pub(super) auth: Auth,
    /// Signing keys of caller tokens, from Secret `recif-identity`.
    pub(super) keys: Keys,
    /// Limiter of requests in flight per client.
    pub(super) clients: ClientLimiter,
    /// Limiter of connections per address.
    pub(super) connections: ClientLimiter,
    /// Limits of the requests at the root.
    pub(super) root: RootLimits,
    /// Limiter of the requests to workloads with limits.
    pub(super) limits: RateLimiter,
    /// Audit and traces of the requests to workloads.
    pub(super) log: RequestLog,
    /// Prometheus metrics.
    pub(super) metrics: GatewayMetrics,
    /// Millisecond clock.
    pub(super) clock: Clock,
    /// Instance id, new after each start.
    pub(super) instance: String,
    /// Sync state of the watches.
    pub(super) watch_health: Arc<WatchHealth>,
    /// Set during shutdown: responses ask clients to close the connection.
    pub(super) leaving: AtomicBool,
    /// Cancelled when accepting stops and connections without a request are closed.
    pub(super) closing: CancellationToken,
    /// Number of cold starts: how often requests began to wait for a workload that had no ready Pod and no earlier
    /// waiter.
    pub(super) cold_starts: watch::Sender<u64>,
}

impl GatewayContext {
    /// Reports whether this process is shutting down.
    pub(super) fn leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    /// Creates the refusal for an unknown workload: 404, or 503 while the watches of its namespace are not synced.
    pub(super) fn unknown_workload(&self, key: &[u8]) -> LocalResponse {
        let namespace = key.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
        match self.watch_health.is_namespace_synced(&String::from_utf8_lossy(namespace)) {
            true => unknown_workload(),
            false => LocalResponse::new(503, "starting", "the gateway does not know yet which workloads there are"),
        }
    }

    /// Measures how much is left of the budget of each workload: of its tokens or their cost, what is less.
    pub(super) fn measure_budgets(&self) {
        let now = LimitTime::now(&self.clock);
        for route in self.routes.all() {
            let part = |budgets: &TokenBudgets, name: &str| {
                let budget = budgets.per_workload?;
                Some(budget.saturating_sub(self.limits.spent_today(name, now)) as f64 / budget.max(1) as f64)
            };
            let name = &route.workload.full_name;
            let tokens = route.object.budgets.as_ref().and_then(|budgets| part(budgets, name));
            let cost = route.object.cost.as_ref().and_then(|cost| part(&cost.budgets, &cost.name(name)));
            route.meter.set_budget_left(tokens.into_iter().chain(cost).reduce(f64::min));
        }
    }

    /// Describes the peer of a connection that uses `proto` (`http` or `https`).
    pub(super) fn peer(&self, address: IpAddr, proto: &'static str) -> Peer {
        let address = address.to_canonical();
        let trusted = self.trusts(address);
        Peer { address, text: address.to_string().into(), proto, trusted }
    }

    /// Reports whether the `X-Forwarded-*` fields of this address are trusted.
    pub(super) fn trusts(&self, address: IpAddr) -> bool {
        self.settings.trusted_proxies.iter().any(|network| network.contains(address))
    }
}
