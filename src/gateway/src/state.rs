//! Holds what the connections of a gateway share.

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
    args::GatewaySettings, auth::Auth, clients::ClientLimiter, clock::Clock, local_response::LocalResponse,
    metrics::GatewayMetrics, peer::Peer, routes::Routes,
};

/// What all requests share.
#[derive(Debug)]
pub(super) struct GatewayContext {
    /// What the command line says.
    pub(super) settings: GatewaySettings,
    /// Where requests go.
    pub(super) routes: Routes,
    /// Who may ask.
    pub(super) auth: Auth,
    /// What callers are vouched for with.
    pub(super) keys: Keys,
    /// What each client has in flight.
    pub(super) clients: ClientLimiter,
    /// The connections of each address.
    pub(super) connections: ClientLimiter,
    /// What is counted.
    pub(super) metrics: GatewayMetrics,
    /// The time.
    pub(super) clock: Clock,
    /// New after each start.
    pub(super) instance: String,
    /// What the watches know.
    pub(super) watch_health: Arc<WatchHealth>,
    /// Whether clients are asked to go elsewhere with their next request.
    pub(super) leaving: AtomicBool,
    /// Cancelled when connections without a request end.
    pub(super) closing: CancellationToken,
    /// How often requests began to wait for a workload that had no ready Pod and for which none waited before.
    pub(super) cold_starts: watch::Sender<u64>,
}

impl GatewayContext {
    /// Whether this process is to end soon.
    pub(super) fn leaving(&self) -> bool {
        self.leaving.load(Relaxed)
    }

    /// There is no such workload, as far as is known.
    pub(super) fn unknown_workload(&self, key: &[u8]) -> LocalResponse {
        let namespace = key.split(|byte| *byte == b'/').nth(1).unwrap_or_default();
        match self.watch_health.is_namespace_synced(&String::from_utf8_lossy(namespace)) {
            true => unknown_workload(),
            false => LocalResponse::new(503, "starting", "the gateway does not know yet which workloads there are"),
        }
    }

    /// Who is at the other end of a connection that speaks this protocol, `http` or `https`.
    pub(super) fn peer(&self, address: IpAddr, proto: &'static str) -> Peer {
        let address = address.to_canonical();
        let trusted = self.trusts(address);
        Peer { address, text: address.to_string().into(), proto, trusted }
    }

    /// Whether what this address says of those before it is believed.
    pub(super) fn trusts(&self, address: IpAddr) -> bool {
        self.settings.trusted_proxies.iter().any(|network| network.contains(address))
    }
}
