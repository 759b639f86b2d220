//! How the Pods of a workload are doing, in words that do not flap: a class, and what the user wrote.

use std::time::Duration;

use crds::WorkloadPhase;
use meta::{Phase, PhaseClass, SCALED_TO_ZERO, condition, set_condition};

use super::{WorkloadKind, children::renew_service, replicas};
use crate::{
    kind::Context,
    ports::{CachedChild, DeploymentState, PodProblem, WorkloadPod},
    references::{Inputs, Unresolved},
};

/// Pods that say nothing are waited for this long before the wait is written.
const QUIET_PERIOD: Duration = Duration::from_secs(10);
/// The first Pod of a workload that was scaled to zero may take this long before the status says that it sleeps no more.
const COLD_START: Duration = Duration::from_secs(60);

/// What is waited for while a workload is stopped.
pub(super) const STOPPING: &str = "the Pods are still ending";

/// The condition by which the scaler tells whether it can do its work.
pub const SCALING_ACTIVE: &str = "ScalingActive";

/// How far a Deployment has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rollout {
    /// All Pods are of the current template and available, and no other is left.
    Done,
    /// On its way.
    InProgress,
    /// It will not come up by itself: reason and message.
    Stalled(&'static str, String),
}

/// Judges a Deployment.
pub(super) fn rollout(child: &CachedChild, deployment: &DeploymentState, wanted: i32) -> Rollout {
    if deployment.observed_generation < child.generation {
        return Rollout::InProgress;
    }
    let done = deployment.desired == wanted
        && deployment.updated == wanted
        && deployment.available == wanted
        && deployment.replicas == wanted;
    if done {
        return Rollout::Done;
    }
    if let Some(message) = &deployment.replica_failure {
        return Rollout::Stalled("ReplicaFailure", format!("Pods cannot be created: {message}"));
    }
    if deployment.stalled.is_some() {
        let message = "the Pods were not ready before the Deployment's deadline".to_owned();
        return Rollout::Stalled("ProgressDeadlineExceeded", message);
    }
    Rollout::InProgress
}

/// Puts what the Deployment says into the status: replicas and `Available`.
pub(super) fn observe<K: WorkloadKind>(next: &mut K, deployment: Option<&DeploymentState>, stopped: bool) {
    let ready = deployment.map_or(0, |deployment| deployment.ready);
    let pods = deployment.map_or(0, |deployment| deployment.replicas);
    let available = deployment.is_some_and(|deployment| deployment.available > 0);
    let manager = deployment.and_then(|deployment| deployment.replicas_managers.other_manager());
    let (scaled, scaled_at_all) = (replicas::scaling(next).is_some(), next.scaling().is_some());
    let failed = next.phase() == Some(WorkloadPhase::Failed);
    // What is Failed is not woken by waiting in a gateway.
    let asleep = !failed
        && scaled
        && deployment.is_some_and(|deployment| deployment.desired == 0 && deployment.replicas_managers.scaler);
    let kind = K::KIND;
    let said = match (stopped, available, manager) {
        _ if asleep => condition("Available", true, SCALED_TO_ZERO, "no requests: the next one starts a Pod"),
        (true, ..) => condition("Available", false, "Stopped", WorkloadPhase::Terminated.default_message()),
        (_, true, None) => condition("Available", true, "DeploymentReady", format!("{kind} deployment is ready")),
        (_, true, Some(manager)) => condition(
            "Available",
            true,
            "DeploymentReady",
            format!(
                "{kind} deployment is ready; {manager} sets the replicas of the Deployment, spec.replicas is not used until it is edited"
            ),
        ),
        (_, false, _) => condition("Available", false, "DeploymentNotReady", "no Pod is available"),
    };
    let wanted = deployment.map_or(next.replicas(), |deployment| replicas::desired(next, deployment));
    let status = next.status_mut();
    if !scaled_at_all {
        status.desired_replicas = Some(wanted);
        status.machine.conditions.retain(|found| found.type_ != SCALING_ACTIVE);
    }
    status.replicas = Some(ready);
    status.current_replicas = Some(pods);
    set_condition(&mut status.machine.conditions, said);
}

