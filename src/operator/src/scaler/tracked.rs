//! One workload over time: its samples, its window, and what follows from them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actions::{
    ports::{CachedChild, WorkloadPod},
    workload::{ReplicasHandover, handover},
};
use crds::Scaling;
use tokio::net::TcpStream;

use super::{
    Direction, LoadDemand, LoadReport, Meter, PodSample, ReplicaPolicy, Window, decide,
    fleet::{ScalingCondition, ScalingStatus, WorkloadView},
    gateways::UnmetDemand,
    step::{MARK, ScaleDownStep, is_settled, prepare, stale_marks},
};

/// A Pod that has not answered for this long is told of.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(10);
/// A workload that is Failed and may scale to zero keeps a Pod for this long after it failed or was last called: only a ready
/// Pod ends the failure, so without one it would never be looked at again.
const FAILED_GRACE: Duration = Duration::from_secs(30 * 60);
/// A Pod that was ready within this time and is no longer has not answered: it may be too busy to.
const READY_GRACE: Duration = Duration::from_secs(5 * 60);

/// A Pod that has not been ready yet is waited for so long: a gateway may have found it ready before the kubelet, and it may
/// be serving.
const START_GRACE: Duration = Duration::from_secs(60);

/// What is known of the gateways.
#[derive(Debug, Clone, Copy)]
pub(super) struct GatewayState {
    /// What is asked for in vain of this workload.
    pub(super) unmet: UnmetDemand,
    /// Whether nobody can wait unseen.
    pub(super) all_respond: bool,
    /// Whether nobody would wake what sleeps.
    pub(super) no_gateway_known: bool,
}

/// What is to be written; nothing at all when all is as it should be.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PlannedWrites {
    /// The Deployment's `replicas`: a number, or to be left out.
    pub(super) replicas: Option<Option<i32>>,
    /// What it costs to delete these Pods.
    pub(super) costs: Vec<(Arc<WorkloadPod>, Option<i32>)>,
    /// What the status is to say.
    pub(super) status: Option<ScalingStatus>,
    /// Where the number goes.
    pub(super) direction: Option<Direction>,
}

impl PlannedWrites {
    /// Whether there is anything to write.
    pub(super) fn is_empty(&self) -> bool {
        self.replicas.is_none() && self.costs.is_empty() && self.status.is_none()
    }
}

/// What is remembered of one workload.
#[derive(Debug)]
pub(super) struct TrackedWorkload {
    meter: Meter,
    window: Window,
    pods: HashMap<String, PodConnection>,
    /// The past of each Pod that is not being deleted.
    past: HashMap<String, PodHistory>,
    /// Whether it was Failed when it was last judged.
    failed: bool,
    /// Whether it has something to do, so that it is asked in every round.
    pub(super) active: bool,
    /// When it is asked although nothing happens.
    pub(super) next: Duration,
    /// Whether it was never asked.
    pub(super) is_new: bool,
    /// The Pods that it was asked about and that have not answered yet, and the answers of the others.
    pub(super) round: Option<PollRound>,
    /// Whether a write is under way.
    pub(super) writing: bool,
    /// What its status is to say of its Pods.
    pub(super) desired: i32,
}

/// One round of questions.
#[derive(Debug, Default)]
pub(super) struct PollRound {
    /// How many have not answered.
    pub(super) pending: usize,
    /// What was answered, by Pod uid.
    pub(super) responses: HashMap<String, Option<PodSample>>,
}

/// When a Pod was first seen, and when it was last ready.
#[derive(Debug)]
struct PodHistory {
    seen: Duration,
    ready: Option<Duration>,
}

/// The connection to a Pod.
#[derive(Debug, Default)]
struct PodConnection {
    stream: Option<TcpStream>,
    silent_since: Option<Duration>,
    why: String,
}

