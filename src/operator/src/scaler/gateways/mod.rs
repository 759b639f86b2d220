//! Demand that the gateways report: requests that wait in their queues, and requests that were refused.
//!
//! One response of a gateway reports on every workload, so a workload without Pods is seen as soon as a request waits for it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::SocketAddr,
    time::Duration,
};

use crds::pending_calls::PendingCalls;
use meta::Key;
use serde::Deserialize;
use tokio::net::TcpStream;

use super::{
    WorkloadId,
    budget::{self, ReportedTokens},
};

/// Time without a response of any gateway after which none is known.
const GATEWAY_TTL: Duration = Duration::from_secs(30);
/// Time without a response of a gateway after which its counts of models, which are of a minute, are not used any more.
const MODELS_TTL: Duration = Duration::from_secs(60);

/// Response to `/_recif/demand`. The counters begin at 0 with each `instance`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GatewaySample {
    /// Identifier that is new after each start.
    instance: String,
    /// Milliseconds since that start.
    uptime_ms: u64,
    /// Workloads that were called; the others have counted nothing.
    workloads: Vec<GatewayQueue>,
}

/// Response to `/_recif/demand/cold`.
#[derive(Debug, Deserialize)]
pub(super) struct ColdSample {
    /// Number of times that requests began to wait for a workload that had no ready Pod and for which none waited before.
    pub(super) times: u64,
    /// Workloads without a ready Pod for which requests wait now.
    workloads: Vec<GatewayQueue>,
}

/// Requests for one workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GatewayQueue {
    kind: String,
    namespace: String,
    name: String,
    /// Requests that wait now.
    #[serde(default)]
    waiting: u32,
    /// Request-milliseconds waited.
    #[serde(default)]
    waiting_ms: u64,
    /// Requests refused definitively.
    #[serde(default)]
    refused: u64,
    /// Requests refused because the workload is Failed without Pods.
    #[serde(default)]
    halted: u64,
    /// Responses of the last minute by the model that answered.
    #[serde(default)]
    models: ModelCounts,
    /// Tokens of today, if the workload has a budget.
    #[serde(default)]
    tokens: Option<ReportedTokens>,
    /// Calls of tools that wait for a person, as an agent reported them last.
    #[serde(default)]
    pending: Option<PendingCalls>,
}

/// Responses by the model that answered, such as `openai/gpt-5`, with the failure of the first one where it is another, as in
/// `stub/echo (HTTP 503)`.
pub type ModelCounts = BTreeMap<String, u64>;

/// Unmet demand for a workload.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct UnmetDemand {
    /// Mean number of requests that wait.
    pub(super) waiting: f64,
    /// Requests refused per second.
    pub(super) refused: f64,
    /// True if requests were refused because the workload is Failed without Pods.
    pub(super) halted: bool,
}

/// Gateways, as of their last responses.
#[derive(Debug)]
pub(super) struct Gateways {
    gateways: HashMap<SocketAddr, GatewayRecord>,
    last_response: Duration,
}

#[derive(Debug, Default)]
struct GatewayRecord {
    instance: String,
    uptime_ms: u64,
    counters: HashMap<WorkloadId, (u64, u64, u64)>,
    unmet: HashMap<WorkloadId, UnmetDemand>,
    models: HashMap<WorkloadId, ModelCounts>,
    tokens: HashMap<WorkloadId, ReportedTokens>,
    pending_calls: HashMap<WorkloadId, PendingCalls>,
    /// Time of its last response.
    answered: Duration,
    health: GatewayHealth,
    pending: bool,
    connection: Option<TcpStream>,
}

/// Reachability of a gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum GatewayHealth {
    /// It did not answer, or was not queried yet: requests may wait there.
    #[default]
    Unresponsive,
    /// It just answered.
    Responding,
    /// No process listens there, so no request waits there either.
    Absent,
}

