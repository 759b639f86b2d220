//! Demand that the gateways report: requests that wait in their queues, and requests that were refused.
//!
//! One response of a gateway reports on every workload, so a workload without Pods is seen as soon as a request waits for it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::SocketAddr,
    time::Duration,
};

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
        for queue in sample.workloads {
            let Some(id) = queue.id() else { continue };
            if !queue.models.is_empty() {
                self.models.insert(id.clone(), queue.models);
            }
            if let Some(tokens) = queue.tokens {
                self.tokens.insert(id.clone(), tokens);
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
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 8081))
    }

    fn id(name: &str) -> WorkloadId {
        WorkloadId { kind: "Agent", key: Key::new("ns", name) }
    }

    fn sample(instance: &str, uptime_ms: u64, workloads: Value) -> GatewaySample {
        serde_json::from_value(json!({"instance": instance, "uptimeMs": uptime_ms, "workloads": workloads})).unwrap()
    }

    fn queue(name: &str, waiting: u32, waiting_ms: u64, refused: u64) -> Value {
        json!({"kind": "Agent", "namespace": "ns", "name": name,
            "waiting": waiting, "waitingMs": waiting_ms, "refused": refused})
    }

    #[test]
    fn the_models_of_all_gateways_are_summed_and_those_of_a_newer_sample_replace_them() {
        let used = json!({"day": 7, "spent": 60});
        let answered = |models: Value| json!([{"kind": "Agent", "namespace": "ns", "name": "a", "models": models, "tokens": used}]);
        let mut gateways = Gateways::new(Duration::ZERO);
        gateways.set_addresses(&[address(1), address(2)]);
        let both = answered(json!({"openai/gpt": 1, "stub/echo": 2}));
        gateways.record_sample(address(1), sample("x", 1000, both.clone()), None, SECOND);
        gateways.record_sample(address(2), sample("y", 1000, both), None, SECOND);
        let expected = ModelCounts::from([("openai/gpt".to_owned(), 2), ("stub/echo".to_owned(), 4)]);
        assert_eq!(gateways.models(60 * SECOND), HashMap::from([(id("a"), expected)]));
        assert_eq!(gateways.models(61 * SECOND), HashMap::new(), "none answered within a minute");
        let tokens = ReportedTokens { day: 7, spent: 60, cost: 0, reporting: None };
        assert_eq!(gateways.tokens(60 * SECOND), HashMap::from([(id("a"), tokens)]));
        assert_eq!(gateways.tokens(61 * SECOND), HashMap::new());
        gateways.record_sample(address(1), sample("x", 2000, json!([])), None, SECOND);
        gateways.set_addresses(&[address(1)]);
        assert_eq!((gateways.models(SECOND), gateways.tokens(SECOND)), (HashMap::new(), HashMap::new()));
    }

    fn one() -> Gateways {
        let mut gateways = Gateways::new(Duration::ZERO);
        gateways.set_addresses(&[address(1)]);
        gateways
    }

    #[test]
    fn rates_are_differences_of_two_answers_of_one_instance() {
        let mut gateways = one();
        let mut hear = |sample| gateways.record_sample(address(1), sample, None, SECOND);
        assert!(hear(sample("i", 9000, json!([queue("a", 0, 700, 50)]))).is_empty());
        let called = hear(sample("i", 11_000, json!([queue("a", 0, 1700, 54), queue("b", 1, 500, 0)])));
        assert_eq!(called.len(), 2);
        assert_eq!(gateways.unmet(&id("a")), UnmetDemand { waiting: 0.5, refused: 2.0, halted: false });
        assert_eq!(gateways.unmet(&id("b")), UnmetDemand { waiting: 0.25, ..UnmetDemand::default() });
        gateways.record_sample(address(1), sample("i", 12_000, json!([queue("a", 0, 1700, 54)])), None, SECOND);
        assert_eq!(gateways.unmet(&id("a")), UnmetDemand::default());
    }

    #[test]
    fn a_restarted_gateway_begins_anew_but_who_waits_in_it_counts() {
        let mut gateways = one();
        gateways.record_sample(address(1), sample("i", 9000, json!([queue("a", 0, 9000, 9)])), None, SECOND);
        gateways.record_sample(address(1), sample("j", 10, json!([queue("a", 2, 10, 1)])), None, SECOND);
        assert_eq!(gateways.unmet(&id("a")), UnmetDemand { waiting: 2.0, ..UnmetDemand::default() });
    }

    #[test]
    fn a_request_refused_for_a_failure_counts_at_any_gateway_until_its_next_answer() {
        let mut gateways = Gateways::new(Duration::ZERO);
        gateways.set_addresses(&[address(1), address(2)]);
        let halted = |number: u64| json!([{"kind": "Agent", "namespace": "ns", "name": "a", "halted": number}]);
        for last in [1, 2] {
            gateways.record_sample(address(last), sample("i", 1000, json!([])), None, SECOND);
        }
        let called = gateways.record_sample(address(1), sample("i", 2000, halted(1)), None, SECOND);
        assert_eq!((called, gateways.unmet(&id("a")).halted), (vec![id("a")], true));
        gateways.record_sample(address(1), sample("i", 3000, halted(1)), None, SECOND);
        assert!(!gateways.unmet(&id("a")).halted, "no request came again");
        gateways.record_sample(address(2), sample("i", 2000, halted(3)), None, SECOND);
        assert!(gateways.unmet(&id("a")).halted);
    }

    #[test]
    fn gateways_are_added_up_until_they_are_gone_and_a_silent_one_counts_as_it_was() {
        let mut gateways = Gateways::new(Duration::ZERO);
        gateways.set_addresses(&[address(1), address(2)]);
        for last in [1, 2] {
            gateways.record_sample(address(last), sample("i", 10, json!([queue("a", 3, 30, 0)])), None, SECOND);
        }
        assert!(gateways.all_respond());
        gateways.set_addresses(&[address(1), address(2)]);
        gateways.record_sample(address(1), sample("i", 10, json!([])), None, SECOND);
        gateways.end_round();
        assert_eq!((gateways.unmet(&id("a")).waiting, gateways.all_respond()), (6.0, false));
        gateways.set_addresses(&[address(1)]);
        assert_eq!((gateways.unmet(&id("a")).waiting, gateways.all_respond()), (3.0, true));
    }

    #[test]
    fn without_a_listener_there_is_no_gateway_to_wait_for() {
        let mut gateways = Gateways::new(Duration::ZERO);
        gateways.set_addresses(&[address(1), address(2)]);
        gateways.record_sample(address(1), sample("i", 10, json!([])), None, SECOND);
        gateways.record_sample(address(2), sample("i", 10, json!([queue("a", 3, 30, 0)])), None, SECOND);
        gateways.set_absent(address(2));
        assert!(gateways.all_respond() && gateways.unmet(&id("a")) == UnmetDemand::default());
        gateways.set_absent(address(1));
        assert!(!gateways.all_respond());
    }

    #[test]
    fn none_is_known_when_none_has_answered_for_long() {
        let mut gateways = one();
        assert!(!gateways.all_respond(), "not heard yet");
        assert!(!gateways.no_gateway_known(29 * SECOND), "a new leader wakes no workload for this");
        assert!(gateways.no_gateway_known(30 * SECOND));
        gateways.record_sample(address(1), sample("i", 10, json!([])), None, 31 * SECOND);
        assert!(!gateways.no_gateway_known(60 * SECOND) && gateways.all_respond());
    }
}
