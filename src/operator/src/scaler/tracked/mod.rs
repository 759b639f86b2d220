//! State of one workload over time: its samples, its stabilization window, and the writes that follow from them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actions::{
    ports::{CachedChild, WorkloadPod},
    workload::{ReplicasHandover, handover},
};
use crds::{Scaling, reason};
use tokio::net::TcpStream;

use super::{
    Direction, LoadDemand, LoadReport, Meter, PodSample, ReplicaPolicy, ScaleGauges, Window, decide,
    fleet::{ScalingCondition, ScalingStatus, WorkloadView},
    gateways::UnmetDemand,
    step::{MARK, ScaleDownStep, is_settled, prepare, stale_marks},
};

/// Time without an answer after which a Pod is reported as unreachable.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(10);
/// Time for which a Failed workload that may scale to zero keeps a Pod, since it failed or was last called: only a ready Pod ends the
/// failure, so without one it would never be evaluated again.
const FAILED_GRACE: Duration = Duration::from_secs(30 * 60);
/// Time for which a Pod that was ready, and is no longer, counts as one that did not answer: it may be too busy to.
const READY_GRACE: Duration = Duration::from_secs(5 * 60);

/// Time for which a Pod that has not been ready yet counts as one that did not answer: a gateway may have found it ready before the
/// kubelet, and it may be serving.
const START_GRACE: Duration = Duration::from_secs(60);

/// State of the gateways.
#[derive(Debug, Clone, Copy)]
pub(super) struct GatewayState {
    /// Unmet demand for this workload.
    pub(super) unmet: UnmetDemand,
    /// True if no request can wait unseen.
    pub(super) all_respond: bool,
    /// True if no gateway would wake a workload without Pods.
    pub(super) no_gateway_known: bool,
}

/// Writes that follow from an evaluation; empty if all is as it should be.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PlannedWrites {
    /// The Deployment's `replicas`: a number, or (`Some(None)`) to be left out.
    pub(super) replicas: Option<Option<i32>>,
    /// Deletion costs of Pods.
    pub(super) costs: Vec<(Arc<WorkloadPod>, Option<i32>)>,
    /// Scaling part of the status.
    pub(super) status: Option<ScalingStatus>,
    /// Direction of the change of `replicas`.
    pub(super) direction: Option<Direction>,
}

impl PlannedWrites {
    /// Reports whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.replicas.is_none() && self.costs.is_empty() && self.status.is_none()
    }
}

/// State of one workload.
///
/// Invariant: after a round, `pods` holds the Pods that it queried, and `past` those that are not being deleted.
#[derive(Debug)]
pub(super) struct TrackedWorkload {
    meter: Meter,
    window: Window,
    pods: HashMap<String, PodConnection>,
    /// History of each Pod that is not being deleted.
    past: HashMap<String, PodHistory>,
    /// True if the workload was Failed at its last evaluation.
    failed: bool,
    /// True if the workload is busy, so that it is queried in every round.
    pub(super) active: bool,
    /// Time of the next query if nothing happens.
    pub(super) next: Duration,
    /// True until the first query.
    pub(super) is_new: bool,
    /// Round in flight.
    pub(super) round: Option<PollRound>,
    /// True while a write is in flight.
    pub(super) writing: bool,
    /// Number of Pods that its status is to report.
    pub(super) desired: i32,
    /// Load at the last evaluation, in concurrent requests.
    load: f64,
}

/// Round of queries to the Pods of a workload.
#[derive(Debug, Default)]
pub(super) struct PollRound {
    /// Number of Pods that have not answered.
    pub(super) pending: usize,
    /// Answers, by Pod uid.
    pub(super) responses: HashMap<String, Option<PodSample>>,
}

/// Time at which a Pod was first seen, and at which it was last ready.
#[derive(Debug)]
struct PodHistory {
    seen: Duration,
    ready: Option<Duration>,
}

/// Connection to a Pod.
#[derive(Debug, Default)]
struct PodConnection {
    stream: Option<TcpStream>,
    silent_since: Option<Duration>,
    why: String,
}

