//! The loop: ask, decide, write.
//!
//! Everything is concurrent and nobody waits for anybody else's Pods: a workload is judged when the last of its own has
//! answered, at the latest when the time for answers is over. Writes go on beside the next round; a workload has at most
//! one under way.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use actions::ports::WorkloadPod;
use cluster::cache::Keys;
use futures::{
    StreamExt,
    future::{BoxFuture, try_join_all},
    stream::FuturesUnordered,
};
use http1::{AskError, Reply, ask, question};
use identity::{DEMAND, DEMAND_AUDIENCE, FIELD, Tokens};
use machine::ApiError;
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};

use super::{
    Fleet, Id, NotSeen, PodSample, ScalerMetrics, Seen,
    cold::{Answer, Polls},
    gateways::{GatewaySample, Gateways},
    tracked::{GatewayState, Orders, Tracked},
};

/// Where a Pod's sidecar tells its load.
pub const PROXY_PORT: u16 = crds::PROXY_PORT as u16;
/// Workloads in which nothing happens are asked once in so many intervals.
const IDLE: u32 = 5;
/// After a write that failed, the next one waits this long.
const REFUSED: Duration = Duration::from_secs(5);
/// After a panic.
const AFTER_A_PANIC: Duration = Duration::from_secs(1);
/// Writes at the same time.
const WRITES: usize = 16;
/// Longest answers, in bytes: of a Pod, and of a gateway, which speaks of every workload.
const POD_ANSWER: usize = 16 * 1024;
const GATEWAY_ANSWER: usize = 16 * 1024 * 1024;

/// The scaler.
pub struct Scaler {
    fleet: Arc<dyn Fleet>,
    interval: Duration,
    pod_port: u16,
    keys: Keys,
    metrics: ScalerMetrics,
}

impl std::fmt::Debug for Scaler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scaler").field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl Scaler {
    /// Asks the Pods of this fleet on `pod_port` once per `interval`, and the gateways by tokens of these keys.
    pub fn new(fleet: Arc<dyn Fleet>, interval: Duration, pod_port: u16, keys: Keys, metrics: ScalerMetrics) -> Self {
        Self { fleet, interval, pod_port, keys, metrics }
    }

    /// Scales for as long as this is polled, on a task of its own, and forgets everything when it is dropped.
    pub async fn lead(self: Arc<Self>) {
        let _over = Over(self.metrics.clone());
        let mut term = JoinSet::new();
        loop {
            term.spawn(Term::new(self.clone()).run());
            // It ends only in a panic.
            if let Some(Err(error)) = term.join_next().await {
                tracing::error!(%error, "the scaler begins anew");
            }
            sleep(AFTER_A_PANIC).await;
        }
    }
}

struct Over(ScalerMetrics);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over();
    }
}

/// Whom a question was put to.
enum Asked {
    Pod(Id, String),
    Gateway(SocketAddr),
}

type Question = BoxFuture<'static, (Asked, Result<Reply, AskError>)>;
type Writing = BoxFuture<'static, (Id, Result<(), ApiError>)>;

/// One term as leader.
struct Term {
    scaler: Arc<Scaler>,
    begun: Instant,
    known: HashMap<Id, Tracked>,
    gateways: Gateways,
    questions: FuturesUnordered<Question>,
    polls: Polls,
    writes: FuturesUnordered<Writing>,
    slots: Arc<Semaphore>,
    of_pods: Arc<[u8]>,
    tokens: Tokens,
    /// When this round began, and until when answers count.
    round: Option<(Instant, Instant)>,
}

impl Term {
    fn new(scaler: Arc<Scaler>) -> Self {
        let now = Duration::ZERO;
        Self {
            begun: Instant::now(),
            known: scaler.fleet.all().into_iter().map(|id| (id, Tracked::new(now))).collect(),
            gateways: Gateways::new(now),
            questions: FuturesUnordered::new(),
            polls: Polls::default(),
            writes: FuturesUnordered::new(),
            slots: Arc::new(Semaphore::new(WRITES)),
            of_pods: question("/_recif/inflight", &[]).into(),
            tokens: Tokens::default(),
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
                () = deadline.as_mut(), if self.round.is_some() => self.end(),
                _ = ticks.tick(), if self.round.is_none() => {
                    self.begin();
                    if let Some((_, until)) = self.round {
                        deadline.as_mut().reset(until);
                    }
                }
                Some((asked, answer)) = self.questions.next() => self.hear(asked, answer),
                answer = self.polls.next() => self.polled(answer),
                Some((id, result)) = self.writes.next() => self.written(&id, &result),
                changed = fleet.changed() => self.look_at(changed),
            }
            if self.round.is_some() && self.questions.is_empty() {
                self.end();
            }
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Puts this round's questions. What is decided has to fit into the interval too, so answers have less.
    fn begin(&mut self) {
        let begun = Instant::now();
        self.round = Some((begun, begun + self.scaler.interval.mul_f64(0.8)));
        let token = self.token();
        let fields = fields(token.as_deref());
        let of_gateways: Arc<[u8]> = question(DEMAND, &fields).into();
        let gateways = self.scaler.fleet.gateways();
        self.polls.begin(&gateways, &fields);
        for (address, kept) in self.gateways.are(&gateways) {
            let (request, asked) = (of_gateways.clone(), Asked::Gateway(address));
            let question = async move { (asked, ask(address, kept, &request, GATEWAY_ANSWER).await) };
            self.questions.push(Box::pin(question));
        }
        let now = self.now();
        let due = self.known.iter().filter(|(_, tracked)| tracked.active || tracked.next <= now);
        for id in due.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.question(&id);
        }
    }

