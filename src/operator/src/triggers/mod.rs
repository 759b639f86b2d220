//! Predicates that decide which change of an object enqueues which objects: pure functions of the version known before and the version
//! known after the change.
//!
//! An object is not enqueued by its own status: the operator writes it, and after a transition the driver requeues the object itself. The
//! fan-out to the objects that refer to this one depends on what a reference is judged by, and on nothing else, so that an annotation on a
//! Tool that a thousand agents use costs nothing.

use actions::ports::{CachedChild, DeploymentState, ReplicasManagers, WorkloadPod};
use cluster::{Change, ChangeSource, cache::workload_label};
use crds::GROUP;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::{Key, PhasedObject, condition_type};

/// Reports whether a change enqueues the object itself.
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

/// Reports whether a change enqueues the objects that refer to this one.
pub fn triggers_referrers<K: PhasedObject>(change: &Change<K>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    referrer_view(old.as_ref()) != referrer_view(new.as_ref())
}

/// Returns what a reference is judged by: identity and spec, whether the object settled or is available, and what it publishes. The address
/// of a workload is written with a transition.
fn referrer_view<K: PhasedObject>(object: &K) -> impl PartialEq + '_ {
    let status = object.common();
    let condition = |type_: &str| status.and_then(|status| status.condition(type_));
    let (ready, available) = (condition(condition_type::READY), condition(condition_type::AVAILABLE));
    (
        (object.uid(), object.generation()),
        status.map(|status| (status.phase.as_deref(), status.observed_generation)),
        ready.map(|ready| (ready.status.as_str(), ready.reason.as_str(), ready.message.as_str())),
        available.map(|available| available.status.as_str()),
        object.published_digests(),
    )
}

/// Reports whether a change of a Secret or ConfigMap enqueues the objects that refer to it.
pub fn triggers_readers(change: &Change<CachedChild>) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.uid != new.uid || old.data != new.data,
        _ => true,
    }
}

/// Reports whether a change of a child enqueues its owner.
pub fn triggers_owner(change: &Change<CachedChild>) -> bool {
    match (&change.old, &change.new, change.source) {
        // The step that applied it has the response; only what happened besides the apply is new.
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

/// Returns a Deployment's state, without what an apply of ours changes in it.
fn progress(child: &CachedChild) -> Option<DeploymentState> {
    let state = child.deployment.clone()?;
    // The scaler's ownership of `replicas` stays, because the operator has its turn after the scaler.
    let replicas_by = ReplicasManagers { scaler: state.replicas_managers.scaler, ..ReplicasManagers::default() };
    Some(DeploymentState { desired: 0, replicas_managers: replicas_by, ..state })
}

/// Reports whether a change of a Pod enqueues its workload.
pub fn triggers_workload(change: &Change<WorkloadPod>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    let judged =
        |pod: &WorkloadPod| (pod.uid.clone(), pod.ready, pod.terminating, pod.problem.clone(), pod.labels.clone());
    judged(old) != judged(new)
}

/// Returns the objects of this kind that a child belongs or belonged to: by controller reference, else by label.
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

/// Returns the workloads of this kind that a Pod belongs or belonged to.
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
mod tests;
