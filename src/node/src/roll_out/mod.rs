//! The rollout of a Deployment (`RollingUpdate` with surge 1 and unavailable 0): which Pods are made and deleted next. Pure.
//!
//! ReplicaSets do not exist here: a Pod names its template by the label `pod-template-hash`, and is owned by the Deployment.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::{Deployment, DeploymentStatus},
    core::v1::Pod,
};

use crate::deployment_status::{self, Counts};

/// Label with the hash of the template of a Pod.
pub(crate) const TEMPLATE_HASH: &str = "pod-template-hash";
/// Annotation of a Deployment whose Pods cannot run beside each other, because the program listens on one port in spite of PORT.
pub(crate) const ALONE: &str = "recif.dev/dev-alone";
/// Annotation with the [deletion cost](https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost).
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Next step of a rollout.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RollOut {
    /// Number of Pods of the current template that are to be made.
    pub(crate) create: usize,
    /// Names of the Pods that are to be deleted.
    pub(crate) delete: Vec<String>,
    /// Status of the Deployment as it is before that step.
    pub(crate) status: DeploymentStatus,
    /// Time at which the status changes without a change of a Pod.
    pub(crate) next: Option<Timestamp>,
}

/// Decides the next step of a Deployment with a template of this hash, which owns these Pods.
pub(crate) fn roll_out(deployment: &Deployment, hash: &str, pods: &[&Pod], now: Timestamp) -> RollOut {
    let spec = deployment.spec.as_ref();
    let desired = spec.and_then(|spec| spec.replicas).unwrap_or(1).max(0) as usize;
    let wait = SignedDuration::from_secs(spec.and_then(|spec| spec.min_ready_seconds).unwrap_or_default().into());
    let pods = pods.iter().copied();
    let (over, others): (Vec<&Pod>, Vec<&Pod>) = pods.partition(|pod| is_over(pod) && !is_deleting(pod));
    let (leaving, active): (Vec<&Pod>, Vec<&Pod>) = others.into_iter().partition(|pod| is_deleting(pod));
    let (mut current, mut old): (Vec<&Pod>, Vec<&Pod>) = active.into_iter().partition(|pod| hash_of(pod) == hash);
    let is_available = |pod: &&Pod| ready_since(pod).is_some_and(|since| since + wait <= now);
    let count = |pods: &[&Pod]| pods.iter().filter(|pod| is_available(pod)).count();

    let counts = Counts {
        desired,
        all: current.len() + old.len(),
        updated: current.len(),
        ready: current.iter().chain(&old).filter(|pod| ready_since(pod).is_some()).count(),
        available: count(&current) + count(&old),
        updated_available: count(&current),
    };
    let (status, deadline) = deployment_status::next(deployment, hash, counts, now);
    let ripe = current.iter().chain(&old).filter_map(|pod| Some(ready_since(pod)? + wait)).filter(|at| *at > now);
    let mut plan = RollOut { status, next: ripe.chain(deadline).min(), ..RollOut::default() };
    // Such a Pod never comes back.
    plan.delete.extend(over.iter().map(|pod| name(pod)));
    if is_deleting_deployment(deployment) || spec.is_some_and(|spec| spec.paused == Some(true)) {
        return plan;
    }

    for pods in [&mut current, &mut old] {
        pods.sort_by_key(|pod| deletion_rank(pod));
    }
    let surplus = current.len().saturating_sub(desired);
    plan.delete.extend(current.iter().take(surplus).map(|pod| name(pod)));
    let is_alone = is_alone(deployment);
    if is_alone || is_recreated(deployment) {
        plan.delete.extend(old.iter().map(|pod| name(pod)));
        // One that could not start beside the old ones has not the port that the program listens on.
        let stuck = current.iter().skip(surplus).filter(|_| is_alone && !old.is_empty());
        plan.delete.extend(stuck.map(|pod| name(pod)));
        if old.is_empty() && leaving.is_empty() {
            plan.create = desired.saturating_sub(current.len());
        }
        return plan;
    }
    let room = if old.is_empty() { desired } else { desired + 1 };
    let missing = desired.saturating_sub(current.len());
    plan.create = missing.min(room.saturating_sub(current.len() + old.len()));
    // An old Pod that is not ready serves nothing. It makes room for one that will.
    let (ready, unready): (Vec<&Pod>, Vec<&Pod>) = old.into_iter().partition(|pod| ready_since(pod).is_some());
    let is_replaced = missing > plan.create || !current.is_empty() || desired == 0;
    plan.delete.extend(unready.iter().filter(|_| is_replaced).map(|pod| name(pod)));
    let spare = counts.available.saturating_sub(desired);
    plan.delete.extend(ready.iter().take(spare).map(|pod| name(pod)));
    plan
}

/// Returns the hash by which a Pod names its template.
pub(crate) fn hash_of(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(TEMPLATE_HASH)).map_or("", String::as_str)
}

/// Reports whether the Deployment wants all old Pods to end before new ones start.
fn is_recreated(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate"))
}

/// Reports whether the Pods cannot run beside each other.
pub(crate) fn is_alone(deployment: &Deployment) -> bool {
    deployment.metadata.annotations.as_ref().is_some_and(|found| found.contains_key(ALONE))
}

fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Reports whether a Pod is being deleted.
pub(crate) fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn is_deleting_deployment(deployment: &Deployment) -> bool {
    deployment.metadata.deletion_timestamp.is_some()
}

/// Returns since when a Pod is ready; none if it is not.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|found| found.type_ == "Ready" && found.status == "True")?;
    Some(ready.last_transition_time.as_ref().map(|time| time.0).unwrap_or_default())
}

/// Ranks a Pod among those of which some are deleted, as the ReplicaSet controller does: not ready first, then by cost, then the newest.
fn deletion_rank(pod: &Pod) -> (bool, i64, Reverse<Timestamp>, String) {
    let annotations = pod.metadata.annotations.as_ref();
    let cost = annotations.and_then(|found| found.get(DELETION_COST)?.parse().ok()).unwrap_or_default();
    let ready = ready_since(pod);
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (ready.is_some(), cost, Reverse(ready.or(created).unwrap_or_default()), name(pod))
}

#[cfg(test)]
mod tests;