impl Gateways {
    /// Creates the state without any gateway; `now` is the time since any fixed moment.
    pub(super) fn new(now: Duration) -> Self {
        Self { gateways: HashMap::new(), last_response: now }
    }

    /// Sets the addresses of the gateways, and returns the kept connection of each.
    pub(super) fn set_addresses(&mut self, addresses: &[SocketAddr]) -> Vec<(SocketAddr, Option<TcpStream>)> {
        let present: HashSet<_> = addresses.iter().collect();
        self.gateways.retain(|address, _| present.contains(address));
        let mut ask = |address: &SocketAddr| {
            let gateway = self.gateways.entry(*address).or_default();
            gateway.pending = true;
            gateway.connection.take()
        };
        addresses.iter().map(|address| (*address, ask(address))).collect()
    }

    /// Ends a round: a gateway that was queried and has not answered is unresponsive, but its last report still counts.
    pub(super) fn end_round(&mut self) {
        for gateway in self.gateways.values_mut().filter(|gateway| gateway.pending) {
            (gateway.pending, gateway.health) = (false, GatewayHealth::Unresponsive);
        }
    }

    /// Records that nothing listens at the address.
    pub(super) fn set_absent(&mut self, address: SocketAddr) {
        if let Some(gateway) = self.gateways.get_mut(&address) {
            *gateway = GatewayRecord { health: GatewayHealth::Absent, ..GatewayRecord::default() };
        }
    }

    /// Records a response, and returns the workloads with unmet demand.
    pub(super) fn record_sample(
        &mut self,
        address: SocketAddr,
        sample: GatewaySample,
        connection: Option<TcpStream>,
        now: Duration,
    ) -> Vec<WorkloadId> {
        let Some(gateway) = self.gateways.get_mut(&address) else { return Vec::new() };
        self.last_response = now;
        (gateway.pending, gateway.health) = (false, GatewayHealth::Responding);
        (gateway.connection, gateway.answered) = (connection, now);
        gateway.apply_sample(sample);
        gateway.unmet.keys().cloned().collect()
    }

    /// Records the response to a long poll, and returns the workloads for which requests wait. These requests count until the gateway's
    /// next sample gives their mean.
    pub(super) fn record_cold_sample(&mut self, address: SocketAddr, sample: ColdSample) -> Vec<WorkloadId> {
        let Some(gateway) = self.gateways.get_mut(&address) else { return Vec::new() };
        let mut called = Vec::new();
        for queue in sample.workloads {
            if let Some(id) = queue.id() {
                let unmet = gateway.unmet.entry(id.clone()).or_default();
                unmet.waiting = unmet.waiting.max(queue.waiting.into());
                called.push(id);
            }
        }
        called
    }

    /// Returns the unmet demand for one workload, summed over all gateways.
    pub(super) fn unmet(&self, id: &WorkloadId) -> UnmetDemand {
        let each = self.gateways.values().filter_map(|gateway| gateway.unmet.get(id));
        each.fold(UnmetDemand::default(), |sum, one| UnmetDemand {
            waiting: sum.waiting + one.waiting,
            refused: sum.refused + one.refused,
            halted: sum.halted || one.halted,
        })
    }

    /// Returns the responses of the last minute by the model that answered, summed over all gateways that answered since.
    pub(super) fn models(&self, now: Duration) -> HashMap<WorkloadId, ModelCounts> {
        let mut sums: HashMap<WorkloadId, ModelCounts> = HashMap::new();
        let heard = self.gateways.values().filter(|gateway| now.saturating_sub(gateway.answered) < MODELS_TTL);
        for (id, counts) in heard.flat_map(|gateway| &gateway.models) {
            let sum = sums.entry(id.clone()).or_default();
            counts.iter().for_each(|(model, count)| *sum.entry(model.clone()).or_default() += count);
        }
        sums
    }