impl TrackedWorkload {
    /// A workload that was not known before; `now` is the time since any fixed moment.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            meter: Meter::new(now),
            window: Window::new(now),
            pods: HashMap::new(),
            past: HashMap::new(),
            failed: false,
            active: false,
            next: now,
            is_new: true,
            round: None,
            writing: false,
            desired: 0,
        }
    }

    /// Forgets what was known of the workload, but for a write that is under way.
    pub(super) fn forget(&mut self, now: Duration) {
        *self = Self { writing: self.writing, ..Self::new(now) };
    }

    /// Begins a round: the connections to the Pods that are asked.
    pub(super) fn begin(&mut self, seen: &WorkloadView) -> Vec<(Arc<WorkloadPod>, Option<TcpStream>)> {
        let asked: Vec<_> = seen.pods.iter().filter(|pod| pod.ready && !pod.terminating).cloned().collect();
        self.pods.retain(|uid, _| asked.iter().any(|pod| pod.uid == *uid));
        let answers = asked.iter().map(|pod| (pod.uid.clone(), None)).collect();
        self.round = Some(PollRound { pending: asked.len(), responses: answers });
        let mut line = |uid: &str| self.pods.entry(uid.to_owned()).or_default().stream.take();
        asked.into_iter().map(|pod| (pod.clone(), line(&pod.uid))).collect()
    }

    /// Takes the answer of a Pod; whether it was the last.
    pub(super) fn record_response(&mut self, uid: &str, sample: PodSample, kept: Option<TcpStream>) -> bool {
        if let Some(line) = self.pods.get_mut(uid) {
            *line = PodConnection { stream: kept, ..PodConnection::default() };
        }
        self.close(uid, Some(sample))
    }

    /// A Pod did not answer; whether it was the last to be waited for.
    pub(super) fn record_silence(&mut self, uid: &str, why: String) -> bool {
        // The first reason stays: another one with every attempt would be a write with every attempt.
        if let Some(line) = self.pods.get_mut(uid).filter(|line| line.silent_since.is_none()) {
            line.why = why;
        }
        self.close(uid, None)
    }

    fn close(&mut self, uid: &str, sample: Option<PodSample>) -> bool {
        let Some(round) = &mut self.round else { return false };
        if let Some(answer) = round.responses.get_mut(uid) {
            *answer = sample;
            round.pending = round.pending.saturating_sub(1);
        }
        round.pending == 0
    }

    /// Pods that have not answered for long.
    pub(super) fn unreachable(&self, now: Duration) -> impl Iterator<Item = (&str, &str)> {
        let long = move |since: Duration| now.saturating_sub(since) >= UNREACHABLE_AFTER;
        let lost = self.pods.iter().filter(move |(_, line)| line.silent_since.is_some_and(long));
        lost.map(|(uid, line)| (uid.as_str(), line.why.as_str()))
    }

    /// What the ownership of `replicas` asks for at once, whatever the load.
    pub(super) fn handover(&mut self, seen: &WorkloadView) -> PlannedWrites {
        let scaling = seen.scaling.as_ref().filter(|_| !seen.stopped);
        let mut orders = PlannedWrites::default();
        let mut told = seen.status.clone();
        let live = seen.deployment.as_deref().filter(|live| !live.deleting).and_then(|live| live.deployment.as_ref());
        match live.map(|live| handover(scaling, live)) {
            Some(ReplicasHandover::Acquire(replicas)) => {
                orders.replicas = Some(Some(replicas));
                told.desired = Some(replicas);
            }
            Some(ReplicasHandover::Release) => orders.replicas = Some(None),
            _ => {}
        }
        if seen.stopped && seen.scaling.is_some() {
            told = ScalingStatus {
                desired: Some(0),
                active: Some(active(false, "Stopped", "spec.replicas is 0, which stops the Pods whatever the load")),
            };
        }
        self.desired = told.desired.unwrap_or_default();
        orders.status = (told != seen.status && seen.scaling.is_some()).then_some(told);
        orders
    }

    /// Ends a round: what follows from what was heard.
    pub(super) fn evaluate(&mut self, seen: &WorkloadView, gateways: GatewayState, now: Duration) -> PlannedWrites {
        let round = self.round.take().unwrap_or_default();
        for (uid, _) in round.responses.iter().filter(|(_, answer)| answer.is_none()) {
            if let Some(line) = self.pods.get_mut(uid) {
                line.silent_since.get_or_insert(now);
                if line.why.is_empty() {
                    line.why = "no answer in time".to_owned();
                }
            }
        }
        let UnmetDemand { waiting, refused, halted } = gateways.unmet;
        let mut pods = round.responses;
        pods.extend(self.unready(seen, now).into_iter().map(|uid| (uid, None)));
        if seen.failed && !std::mem::replace(&mut self.failed, seen.failed) {
            self.meter.reset_idle(now);
        }
        self.failed = seen.failed;
        let demand = self.meter.update(&LoadReport { pods, waiting, refused, halted }, now);
        let mut orders = self.handover(seen);
        let own = |live: &&Arc<CachedChild>| {
            let state = live.deployment.as_ref().filter(|_| !live.deleting);
            state.is_some_and(|state| handover(seen.scaling.as_ref(), state) == ReplicasHandover::Owned)
        };
        if let (Some(scaling), false, Some(live)) = (&seen.scaling, seen.stopped, seen.deployment.as_ref().filter(own))
        {
            self.scale(seen, scaling, live, &demand, gateways, now, &mut orders);
        }
        self.active = demand.load > 0.0 || demand.halted || !orders.is_empty();
        orders
    }

    /// The Pods that were ready lately and are no longer, and those that have begun lately; none that is being deleted. Overload
    /// looks like the first, and one of the second may serve already, so they count as Pods that do not answer, not as Pods that
    /// are gone.
    fn unready(&mut self, seen: &WorkloadView, now: Duration) -> Vec<String> {
        let stays = |uid: &String| seen.pods.iter().any(|pod| pod.uid == *uid && !pod.terminating);
        self.past.retain(|uid, _| stays(uid));
        let mut silent = Vec::new();
        for pod in seen.pods.iter().filter(|pod| !pod.terminating) {
            let past = self.past.entry(pod.uid.clone()).or_insert(PodHistory { seen: now, ready: None });
            if pod.ready {
                past.ready = Some(now);
            }
            let counts = match past.ready {
                Some(since) => now.saturating_sub(since) < READY_GRACE,
                None => now.saturating_sub(past.seen) < START_GRACE,
            };
            if !pod.ready && counts {
                silent.push(pod.uid.clone());
            }
        }
        silent
    }

    #[expect(clippy::too_many_arguments, reason = "everything that a decision depends on")]
    fn scale(
        &mut self,
        seen: &WorkloadView,
        scaling: &Scaling,
        live: &CachedChild,
        demand: &LoadDemand,
        gateways: GatewayState,
        now: Duration,
        orders: &mut PlannedWrites,
    ) {
        let current = live.deployment.as_ref().map_or(0, |state| state.desired);
        let awake = (scaling.min_replicas == 0).then(|| keeps_last_pod(seen, gateways)).flatten();
        let sees_all = gateways.all_respond || current == 0;
        let zero_after = match seen.failed {
            true => scaling.scale_to_zero_after().max(FAILED_GRACE),
            false => scaling.scale_to_zero_after(),
        };
        let policy = ReplicaPolicy {
            min: scaling.min_replicas,
            max: scaling.max_replicas,
            concurrency: scaling.concurrency,
            stable_window: scaling.stable_window(),
            zero_after: (awake.is_none() && sees_all).then_some(zero_after),
        };
        let decision = decide(&policy, current, demand, &mut self.window, now);
        let in_flight = |uid: &str| self.meter.in_flight(uid).unwrap_or(u32::MAX);
        let mut desired = current;
        match decision.direction {
            Direction::Up => desired = decision.replicas,
            Direction::Down if is_settled(live) => match prepare(&seen.pods, decision.replicas, in_flight) {
                ScaleDownStep::LowerReplicas => desired = decision.replicas,
                ScaleDownStep::Mark(pods) => orders.costs = pods.into_iter().map(|pod| (pod, Some(MARK))).collect(),
            },
            Direction::Down | Direction::Hold => {}
        }
        if desired != current {
            orders.replicas = Some(Some(desired));
            orders.direction = Some(decision.direction);
        }
        if decision.direction != Direction::Down {
            orders.costs = stale_marks(&seen.pods, current).into_iter().map(|pod| (pod, None)).collect();
        }
        let kept = || active(true, "Failed", FAILED_MESSAGE);
        let awake = awake.or_else(|| (seen.failed && scaling.min_replicas == 0).then(kept));
        let told = ScalingStatus { desired: Some(desired), active: self.scaling_condition(seen, awake, now) };
        self.desired = desired;
        orders.status = (told != seen.status).then_some(told);
    }

    /// What `ScalingActive` is to say.
    fn scaling_condition(
        &self,
        seen: &WorkloadView,
        awake: Option<ScalingCondition>,
        now: Duration,
    ) -> Option<ScalingCondition> {
        let name_of = |uid: &str| seen.pods.iter().find(|pod| pod.uid == uid);
        let lost = self.unreachable(now).filter_map(|(uid, why)| Some((name_of(uid)?, why)));
        if let Some((pod, why)) = lost.min_by_key(|(pod, _)| &pod.name) {
            let message = format!(
                "Pod {} does not tell its load on port 8888, so no Pod goes ({why}): if a NetworkPolicy keeps the operator \
                 from it, allow that",
                pod.name
            );
            return Some(active(false, "PodUnreachable", message));
        }
        // A Pod that is silent for a moment is no news, and none that it was silent before.
        let unsure = self.pods.values().any(|line| line.silent_since.is_some());
        if unsure && seen.status.active.is_some() {
            return seen.status.active.clone();
        }
        Some(awake.unwrap_or_else(|| active(true, "FollowsLoad", "the number of Pods follows the load")))
    }
}

/// What `ScalingActive` says of a workload that is Failed.
const FAILED_MESSAGE: &str = "only a ready Pod ends the failure: one stays for 30 minutes after it or after the last request, then none until a request comes";

/// Why the last Pod stays although it need not.
fn keeps_last_pod(seen: &WorkloadView, gateways: GatewayState) -> Option<ScalingCondition> {
    if let Some(tool) = &seen.tool {
        return Some(active(true, "InUse", format!("one Pod stays: Tool/{tool} refers to it, past the gateway")));
    }
    let message = "one Pod stays: no gateway is known, so nobody would wake it; see --gateway-service";
    gateways.no_gateway_known.then(|| active(true, "NoGateway", message))
}

fn active(status: bool, reason: &str, message: impl Into<String>) -> ScalingCondition {
    ScalingCondition { status, reason: reason.to_owned(), message: message.into() }
}

#[cfg(test)]
#[path = "tracked_tests.rs"]
mod tests;