impl TrackedWorkload {
    /// Creates the state of a workload that was not known before; `now` is the time since any fixed moment.
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
            load: 0.0,
        }
    }

    /// Forgets the state of the workload, but for a write in flight.
    pub(super) fn forget(&mut self, now: Duration) {
        *self = Self { writing: self.writing, ..Self::new(now) };
    }

    /// Begins a round, and returns the Pods to query with the connections to them.
    pub(super) fn begin(&mut self, seen: &WorkloadView) -> Vec<(Arc<WorkloadPod>, Option<TcpStream>)> {
        let asked: Vec<_> = seen.pods.iter().filter(|pod| pod.ready && !pod.terminating).cloned().collect();
        self.pods.retain(|uid, _| asked.iter().any(|pod| pod.uid == *uid));
        let answers = asked.iter().map(|pod| (pod.uid.clone(), None)).collect();
        self.round = Some(PollRound { pending: asked.len(), responses: answers });
        let mut line = |uid: &str| self.pods.entry(uid.to_owned()).or_default().stream.take();
        asked.into_iter().map(|pod| (pod.clone(), line(&pod.uid))).collect()
    }

    /// Records the answer of a Pod, and reports whether it was the last of the round.
    pub(super) fn record_response(&mut self, uid: &str, sample: PodSample, kept: Option<TcpStream>) -> bool {
        if let Some(line) = self.pods.get_mut(uid) {
            *line = PodConnection { stream: kept, ..PodConnection::default() };
        }
        self.close(uid, Some(sample))
    }

    /// Records that a Pod did not answer, and reports whether it was the last of the round.
    pub(super) fn record_silence(&mut self, uid: &str, why: String) -> bool {
        // The first reason stays: a new one with every attempt would be a write with every attempt.
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

    /// Returns the Pods that have not answered for [`UNREACHABLE_AFTER`], with the reasons.
    pub(super) fn unreachable(&self, now: Duration) -> impl Iterator<Item = (&str, &str)> {
        let long = move |since: Duration| now.saturating_sub(since) >= UNREACHABLE_AFTER;
        let lost = self.pods.iter().filter(move |(_, line)| line.silent_since.is_some_and(long));
        lost.map(|(uid, line)| (uid.as_str(), line.why.as_str()))
    }

    /// Returns what the metrics tell of the last evaluation; `None` if the number of Pods does not follow the load.
    pub(super) fn gauges(&self, seen: &WorkloadView, now: Duration) -> Option<ScaleGauges> {
        let scaling = seen.scaling.as_ref().filter(|_| !seen.stopped)?;
        Some(ScaleGauges {
            desired: self.desired,
            demand: self.load / f64::from(scaling.concurrency.max(1)),
            min: scaling.min_replicas,
            max: scaling.max_replicas,
            unreachable: self.unreachable(now).count(),
        })
    }

    /// Returns the writes that the ownership of `replicas` asks for at once, whatever the load.
    pub(super) fn handover(&mut self, seen: &WorkloadView) -> PlannedWrites {
        let scaling = seen.scaling.as_ref().filter(|_| !seen.stopped);
        let mut writes = PlannedWrites::default();
        let mut status = seen.status.clone();
        let live = seen.deployment.as_deref().filter(|live| !live.deleting).and_then(|live| live.deployment.as_ref());
        match live.map(|live| handover(scaling, live)) {
            Some(ReplicasHandover::Acquire(replicas)) => {
                writes.replicas = Some(Some(replicas));
                status.desired = Some(replicas);
            }
            Some(ReplicasHandover::Release) => writes.replicas = Some(None),
            _ => {}
        }
        if seen.stopped && seen.scaling.is_some() {
            status = ScalingStatus {
                desired: Some(0),
                active: Some(active(
                    false,
                    reason::STOPPED,
                    "spec.replicas is 0, which stops the Pods whatever the load",
                )),
            };
        }
        self.desired = status.desired.unwrap_or_default();
        writes.status = (status != seen.status && seen.scaling.is_some()).then_some(status);
        writes
    }

    /// Evaluates a round, and returns the writes that follow.
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
        self.load = demand.load;
        let mut writes = self.handover(seen);
        let own = |live: &&Arc<CachedChild>| {
            let state = live.deployment.as_ref().filter(|_| !live.deleting);
            state.is_some_and(|state| handover(seen.scaling.as_ref(), state) == ReplicasHandover::Owned)
        };
        if let (Some(scaling), false, Some(live)) = (&seen.scaling, seen.stopped, seen.deployment.as_ref().filter(own))
        {
            self.scale(seen, scaling, live, &demand, gateways, now, &mut writes);
        }
        self.active = demand.load > 0.0 || demand.halted || !writes.is_empty();
        writes
    }

    /// Returns the Pods that were ready lately and are no longer, and those that were started lately; none that is being deleted. A Pod of
    /// the first sort may be overloaded, and one of the second may serve already, so they count as Pods that do not answer, not as Pods
    /// that are gone.
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
        writes: &mut PlannedWrites,
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
                ScaleDownStep::Mark(pods) => writes.costs = pods.into_iter().map(|pod| (pod, Some(MARK))).collect(),
            },
            Direction::Down | Direction::Hold => {}
        }
        if desired != current {
            writes.replicas = Some(Some(desired));
            writes.direction = Some(decision.direction);
        }
        if decision.direction != Direction::Down {
            writes.costs = stale_marks(&seen.pods, current).into_iter().map(|pod| (pod, None)).collect();
        }
        let kept = || active(true, "Failed", FAILED_MESSAGE);
        let awake = awake.or_else(|| (seen.failed && scaling.min_replicas == 0).then(kept));
        let status = ScalingStatus { desired: Some(desired), active: self.scaling_condition(seen, awake, now) };
        self.desired = desired;
        writes.status = (status != seen.status).then_some(status);
    }

    /// Returns the condition `ScalingActive`.
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
                "Pod {} does not report its load on port {}, so no Pod is removed ({why}): if a NetworkPolicy blocks \
                 the operator, allow it",
                pod.name, pod.port
            );
            return Some(active(false, "PodUnreachable", message));
        }
        // A Pod that is silent for a moment changes nothing in the condition.
        let unsure = self.pods.values().any(|line| line.silent_since.is_some());
        if unsure && seen.status.active.is_some() {
            return seen.status.active.clone();
        }
        Some(awake.unwrap_or_else(|| active(true, "FollowsLoad", "the number of Pods follows the load")))
    }
}

/// Message of `ScalingActive` for a workload that is Failed.
const FAILED_MESSAGE: &str = "only a ready Pod ends the failure: one stays for 30 minutes after it or after the last request, then none until a request comes";

/// Returns the condition that keeps the last Pod although the load does not need it.
fn keeps_last_pod(seen: &WorkloadView, gateways: GatewayState) -> Option<ScalingCondition> {
    if let Some(tool) = &seen.tool {
        return Some(active(true, "InUse", format!("one Pod stays: Tool/{tool} refers to it, past the gateway")));
    }
    let message = "one Pod stays: no gateway is known that could wake the workload; see --gateway-service";
    gateways.no_gateway_known.then(|| active(true, "NoGateway", message))
}

fn active(status: bool, reason: &str, message: impl Into<String>) -> ScalingCondition {
    ScalingCondition { status, reason: reason.to_owned(), message: message.into() }
}

#[cfg(test)]
mod tests;