    /// By what gateways know the operator; `None`: there are no keys yet.
    fn token(&mut self) -> Option<Arc<str>> {
        let keys = self.scaler.keys.get()?;
        Some(self.tokens.of(None, &keys, Instant::now(), || DEMAND_AUDIENCE.to_owned()))
    }

    /// A workload as it is now. One that is gone is forgotten. One whose Deployment or Pods were never listed is kept, but nothing of
    /// what was known of it: its window begins when they are.
    fn see(&mut self, id: &Id) -> Option<Seen> {
        let now = self.now();
        match self.scaler.fleet.see(id) {
            Ok(seen) => return Some(seen),
            Err(NotSeen::Gone) => drop(self.known.remove(id)),
            Err(NotSeen::NotListed) => {
                if let Some(tracked) = self.known.get_mut(id) {
                    tracked.forget(now);
                }
            }
        }
        None
    }

    /// Asks the Pods of a workload.
    fn question(&mut self, id: &Id) {
        let Some(seen) = self.see(id) else { return };
        let now = self.now();
        let Some(tracked) = self.known.get_mut(id).filter(|tracked| tracked.round.is_none()) else { return };
        let idle = self.scaler.interval * IDLE;
        // Not all of them in the same round.
        let first = std::mem::take(&mut tracked.is_new);
        tracked.next = now + if first { idle.mul_f64(spread(id)) } else { idle };
        let pods = tracked.begin(&seen);
        if pods.is_empty() {
            self.judge(id);
        }
        for (pod, kept) in pods {
            self.questions.push(self.question_to(id, &pod, kept));
        }
    }

