//! Control loop of the scaler: query, evaluate, write.
//!
//! Everything is concurrent, and no workload waits for the Pods of another: a workload is evaluated when the last of its own Pods has
//! answered, at the latest when the time for answers is over. Writes go on beside the next round; a workload has at most one in flight.

mod notes;
mod writes;

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use actions::ports::WorkloadPod;
use cluster::cache::Keys;
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http1::{QueryError, QueryResponse, get_request, query};
use identity::{CALLER_HEADER, DEMAND_AUDIENCE, DEMAND_PATH, TokenCache};
use machine::ApiError;
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};

use self::{
    notes::StatusNotes,
    writes::{WRITE_BACKOFF, apply_writes, should_log},
};
use super::{
    Direction, PodSample, ScalerMetrics, ViewError, WorkloadFleet, WorkloadId, WorkloadView,
    cold::{ColdPolls, PollResponse},
    gateways::{GatewaySample, Gateways},
    tracked::{GatewayState, PlannedWrites, TrackedWorkload},
};

/// Interval of the queries to an idle workload, in rounds.
const IDLE_INTERVALS: u32 = 5;
/// Delay of the restart after a panic.
const PANIC_BACKOFF: Duration = Duration::from_secs(1);
/// Most writes in flight.
const MAX_WRITES: usize = 16;
/// Longest responses, in bytes: of a Pod, and of a gateway, which reports on every workload.
const MAX_POD_BODY: usize = 16 * 1024;
const MAX_GATEWAY_BODY: usize = 16 * 1024 * 1024;

/// Scaler of all workloads.
pub struct Scaler {
    fleet: Arc<dyn WorkloadFleet>,
    interval: Duration,
    keys: Keys,
    metrics: ScalerMetrics,
}

impl std::fmt::Debug for Scaler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scaler").field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl Scaler {
    /// Creates a scaler that queries the sidecars of this fleet's Pods once per `interval`, and the gateways with tokens of `keys`.
    pub fn new(fleet: Arc<dyn WorkloadFleet>, interval: Duration, keys: Keys, metrics: ScalerMetrics) -> Self {
        Self { fleet, interval, keys, metrics }
    }

    /// Scales for as long as this future is polled, in a task of its own, and forgets everything when it is dropped.
    pub async fn run(self: Arc<Self>) {
        let _over = ResetMetricsOnDrop(self.metrics.clone());
        let mut term = JoinSet::new();
        loop {
            term.spawn(ScalerTerm::new(self.clone()).run());
            // A term ends only in a panic.
            if let Some(Err(error)) = term.join_next().await {
                tracing::error!(%error, "the scaler restarts");
            }
            sleep(PANIC_BACKOFF).await;
        }
    }
}

struct ResetMetricsOnDrop(ScalerMetrics);

impl Drop for ResetMetricsOnDrop {
    fn drop(&mut self) {
        self.0.reset();
    }
}

/// Pod or gateway that was queried.
enum LoadSource {
    Pod(WorkloadId, String),
    Gateway(SocketAddr),
}

type LoadQuery = BoxFuture<'static, (LoadSource, Result<QueryResponse, QueryError>)>;
/// Writes of a workload, with the direction in which they changed the number of its Pods.
type PendingWrite = BoxFuture<'static, (WorkloadId, Option<Direction>, Result<(), ApiError>)>;

/// Term of leadership.
///
/// Invariant: a workload has at most one round of queries and one write in flight.
struct ScalerTerm {
    scaler: Arc<Scaler>,
    begun: Instant,
    workloads: HashMap<WorkloadId, TrackedWorkload>,
    gateways: Gateways,
    queries: FuturesUnordered<LoadQuery>,
    polls: ColdPolls,
    writes: FuturesUnordered<PendingWrite>,
    notes: StatusNotes,
    write_permits: Arc<Semaphore>,
    pod_request: Arc<[u8]>,
    tokens: TokenCache,
    /// Start of this round, and the time until which its answers count.
    round: Option<(Instant, Instant)>,
}

impl ScalerTerm {
    fn new(scaler: Arc<Scaler>) -> Self {
        let now = Duration::ZERO;
        Self {
            begun: Instant::now(),
            workloads: scaler.fleet.all().into_iter().map(|id| (id, TrackedWorkload::new(now))).collect(),
            gateways: Gateways::new(now),
            queries: FuturesUnordered::new(),
            polls: ColdPolls::default(),
            writes: FuturesUnordered::new(),
            notes: StatusNotes::default(),
            write_permits: Arc::new(Semaphore::new(MAX_WRITES)),
            pod_request: get_request("/_recif/inflight", &[]).into(),
            tokens: TokenCache::default(),
            round: None,
            scaler,
        }
    }

