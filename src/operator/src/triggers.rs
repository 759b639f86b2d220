//! Which change concerns whom: pure functions of what was known before and what is known now.
//!
//! An object is not woken by its status: that one is written by us, and after a move the driver queues the object
//! itself. Who refers to an object is woken by what a reference is judged by, and by nothing else of it, so that an
//! annotation on a Tool that a thousand agents use costs nothing.

use actions::ports::{CachedChild, DeploymentState, ReplicasManagers, WorkloadPod};
use cluster::{Change, ChangeSource, cache::workload_label};
use crds::GROUP;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::{Key, PhasedObject};

/// Whether the object itself is to be looked at.
pub fn triggers_itself<K: PhasedObject>(change: &Change<K>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    let (old, new) = (old.meta(), new.meta());
    change.source == ChangeSource::Restored
        || old.uid != new.uid
        || old.generation != new.generation
        || old.deletion_timestamp != new.deletion_timestamp
        || old.labels != new.labels
        || old.finalizers != new.finalizers
        || old.owner_references != new.owner_references
        || !our_annotations(old).eq(our_annotations(new))
}

fn our_annotations(meta: &ObjectMeta) -> impl Iterator<Item = (&String, &String)> {
    meta.annotations.iter().flatten().filter(|(name, _)| name.starts_with("recif.dev/"))
}

/// Whether those that refer to the object are to be looked at.
pub fn triggers_referrers<K: PhasedObject>(change: &Change<K>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    referrer_view(old.as_ref()) != referrer_view(new.as_ref())
}

/// What a reference is judged by: identity and spec, whether it settled or is available, and what it says of itself. The
/// address of a workload is written with a move.
fn referrer_view<K: PhasedObject>(object: &K) -> impl PartialEq + '_ {
    let status = object.common();
    let condition = |type_: &str| status.and_then(|it| it.conditions.iter().find(|found| found.type_ == type_));
    let (ready, available) = (condition("Ready"), condition("Available"));
    (
        (object.uid(), object.generation()),
        status.map(|status| (status.phase.as_deref(), status.observed_generation)),
        ready.map(|ready| (ready.status.as_str(), ready.reason.as_str(), ready.message.as_str())),
        available.map(|available| available.status.as_str()),
        object.published_digest(),
    )
}

/// Whether those that refer to this Secret or ConfigMap are to be looked at.
pub fn triggers_readers(change: &Change<CachedChild>) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.uid != new.uid || old.data != new.data,
        _ => true,
    }
}

/// Whether the owner of a child is to be looked at.
pub fn triggers_owner(change: &Change<CachedChild>) -> bool {
    match (&change.old, &change.new, change.source) {
        // The step that applied it has the answer; only what happened beside the apply is news.
        (None, Some(_), ChangeSource::Write) => false,
        (Some(old), Some(new), ChangeSource::Write) => {
            old.uid != new.uid || old.deleting != new.deleting || progress(old) != progress(new)
        }
        (Some(old), Some(new), ChangeSource::Watch) => {
            let newer = CachedChild { resource_version: old.resource_version, ..new.as_ref().clone() };
            **old != newer
        }
        _ => true,
    }
}

/// A Deployment's state, without what an apply of ours changes in it.
fn progress(child: &CachedChild) -> Option<DeploymentState> {
    let state = child.deployment.clone()?;
    // The operator has its turn when the scaler has had its own.
    let replicas_by = ReplicasManagers { scaler: state.replicas_managers.scaler, ..ReplicasManagers::default() };
    Some(DeploymentState { desired: 0, replicas_managers: replicas_by, ..state })
}

/// Whether the workload of a Pod is to be looked at.
pub fn triggers_workload(change: &Change<WorkloadPod>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    let judged =
        |pod: &WorkloadPod| (pod.uid.clone(), pod.ready, pod.terminating, pod.problem.clone(), pod.labels.clone());
    judged(old) != judged(new)
}

/// The objects of this kind that a child belongs or belonged to: by controller reference, else by label.
pub fn owners<'a>(kind: &'static str, change: &'a Change<CachedChild>) -> impl Iterator<Item = Key> + 'a {
    let owner = move |child: &CachedChild| {
        let name = match &child.controller {
            Some(controller) if controller.group == GROUP && controller.kind == kind => Some(&controller.name),
            Some(_) => None,
            None => child.labels.get(&workload_label(kind)),
        };
        name.map(|name| Key::new(&change.key.namespace, name))
    };
    distinct(change.old.as_deref().and_then(owner), change.new.as_deref().and_then(owner))
}

/// The workloads of this kind that a Pod belongs or belonged to.
pub fn workloads<'a>(kind: &'static str, change: &'a Change<WorkloadPod>) -> impl Iterator<Item = Key> + 'a {
    let workload = move |pod: &WorkloadPod| {
        let name = pod.labels.get(&workload_label(kind))?;
        Some(Key::new(&change.key.namespace, name))
    };
    distinct(change.old.as_deref().and_then(workload), change.new.as_deref().and_then(workload))
}

fn distinct(old: Option<Key>, new: Option<Key>) -> impl Iterator<Item = Key> {
    let old = if old == new { None } else { old };
    old.into_iter().chain(new)
}

#[cfg(test)]
#[path = "wake_tests.rs"]
mod tests;