    fn question_to(&self, id: &Id, pod: &WorkloadPod, kept: Option<TcpStream>) -> Question {
        let (request, asked) = (self.of_pods.clone(), Asked::Pod(id.clone(), pod.uid.clone()));
        // A Pod without an address is not ready.
        let address = SocketAddr::new(pod.ip.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), self.scaler.pod_port);
        Box::pin(async move { (asked, ask(address, kept, &request, POD_ANSWER).await) })
    }

    fn hear(&mut self, asked: Asked, answer: Result<Reply, AskError>) {
        match asked {
            Asked::Pod(id, uid) => {
                let Some(tracked) = self.known.get_mut(&id) else { return };
                let sample = read::<PodSample>(answer, "it is no report of a load");
                let last = match sample {
                    Ok((sample, connection)) => tracked.answered(&uid, sample, connection),
                    Err(error) => tracked.silent(&uid, error.to_string()),
                };
                if last {
                    self.judge(&id);
                }
            }
            Asked::Gateway(address) => {
                let sample = read::<GatewaySample>(answer, "it is no report of a demand");
                match sample {
                    Ok((sample, connection)) => {
                        let now = self.now();
                        let called = self.gateways.heard(address, sample, connection, now);
                        // Somebody waits: whoever was not to be asked in this round is asked now.
                        called.iter().for_each(|id| self.question(id));
                    }
                    Err(error) if error.is_refused() => self.gateways.absent(address),
                    // It stays silent until the end of the round.
                    Err(error) => tracing::debug!(%address, %error, "a gateway does not tell its demand"),
                }
            }
        }
    }

    /// Takes an answer to a long poll. What has no Pod is judged at once; all the rest is left to the rounds, whose means are of their
    /// length.
    fn polled(&mut self, answer: Answer) {
        let (token, address) = (self.token(), answer.address);
        let Some(sample) = self.polls.heard(answer, &fields(token.as_deref())) else { return };
        for id in self.gateways.cold(address, sample) {
            if self.scaler.fleet.see(&id).is_ok_and(|seen| seen.pods.is_empty()) {
                self.question(&id);
            }
        }
    }

    /// The time is over, or everybody has answered.
    fn end(&mut self) {
        let Some((begun, _)) = self.round.take() else { return };
        let open: Vec<_> = self.known.iter().filter(|(_, it)| it.round.is_some()).map(|(id, _)| id.clone()).collect();
        self.questions.clear();
        self.gateways.end_round();
        open.iter().for_each(|id| self.judge(id));
        let now = self.now();
        let desired = self.known.values().map(|tracked| i64::from(tracked.desired)).sum();
        let unreachable = self.known.values().map(|tracked| tracked.unreachable(now).count()).sum();
        self.scaler.metrics.ended(begun.elapsed(), desired, unreachable);
    }

    fn judge(&mut self, id: &Id) {
        let now = self.now();
        let state = GatewayState {
            unmet: self.gateways.unmet(id),
            all_answer: self.gateways.all_answer(),
            none_is_known: self.gateways.none_is_known(now),
        };
        let Some(seen) = self.see(id) else { return };
        let Some(tracked) = self.known.get_mut(id) else { return };
        let orders = tracked.judge(&seen, state, now);
        self.order(id, seen, orders);
    }

    /// What the watches brought: who has `replicas` is settled without asking anybody.
    fn look_at(&mut self, changed: Vec<Id>) {
        let now = self.now();
        for id in changed {
            self.known.entry(id.clone()).or_insert_with(|| Tracked::new(now)).next = now;
            let Some(seen) = self.see(&id) else { continue };
            let Some(tracked) = self.known.get_mut(&id) else { continue };
            let orders = tracked.hand_over(&seen);
            self.order(&id, seen, orders);
        }
    }

    fn order(&mut self, id: &Id, seen: Seen, orders: Orders) {
        let Some(tracked) = self.known.get_mut(id).filter(|tracked| !tracked.writing) else { return };
        if orders.is_empty() {
            return;
        }
        tracked.writing = true;
        if let Some(direction) = orders.direction {
            self.scaler.metrics.decided(direction);
        }
        let (fleet, slots, id) = (self.scaler.fleet.clone(), self.slots.clone(), id.clone());
        self.writes.push(Box::pin(async move {
            let slot = slots.acquire().await;
            let result = carry_out(fleet.as_ref(), &id, &seen, &orders).await;
            drop(slot);
            if result.as_ref().is_err_and(is_worth_a_word) {
                sleep(REFUSED).await;
            }
            (id, result)
        }));
    }

    fn written(&mut self, id: &Id, result: &Result<(), ApiError>) {
        if let Err(error) = result
            && is_worth_a_word(error)
        {
            tracing::warn!(kind = id.kind, namespace = id.key.namespace, name = id.key.name, %error, "not scaled");
        }
        if let Some(tracked) = self.known.get_mut(id) {
            tracked.writing = false;
            // What changed while it was written has waited.
            tracked.next = tracked.next.min(self.begun.elapsed());
        }
    }
}

/// The header fields of a question to a gateway.
fn fields(token: Option<&str>) -> Vec<(&'static str, &str)> {
    token.map(|token| (FIELD, token)).into_iter().collect()
}

/// What was answered, and the connection; `otherwise`: what it is if it cannot be read.
fn read<T: serde::de::DeserializeOwned>(
    answer: Result<Reply, AskError>,
    otherwise: &'static str,
) -> Result<(T, Option<TcpStream>), AskError> {
    let Reply { status, body, connection } = answer?;
    if status != 200 {
        return Err(AskError::Status(status));
    }
    serde_json::from_slice(&body).map(|read| (read, connection)).map_err(|_| AskError::Unreadable(otherwise))
}

/// Between 0 and 1, another for each workload.
fn spread(id: &Id) -> f64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    (hasher.finish() % 1000) as f64 / 1000.0
}

/// Whether it is more than that something changed at the same moment, which the next round takes into account.
fn is_worth_a_word(error: &ApiError) -> bool {
    !matches!(error, ApiError::Stale | ApiError::WrongUid(_) | ApiError::NotFound)
}

/// Marks first, then the number, then what the status says of it.
async fn carry_out(fleet: &dyn Fleet, id: &Id, seen: &Seen, orders: &Orders) -> Result<(), ApiError> {
    let costs = orders.costs.iter().map(|(pod, cost)| fleet.set_deletion_cost(&id.key.namespace, pod, *cost));
    try_join_all(costs).await?;
    if let (Some(replicas), Some(deployment)) = (orders.replicas, &seen.deployment) {
        fleet.set_replicas(deployment, replicas).await?;
        let (namespace, name) = (&id.key.namespace, &id.key.name);
        tracing::info!(kind = id.kind, namespace, name, replicas, "replicas set by the scaler");
    }
    match &orders.told {
        Some(told) => fleet.tell(id, &seen.uid, told).await,
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