    /// Returns the tokens of the workloads with budgets, of which each gateway that answered lately reports all that it knows.
    pub(super) fn tokens(&self, now: Duration) -> HashMap<WorkloadId, ReportedTokens> {
        let heard = self.gateways.values().filter(|gateway| now.saturating_sub(gateway.answered) < MODELS_TTL);
        budget::latest(heard.flat_map(|gateway| &gateway.tokens))
    }

    /// Returns the newest report of each agent on calls that wait for a person, to any gateway that answered lately.
    pub(super) fn pending_calls(&self, now: Duration) -> HashMap<WorkloadId, PendingCalls> {
        let heard = self.gateways.values().filter(|gateway| now.saturating_sub(gateway.answered) < MODELS_TTL);
        let mut newest: HashMap<WorkloadId, PendingCalls> = HashMap::new();
        for (id, pending) in heard.flat_map(|gateway| &gateway.pending_calls) {
            let known = newest.entry(id.clone()).or_insert(*pending);
            *known = known.newer(*pending);
        }
        newest
    }

    /// Reports whether there are gateways and all of them just answered, so that no request can wait unseen.
    pub(super) fn all_respond(&self) -> bool {
        let voices = || self.gateways.values().map(|gateway| gateway.health);
        voices().any(|voice| voice == GatewayHealth::Responding)
            && voices().all(|voice| voice != GatewayHealth::Unresponsive)
    }

    /// Reports whether no gateway is known, so that none would wake a workload without Pods. A silence shorter than [`GATEWAY_TTL`] is
    /// tolerated.
    pub(super) fn no_gateway_known(&self, now: Duration) -> bool {
        now.saturating_sub(self.last_response) >= GATEWAY_TTL
    }
}

impl GatewayQueue {
    /// Returns the workload; `None`: its kind is only known to a newer gateway, and there is nothing to scale.
    fn id(&self) -> Option<WorkloadId> {
        let kind = crds::KINDS.iter().find(|kind| kind.name == self.kind)?;
        Some(WorkloadId { kind: kind.name, key: Key::new(&self.namespace, &self.name) })
    }
}

impl GatewayRecord {
    fn apply_sample(&mut self, sample: GatewaySample) {
        let same = self.instance == sample.instance;
        if same && sample.uptime_ms <= self.uptime_ms {
            return;
        }
        let elapsed = sample.uptime_ms.saturating_sub(self.uptime_ms).max(1) as f64;
        let before = std::mem::take(&mut self.counters);
        self.unmet.clear();
        self.models.clear();
        self.tokens.clear();
        self.pending_calls.clear();
        for queue in sample.workloads {
            let Some(id) = queue.id() else { continue };
            if !queue.models.is_empty() {
                self.models.insert(id.clone(), queue.models);
            }
            if let Some(tokens) = queue.tokens {
                self.tokens.insert(id.clone(), tokens);
            }
            if let Some(pending) = queue.pending {
                self.pending_calls.insert(id.clone(), pending);
            }
            let unmet = if same {
                // A workload that was not named before had counted nothing.
                let (waiting_ms, refused, halted) = before.get(&id).copied().unwrap_or_default();
                UnmetDemand {
                    waiting: queue.waiting_ms.saturating_sub(waiting_ms) as f64 / elapsed,
                    refused: queue.refused.saturating_sub(refused) as f64 * 1000.0 / elapsed,
                    halted: queue.halted > halted,
                }
            } else {
                // The first sample of an instance gives no rate, so the requests that wait count themselves.
                UnmetDemand { waiting: f64::from(queue.waiting), ..UnmetDemand::default() }
            };
            if unmet != UnmetDemand::default() {
                self.unmet.insert(id.clone(), unmet);
            }
            self.counters.insert(id, (queue.waiting_ms, queue.refused, queue.halted));
        }
        self.instance = sample.instance;
        self.uptime_ms = sample.uptime_ms;
    }
}

#[cfg(test)]
mod tests;
