//! Evaluates the health of a workload's Pods, in words that do not flap: a class of problem, and names that the user wrote.

use std::time::Duration;

use crds::{
    WorkloadPhase,
    pod_problem::{NEEDS_CONTAINER, NEVER_PULLED, NOT_ON_NODE, PodProblem},
    reason,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use meta::{Phase, PhaseClass, condition, condition_type, set_condition};

use super::{children::renew_service, kind::WorkloadKind, replicas};
use crate::{
    kind::Context,
    ports::{CachedChild, DeploymentState, WorkloadPod},
    references::{Inputs, Unresolved},
};

/// Quiet period of the wait for Pods that report no problem.
const QUIET_PERIOD: Duration = Duration::from_secs(10);
/// Quiet period of a cold start: time that the first Pod of a workload that was scaled to zero may take before the status says
/// that the workload is not scaled to zero any more.
const COLD_START: Duration = Duration::from_secs(60);

/// Message of the wait while a stopped workload still has Pods.
pub(super) const STOPPING: &str = "the Pods are still ending";

/// Progress of a Deployment's rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rollout {
    /// All Pods are of the current template and available, and no other Pod is left.
    Done,
    /// As [`Rollout::Done`], but the scaler has yet to take over the number of Pods.
    AwaitsScaler,
    /// In progress.
    InProgress,
    /// The rollout will not complete by itself: reason and message.
    Stalled(&'static str, String),
}

/// Evaluates the rollout of a workload's Deployment.
pub(super) fn rollout<K: WorkloadKind>(cr: &K, child: &CachedChild, deployment: &DeploymentState) -> Rollout {
    let wanted = replicas::desired(cr, deployment);
    let observed = deployment.observed_generation >= child.generation;
    let done = observed
        && deployment.desired == wanted
        && deployment.updated == wanted
        && deployment.available == wanted
        && deployment.replicas == wanted;
    if done {
        return if replicas::awaits_scaler(cr, deployment) { Rollout::AwaitsScaler } else { Rollout::Done };
    }
    if let Some(message) = &deployment.replica_set_failure {
        return Rollout::Stalled(reason::REPLICA_FAILURE, format!("Pods cannot be created: {message}"));
    }
    if !observed {
        return Rollout::InProgress;
    }
    if let Some(message) = &deployment.replica_failure {
        return Rollout::Stalled(reason::REPLICA_FAILURE, format!("Pods cannot be created: {message}"));
    }
    if deployment.stalled.is_some() {
        let message = "the Pods were not ready before the Deployment's deadline".to_owned();
        return Rollout::Stalled(reason::PROGRESS_DEADLINE_EXCEEDED, message);
    }
    Rollout::InProgress
}

/// Returns the time at which the workload came into this phase, or that of the oldest step that it remembers.
pub(super) fn entered<K: WorkloadKind>(cr: &K, phase: WorkloadPhase) -> Option<Timestamp> {
    let history = cr.common().map(|machine| machine.history.as_slice()).unwrap_or_default();
    let phase = phase.to_string();
    let entry = history.iter().rev().find(|entry| entry.to == phase && entry.from != phase);
    entry.or(history.first()).map(|entry| entry.at.0)
}

/// Writes the state of the Deployment into the status: replicas and `Available`.
pub(super) fn observe<K: WorkloadKind>(next: &mut K, deployment: Option<&DeploymentState>, stopped: bool) {
    let ready = deployment.map_or(0, |deployment| deployment.ready);
    let pods = deployment.map_or(0, |deployment| deployment.replicas);
    let available = deployment.is_some_and(|deployment| deployment.available > 0);
    let manager = deployment.and_then(|deployment| deployment.replicas_managers.other_manager());
    let (scaled, scaled_at_all) = (next.scaling_in_force().is_some(), next.scaling().is_some());
    let failed = next.phase() == Some(WorkloadPhase::Failed);
    // A request that waits in a gateway does not start a Failed workload.
    let asleep = !failed
        && scaled
        && deployment.is_some_and(|deployment| deployment.desired == 0 && deployment.replicas_managers.scaler);
    let kind = K::KIND;
    let condition = match (stopped, available, manager) {
        _ if asleep => condition(
            condition_type::AVAILABLE,
            true,
            reason::SCALED_TO_ZERO,
            "scaled to zero; the next request starts a Pod",
        ),
        (true, ..) => {
            condition(condition_type::AVAILABLE, false, reason::STOPPED, WorkloadPhase::Terminated.default_message())
        }
        (_, true, None) => {
            condition(condition_type::AVAILABLE, true, "DeploymentReady", format!("{kind} deployment is ready"))
        }
        (_, true, Some(manager)) => condition(
            condition_type::AVAILABLE,
            true,
            "DeploymentReady",
            format!(
                "{kind} deployment is ready; {manager} sets the replicas of the Deployment, spec.replicas is not used until it is edited"
            ),
        ),
        (_, false, _) => condition(condition_type::AVAILABLE, false, "DeploymentNotReady", "no Pod is available"),
    };
    let wanted = deployment.map_or(next.replicas(), |deployment| replicas::desired(next, deployment));
    let status = next.status_mut();
    if !scaled_at_all {
        status.desired_replicas = Some(wanted);
        status.machine.conditions.retain(|found| found.type_ != condition_type::SCALING_ACTIVE);
    }
    status.replicas = Some(ready);
    status.current_replicas = Some(pods);
    set_condition(&mut status.machine.conditions, condition);
}

/// Returns the object with the state of its Deployment if its availability, the uid of its Service or the status of its kind
/// changed since the status was written. Old Pods count: they serve during the rollout of a new configuration.
pub(super) fn observed_change<K: WorkloadKind>(cx: &Context, cr: &K, inputs: &Inputs) -> Option<K> {
    let live = cx.cache.child(&cr.deployment());
    let mut next = cr.clone();
    observe(&mut next, live.as_ref().and_then(|live| live.deployment.as_ref()), cr.replicas() == 0);
    let renewed = renew_service(cx, &mut next);
    let recorded = next.record_members(inputs);
    (recorded || renewed || is_available(&next) != is_available(cr)).then_some(next)
}

/// Notes, for the status that begins the rollout, how many Pods the rollout waits for.
pub(super) fn note_rollout<K: WorkloadKind>(cx: &Context, cr: &K) {
    let live = cx.cache.child(&cr.deployment());
    let awaited = replicas::expected(cr, live.as_ref().and_then(|live| live.deployment.as_ref()));
    let new = if live.is_some() { "new " } else { "" };
    if awaited > 0 {
        cx.notes.waiting(WorkloadPhase::Deploying.as_str(), format!("0 of {awaited} {new}Pods ready"));
    }
}

/// Reports whether the status says that the workload is scaled to zero.
pub(super) fn is_scaled_to_zero<K: WorkloadKind>(cr: &K) -> bool {
    available_condition(cr).is_some_and(|found| found.status == "True" && found.reason == reason::SCALED_TO_ZERO)
}

/// Reports whether the status says that a Pod is available.
pub(crate) fn is_available<K: WorkloadKind>(cr: &K) -> bool {
    available_condition(cr).is_some_and(|found| found.status == "True")
}

/// Returns the condition `Available`.
pub(super) fn available_condition<K: WorkloadKind>(cr: &K) -> Option<&Condition> {
    cr.common()?.condition(condition_type::AVAILABLE)
}

/// Notes why the Pods are not ready.
pub(super) fn explain<K: WorkloadKind>(cx: &Context, cr: &K) {
    let key = cr.key();
    let pods = cx.cache.pods(K::KIND, &key.namespace, &key.name);
    match worst_problem(&pods) {
        Some((reason, message)) => cx.notes.problem(reason, message),
        None if cr.phase().is_some_and(|phase| phase.class() == PhaseClass::Settled) => {
            cx.notes.waiting(reason::PODS_NOT_READY, "fewer Pods are available than wanted");
        }
        None => cx.notes.waiting_up_to(QUIET_PERIOD, reason::NOT_READY, "the Pods are not ready yet"),
    }
}

/// Notes why the Pods of a workload that is being scaled from zero are not ready, and defers the write for the time of a usual
/// cold start.
pub(super) fn explain_cold_start<K: WorkloadKind>(cx: &Context, cr: &K) {
    explain(cx, cr);
    cx.notes.defer_writes(COLD_START);
}

/// Notes why a running workload is not ready although its Pods are.
pub(crate) fn note_unready<K: WorkloadKind>(cx: &Context, cr: &K) {
    match cr.unready().filter(|_| cr.phase() == Some(WorkloadPhase::Running)) {
        Some(Unresolved { reason, sentence, needs_user: true }) => cx.notes.blocked(reason, sentence),
        Some(Unresolved { reason, sentence, .. }) => cx.notes.waiting(reason, sentence),
        None => {}
    }
}

/// Returns the worst problem of the Pods that are not terminating, as reason and message.
pub(super) fn worst_problem(pods: &[std::sync::Arc<WorkloadPod>]) -> Option<(&'static str, String)> {
    let worst = pods.iter().filter(|pod| !pod.terminating).filter_map(|pod| pod.problem.as_ref()).min()?;
    Some(match worst {
        PodProblem::ImagePull { image } => (reason::IMAGE_PULL, format!("the image {image} cannot be pulled")),
        PodProblem::NeedsContainer { image } => (reason::IMAGE_PULL, format!("the image {image} {NEEDS_CONTAINER}")),
        PodProblem::ImageNeverPull { image } if image.contains('/') => {
            (reason::IMAGE_PULL, format!("the image {image} {NEVER_PULLED}"))
        }
        PodProblem::ImageNeverPull { image } => (
            reason::IMAGE_PULL,
            format!("the image {image} {NOT_ON_NODE}, and a name without / is pulled only if imagePullPolicy says so"),
        ),
        PodProblem::CrashLoop { container, exit_code } => {
            (reason::CRASH_LOOP, format!("container {container} ends with exit code {exit_code}"))
        }
        PodProblem::CreateContainerConfigError { object } => {
            (reason::CREATE_CONTAINER_CONFIG_ERROR, format!("a container cannot be made: {object} is missing"))
        }
        PodProblem::Unschedulable => (reason::UNSCHEDULABLE, "no node fits the Pod".to_owned()),
    })
}