/// The object with what its Deployment says, if it became available or ceased to be since the status was written, or if its
/// kind has something to tell. Old Pods count: they serve while a new configuration is on its way.
pub(super) fn observed_change<K: WorkloadKind>(cx: &Context, cr: &K, inputs: &Inputs) -> Option<K> {
    let live = cx.cache.child(&cr.deployment());
    let mut next = cr.clone();
    observe(&mut next, live.as_ref().and_then(|live| live.deployment.as_ref()), cr.replicas() == 0);
    let renewed = renew_service(cx, &mut next);
    let told = next.report_status(inputs);
    (told || renewed || is_available(&next) != is_available(cr)).then_some(next)
}

/// Notes, for the status that begins the rollout, how many Pods it waits for.
pub(super) fn note_rollout<K: WorkloadKind>(cx: &Context, cr: &K) {
    let live = cx.cache.child(&cr.deployment());
    let awaited = replicas::expected(cr, live.as_ref().and_then(|live| live.deployment.as_ref()));
    let new = if live.is_some() { "new " } else { "" };
    if awaited > 0 {
        cx.notes.waiting(WorkloadPhase::Deploying.as_str(), format!("0 of {awaited} {new}Pods ready"));
    }
}

/// Whether the status says that the workload was scaled to zero.
pub(super) fn is_scaled_to_zero<K: WorkloadKind>(cr: &K) -> bool {
    let conditions = cr.common().map(|machine| machine.conditions.as_slice()).unwrap_or_default();
    conditions
        .iter()
        .any(|found| found.type_ == "Available" && found.status == "True" && found.reason == SCALED_TO_ZERO)
}

/// Whether a Pod serves, as the status says.
pub(crate) fn is_available<K: WorkloadKind>(cr: &K) -> bool {
    let conditions = cr.common().map(|machine| machine.conditions.as_slice()).unwrap_or_default();
    conditions.iter().any(|found| found.type_ == "Available" && found.status == "True")
}

/// Notes why the Pods are not ready.
pub(super) fn explain<K: WorkloadKind>(cx: &Context, cr: &K) {
    let key = cr.key();
    let pods = cx.cache.pods(K::KIND, &key.namespace, &key.name);
    match worst_problem(&pods) {
        Some((reason, message)) => cx.notes.problem(reason, message),
        None if cr.phase().is_some_and(|phase| phase.class() == PhaseClass::Settled) => {
            cx.notes.waiting("PodsNotReady", "fewer Pods are available than wanted");
        }
        None => cx.notes.waiting_up_to(QUIET_PERIOD, "NotReady", "the Pods are not ready yet"),
    }
}

/// Notes why the Pods of a workload that wakes are not ready, and keeps it to itself while that may be their usual start.
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

/// The worst trouble of the Pods that are to stay, as reason and message.
pub(super) fn worst_problem(pods: &[std::sync::Arc<WorkloadPod>]) -> Option<(&'static str, String)> {
    let worst = pods.iter().filter(|pod| !pod.terminating).filter_map(|pod| pod.problem.as_ref()).min()?;
    Some(match worst {
        PodProblem::ImagePull { image } if image.contains('/') => {
            ("ImagePull", format!("the image {image} cannot be pulled"))
        }
        PodProblem::ImagePull { image } => {
            ("ImagePull", format!("the image {image} is not on the node, and an image without / is never pulled"))
        }
        PodProblem::CrashLoop { container, exit_code } => {
            ("CrashLoop", format!("container {container} ends with exit code {exit_code}"))
        }
        PodProblem::CreateContainerConfigError { object } => {
            ("CreateContainerConfigError", format!("a container cannot be made: {object} is missing"))
        }
        PodProblem::Unschedulable => ("Unschedulable", "no node takes the Pod".to_owned()),
    })
}