    async fn run(mut self) {
        let fleet = self.scaler.fleet.clone();
        let mut ticks = interval(self.scaler.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut deadline = std::pin::pin!(sleep_until(self.begun));
        loop {
            tokio::select! {
                () = deadline.as_mut(), if self.round.is_some() => self.end_round(),
                _ = ticks.tick(), if self.round.is_none() => {
                    self.begin_round();
                    if let Some((_, until)) = self.round {
                        deadline.as_mut().reset(until);
                    }
                }
                Some((asked, answer)) = self.queries.next() => self.handle_response(asked, answer),
                answer = self.polls.next() => self.handle_poll(answer),
                Some((id, scaled, result)) = self.writes.next() => self.handle_write(&id, scaled, &result),
                Some(()) = self.notes.next() => {}
                changed = fleet.changed() => self.handle_changes(changed),
            }
            if self.round.is_some() && self.queries.is_empty() {
                self.end_round();
            }
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Sends the queries of a round. The decisions have to fit into the interval too, so the answers have less time.
    fn begin_round(&mut self) {
        let begun = Instant::now();
        self.round = Some((begun, begun + self.scaler.interval.mul_f64(0.8)));
        let token = self.token();
        let fields = fields(token.as_deref());
        let of_gateways: Arc<[u8]> = get_request(DEMAND_PATH, &fields).into();
        let gateways = self.scaler.fleet.gateways();
        self.polls.begin(&gateways, &fields);
        for (address, kept) in self.gateways.set_addresses(&gateways) {
            let (request, asked) = (of_gateways.clone(), LoadSource::Gateway(address));
            let question = async move { (asked, query(address, kept, &request, MAX_GATEWAY_BODY).await) };
            self.queries.push(Box::pin(question));
        }
        let now = self.now();
        let due = self.workloads.iter().filter(|(_, tracked)| tracked.active || tracked.next <= now);
        for id in due.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.query_pods(&id);
        }
    }

    /// Returns the token by which gateways recognize the operator; `None`: there are no keys yet.
    fn token(&mut self) -> Option<Arc<str>> {
        let keys = self.scaler.keys.get()?;
        Some(self.tokens.get_or_sign(None, false, &keys, Instant::now(), || DEMAND_AUDIENCE.to_owned()))
    }

    /// Returns a workload as it is at this moment. One that is gone is forgotten. One whose Deployment or Pods were never listed is kept,
    /// but its state is not: its stabilization window begins when they are listed.
    fn view(&mut self, id: &WorkloadId) -> Option<WorkloadView> {
        let now = self.now();
        match self.scaler.fleet.view(id) {
            Ok(seen) => return Some(seen),
            Err(ViewError::Gone) => {
                self.workloads.remove(id);
                self.scaler.metrics.deleted(id);
            }
            Err(ViewError::NotListed) => {
                if let Some(tracked) = self.workloads.get_mut(id) {
                    tracked.forget(now);
                }
            }
        }
        None
    }

    /// Queries the Pods of a workload.
    fn query_pods(&mut self, id: &WorkloadId) {
        let Some(seen) = self.view(id) else { return };
        let now = self.now();
        let Some(tracked) = self.workloads.get_mut(id).filter(|tracked| tracked.round.is_none()) else { return };
        let idle = self.scaler.interval * IDLE_INTERVALS;
        // Spread over the rounds, so that not all workloads are queried in the same one.
        let first = std::mem::take(&mut tracked.is_new);
        tracked.next = now + if first { idle.mul_f64(spread(id)) } else { idle };
        let pods = tracked.begin(&seen);
        if pods.is_empty() {
            self.evaluate(id);
        }
        for (pod, kept) in pods {
            self.queries.push(self.query_pod(id, &pod, kept));
        }
    }

    fn query_pod(&self, id: &WorkloadId, pod: &WorkloadPod, kept: Option<TcpStream>) -> LoadQuery {
        let (request, asked) = (self.pod_request.clone(), LoadSource::Pod(id.clone(), pod.uid.clone()));
        // A Pod without an address is not ready.
        let address = SocketAddr::new(pod.ip.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), pod.port);
        Box::pin(async move { (asked, query(address, kept, &request, MAX_POD_BODY).await) })
    }

    fn handle_response(&mut self, asked: LoadSource, answer: Result<QueryResponse, QueryError>) {
        match asked {
            LoadSource::Pod(id, uid) => {
                let Some(tracked) = self.workloads.get_mut(&id) else { return };
                let sample = read::<PodSample>(answer, "it is not a load report");
                let last = match sample {
                    Ok((sample, connection)) => tracked.record_response(&uid, sample, connection),
                    Err(error) => tracked.record_silence(&uid, error.to_string()),
                };
                if last {
                    self.evaluate(&id);
                }
            }
            LoadSource::Gateway(address) => {
                let sample = read::<GatewaySample>(answer, "it is not a demand report");
                match sample {
                    Ok((sample, connection)) => {
                        let now = self.now();
                        let called = self.gateways.record_sample(address, sample, connection, now);
                        // A request waits, so a workload that was not due in this round is queried at once.
                        called.iter().for_each(|id| self.query_pods(id));
                    }
                    Err(error) if error.is_refused() => self.gateways.set_absent(address),
                    // It counts as pending until the end of the round.
                    Err(error) => tracing::debug!(%address, %error, "a gateway does not report its demand"),
                }
            }
        }
    }

    /// Handles the response to a long poll. A workload without Pods is evaluated at once. All others are left to the rounds, because their
    /// means are over the length of a round.
    fn handle_poll(&mut self, answer: PollResponse) {
        let (token, address) = (self.token(), answer.address);
        let Some(sample) = self.polls.handle_response(answer, &fields(token.as_deref())) else { return };
        for id in self.gateways.record_cold_sample(address, sample) {
            if self.scaler.fleet.view(&id).is_ok_and(|seen| seen.pods.is_empty()) {
                self.query_pods(&id);
            }
        }
    }

    /// Ends the round: the time is over, or all queries are answered.
    fn end_round(&mut self) {
        let Some((begun, _)) = self.round.take() else { return };
        let open: Vec<_> =
            self.workloads.iter().filter(|(_, it)| it.round.is_some()).map(|(id, _)| id.clone()).collect();
        self.queries.clear();
        self.gateways.end_round();
        open.iter().for_each(|id| self.evaluate(id));
        let now = self.now();
        self.notes.begin(self.gateways.models(now), now, &self.scaler.fleet, &self.write_permits);
        self.notes.begin_pending(self.gateways.pending_calls(now), now, &self.scaler.fleet, &self.write_permits);
        self.notes.begin_budgets(&self.gateways.tokens(now), &self.scaler.fleet, &self.write_permits);
        self.scaler.metrics.ended(begun.elapsed());
    }

    fn evaluate(&mut self, id: &WorkloadId) {
        let now = self.now();
        let state = GatewayState {
            unmet: self.gateways.unmet(id),
            all_respond: self.gateways.all_respond(),
            no_gateway_known: self.gateways.no_gateway_known(now),
        };
        let Some(seen) = self.view(id) else { return };
        let Some(tracked) = self.workloads.get_mut(id) else { return };
        let writes = tracked.evaluate(&seen, state, now);
        self.write(id, seen, writes);
    }

    /// Handles changes from the watches: the ownership of `replicas` is settled without any query.
    fn handle_changes(&mut self, changed: Vec<WorkloadId>) {
        let now = self.now();
        for id in changed {
            self.workloads.entry(id.clone()).or_insert_with(|| TrackedWorkload::new(now)).next = now;
            let Some(seen) = self.view(&id) else { continue };
            let Some(tracked) = self.workloads.get_mut(&id) else { continue };
            let writes = tracked.handover(&seen);
            self.write(&id, seen, writes);
        }
    }

    fn write(&mut self, id: &WorkloadId, seen: WorkloadView, writes: PlannedWrites) {
        let now = self.now();
        if let Some(tracked) = self.workloads.get(id) {
            self.scaler.metrics.evaluated(id, tracked.gauges(&seen, now));
        }
        let Some(tracked) = self.workloads.get_mut(id).filter(|tracked| !tracked.writing) else { return };
        if writes.is_empty() {
            return;
        }
        tracked.writing = true;
        let (fleet, slots, id) = (self.scaler.fleet.clone(), self.write_permits.clone(), id.clone());
        self.writes.push(Box::pin(async move {
            let slot = slots.acquire().await;
            let (scaled, result) = apply_writes(fleet.as_ref(), &id, &seen, &writes).await;
            drop(slot);
            if result.as_ref().is_err_and(should_log) {
                sleep(WRITE_BACKOFF).await;
            }
            (id, scaled, result)
        }));
    }

    fn handle_write(&mut self, id: &WorkloadId, scaled: Option<Direction>, result: &Result<(), ApiError>) {
        if let Some(direction) = scaled {
            self.scaler.metrics.decided(id, direction);
        }
        if let Err(error) = result
            && should_log(error)
        {
            tracing::warn!(kind = id.kind, namespace = id.key.namespace, name = id.key.name, %error, "not scaled");
        }
        if let Some(tracked) = self.workloads.get_mut(id) {
            tracked.writing = false;
            // What changed during the write has waited for its end.
            tracked.next = tracked.next.min(self.begun.elapsed());
        }
    }
}

/// Returns the header fields of a query to a gateway.
fn fields(token: Option<&str>) -> Vec<(&'static str, &str)> {
    token.map(|token| (CALLER_HEADER, token)).into_iter().collect()
}

/// Decodes a response and returns it with the connection; `otherwise` describes a body that cannot be decoded.
fn read<T: serde::de::DeserializeOwned>(
    answer: Result<QueryResponse, QueryError>,
    otherwise: &'static str,
) -> Result<(T, Option<TcpStream>), QueryError> {
    let QueryResponse { status, body, connection } = answer?;
    if status != 200 {
        return Err(QueryError::Status(status));
    }
    serde_json::from_slice(&body).map(|read| (read, connection)).map_err(|_| QueryError::Unreadable(otherwise))
}

/// Returns a number between 0 and 1 that depends on the workload, to spread the queries.
fn spread(id: &WorkloadId) -> f64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    (hasher.finish() % 1000) as f64 / 1000.0
}

#[cfg(test)]
mod tests;
