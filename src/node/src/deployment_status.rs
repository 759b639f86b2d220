//! The status of a Deployment, as its controller writes it: counts, and the conditions `Available` and `Progressing`. Pure.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// Pods of a Deployment that are not being deleted, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Wanted.
    pub(crate) desired: usize,
    /// Of any template.
    pub(crate) all: usize,
    /// Of the current template.
    pub(crate) updated: usize,
    /// Ready.
    pub(crate) ready: usize,
    /// Ready for as long as the Deployment asks.
    pub(crate) available: usize,
    /// Such ones of the current template.
    pub(crate) updated_available: usize,
}

/// Returns the next status, and the time at which the rollout exceeds its deadline, if it can.
pub(crate) fn next(
    deployment: &Deployment,
    hash: &str,
    counts: Counts,
    now: Timestamp,
) -> (DeploymentStatus, Option<Timestamp>) {
    let old = deployment.status.clone().unwrap_or_default();
    let known = |type_: &str| old.conditions.iter().flatten().find(|found| found.type_ == type_);
    let some = |count: usize| Some(i32::try_from(count).unwrap_or(i32::MAX)).filter(|count| *count > 0);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(counts.all),
        updated_replicas: some(counts.updated),
        ready_replicas: some(counts.ready),
        available_replicas: some(counts.available),
        unavailable_replicas: some(counts.desired.max(counts.all).saturating_sub(counts.available)),
        ..DeploymentStatus::default()
    };
    let (available, reason, message) = match counts.available >= counts.desired {
        true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
        false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
    };
    let available = condition("Available", available, reason, message.to_owned());
    let set = format!("{}-{hash}", deployment.metadata.name.clone().unwrap_or_default());
    let (progressing, deadline) = progress(deployment, &set, &old, counts, known("Progressing"), now);
    let conditions = [available, progressing].map(|new| dated(new, known, now));
    status.conditions = Some(conditions.to_vec());
    (status, deadline)
}

/// Returns the condition `Progressing`, and when the deadline is exceeded.
fn progress(
    deployment: &Deployment,
    set: &str,
    old: &DeploymentStatus,
    counts: Counts,
    known: Option<&DeploymentCondition>,
    now: Timestamp,
) -> (DeploymentCondition, Option<Timestamp>) {
    let is_of_set = |found: &&DeploymentCondition| found.message.as_deref().is_some_and(|text| text.contains(set));
    let known = known.filter(is_of_set);
    let is_complete =
        counts.updated == counts.desired && counts.all == counts.desired && counts.updated_available == counts.desired;
    // A rollout that was complete stays so, whatever becomes of its Pods.
    let was_complete = known.is_some_and(|found| found.reason.as_deref() == Some("NewReplicaSetAvailable"));
    if is_complete || was_complete {
        let message = format!("ReplicaSet \"{set}\" has successfully progressed.");
        return (condition("Progressing", "True", "NewReplicaSetAvailable", message), None);
    }
    let grew = |known: Option<i32>, count: usize| count > known.unwrap_or_default() as usize;
    let others = old.replicas.unwrap_or_default() - old.updated_replicas.unwrap_or_default();
    let has_moved = grew(old.updated_replicas, counts.updated)
        || grew(old.ready_replicas, counts.ready)
        || grew(old.available_replicas, counts.available)
        || others > counts.all.saturating_sub(counts.updated) as i32;
    let since = known.and_then(|found| found.last_update_time.as_ref()).map(|time| time.0).filter(|_| !has_moved);
    let seconds = deployment.spec.as_ref().and_then(|spec| spec.progress_deadline_seconds).unwrap_or(600);
    let deadline = since.unwrap_or(now) + SignedDuration::from_secs(seconds.into());
    let has_given_up = known.is_some_and(|found| found.status == "False") && !has_moved;
    if has_given_up || deadline <= now {
        let message = format!("ReplicaSet \"{set}\" has timed out progressing.");
        return (condition("Progressing", "False", "ProgressDeadlineExceeded", message), None);
    }
    let (reason, message) = match known {
        None => ("NewReplicaSetCreated", format!("Created new replica set \"{set}\"")),
        Some(_) if !has_moved => return (known.cloned().unwrap_or_default(), Some(deadline)),
        Some(_) => ("ReplicaSetUpdated", format!("ReplicaSet \"{set}\" is progressing.")),
    };
    let mut progressing = condition("Progressing", "True", reason, message);
    progressing.last_update_time = Some(Time(now));
    (progressing, Some(deadline))
}

/// Returns the condition of a Deployment whose Pods cannot be made.
pub(crate) fn failure(message: String, old: Option<&DeploymentStatus>, now: Timestamp) -> DeploymentCondition {
    let conditions = || old.into_iter().flat_map(|old| old.conditions.iter().flatten());
    let known = |type_: &str| conditions().find(|found| found.type_ == type_);
    dated(condition("ReplicaFailure", "True", "FailedCreate", message), known, now)
}

fn condition(type_: &str, status: &str, reason: &str, message: String) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        ..DeploymentCondition::default()
    }
}

/// Fills in the times of a condition: those of the known one where nothing changed.
fn dated<'a>(
    mut new: DeploymentCondition,
    known: impl Fn(&str) -> Option<&'a DeploymentCondition>,
    now: Timestamp,
) -> DeploymentCondition {
    let old = known(&new.type_);
    let same = old.filter(|old| old.status == new.status && old.reason == new.reason && old.message == new.message);
    let kept = old.filter(|old| old.status == new.status).and_then(|old| old.last_transition_time.clone());
    new.last_transition_time = kept.or(Some(Time(now)));
    if new.last_update_time.is_none() {
        new.last_update_time = same.and_then(|old| old.last_update_time.clone()).or(Some(Time(now)));
    }
    new
}
