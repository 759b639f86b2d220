//! Children: made only where the name is free or the object is ours, and applied again only when there is a reason.
//!
//! Drift is read from `managedFields`: `owned` is a digest of what we own in the child, the answer to our apply is the
//! baseline. A child is never compared with what this build would render, so a new build, a webhook or a normal form
//! costs nothing.

use std::{sync::Arc, time::Duration};

use crds::{ChildRecord, GROUP, MANAGED_BY, digest, tool_server};
use machine::{ActionError, ApiError, StepNotes};
use meta::{Phase, PhasedObject};
use serde_json::{Value, json};

use super::{WorkloadKind, replicas};
use crate::{
    applied::{is_record_of, stored_record},
    kind::Context,
    ports::{CachedChild, ChildKind, ChildManifest, ChildRef},
    render::{MANAGED_BY_LABEL, kind_label},
    stale::{refuse_stale, refuse_stale_repair},
};

/// What became of a child.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApplyOutcome {
    /// As it should be; nothing was sent.
    Unchanged,
    /// Applied.
    Applied,
    /// It is being deleted: it can be made again when it is gone.
    Deleting,
    /// Somebody keeps changing it: it is left alone for this long.
    BackedOff(Duration),
}

impl ApplyOutcome {
    /// Notes why the child is not yet as it should be; whether it is.
    pub(super) fn is_done(&self, notes: &StepNotes, child: &ChildRef) -> bool {
        match self {
            Self::Unchanged | Self::Applied => return true,
            Self::Deleting => notes.waiting("Deleting", format!("{child} is being deleted and will be made again")),
            Self::BackedOff(left) => {
                notes.blocked("Contested", format!("somebody keeps changing {child}; it is put back ever more rarely"));
                notes.requeue_after(*left);
            }
        }
        false
    }
}

/// A child that somebody changed or deleted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Drift {
    /// As the baseline says.
    None,
    /// Somebody changed what we own.
    Changed,
    /// It is not there.
    Gone,
    /// It is being deleted.
    Deleting,
}

/// Brings a child to what the manifest says, and its record into the status of `next`.
pub(super) async fn ensure<K: WorkloadKind>(
    cx: &Context,
    next: &mut K,
    manifest: &ChildManifest,
) -> Result<ApplyOutcome, ActionError> {
    let child = &manifest.child;
    let inputs = inputs(manifest);
    let seen = cx.cache.child(child);
    if let Some(seen) = &seen {
        check_owner(next, seen)?;
        if seen.deleting {
            return Ok(ApplyOutcome::Deleting);
        }
    }
    // What is still wanted as it was applied, and is not so, was changed by somebody.
    let record = cx
        .applied_records
        .record(next.uid(), records(next), child)
        .filter(|record| is_made_from(record, manifest, &inputs));
    let repair = record.is_some();
    if let Some(record) = record {
        let as_applied =
            |seen: &&CachedChild| drift(Some(*seen), &record) == Drift::None && carries_replicas_as(seen, manifest);
        if let Some(seen) = seen.as_deref().filter(as_applied) {
            store_record(next, ChildRecord { uid: seen.uid.clone(), ..record });
            return Ok(ApplyOutcome::Unchanged);
        }
        let left = cx.applied_records.repair_backoff(next.uid(), child, cx.clock.elapsed());
        if !left.is_zero() {
            return Ok(ApplyOutcome::BackedOff(left));
        }
    }
    refuse_stale_repair(cx, next, repair).await?;
    let applied = match cx.client.apply(manifest, seen.as_ref().map(|seen| seen.uid.as_str())).await {
        // The child we knew is gone or another one, or the name is taken: look, once, past the cache, which holds our own
        // children only.
        Err(ApiError::WrongUid(_)) => {
            let seen = cx.client.get(child).await?;
            if let Some(seen) = &seen {
                check_owner(next, seen)?;
                if seen.deleting {
                    return Ok(ApplyOutcome::Deleting);
                }
            }
            cx.client.apply(manifest, seen.as_ref().map(|seen| seen.uid.as_str())).await?
        }
        answer => answer?,
    };
    cx.notes.fact("applied", child.to_string());
    let record = ChildRecord {
        kind: child.kind.as_str().to_owned(),
        name: child.name.clone(),
        uid: applied.uid.clone(),
        inputs,
        owned: applied.owned.clone().unwrap_or_default(),
        replicas: replicas_in_force(cx, next, manifest, seen.is_none()),
    };
    cx.applied_records.applied(next.uid(), child, record.clone());
    if repair {
        cx.applied_records.repaired(next.uid(), child, cx.clock.elapsed());
    }
    store_record(next, record);
    Ok(ApplyOutcome::Applied)
}

/// Digest of what a child is made from. Of a Deployment without its number, which changes alone.
fn inputs(manifest: &ChildManifest) -> String {
    match with_replicas(manifest, None) {
        Some(body) => digest::digest(&body),
        None => digest::digest(&manifest.body),
    }
}

/// Whether a child was last made from this. The records of older builds are of the Deployment with its number.
fn is_made_from(record: &ChildRecord, manifest: &ChildManifest, inputs: &str) -> bool {
    let older = || with_replicas(manifest, record.replicas).map(|body| digest::digest(&body));
    record.inputs == inputs || older().is_some_and(|older| record.inputs == older)
}

/// The body of a Deployment with this number; `None`: it is none.
fn with_replicas(manifest: &ChildManifest, replicas: Option<i32>) -> Option<Value> {
    let mut body = (manifest.child.kind == ChildKind::Deployment).then(|| manifest.body.clone())?;
    if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("replicas");
        spec.extend(replicas.map(|replicas| ("replicas".to_owned(), json!(replicas))));
    }
    Some(body)
}

/// The user's number that is in force for a Deployment: the one it is made with, else the one that was applied last, if that is
/// known.
fn replicas_in_force<K: WorkloadKind>(cx: &Context, cr: &K, manifest: &ChildManifest, made: bool) -> Option<i32> {
    let known = cx
        .applied_records
        .record(cr.uid(), records(cr), &manifest.child)
        .and_then(|record| record.replicas)
        .filter(|_| !made);
    (manifest.child.kind == ChildKind::Deployment).then(|| known.unwrap_or(cr.replicas()))
}

/// Whether the apply of the whole Deployment has `replicas` where the manifest has them; what we own is digested without them.
fn carries_replicas_as(seen: &CachedChild, manifest: &ChildManifest) -> bool {
    let carries = manifest.body.pointer("/spec/replicas").is_some();
    seen.deployment.as_ref().is_none_or(|deployment| deployment.replicas_managers.operator == carries)
}

/// Applies the replicas of the Deployment alone (`None`: leaves them to whoever else has them), if that is due, and brings the
/// user's number that is in force then into the status of `next`, which is to follow `cr`.
pub(super) async fn scale<K: WorkloadKind>(cx: &Context, cr: &K, next: &mut K) -> Result<(), ActionError> {
    let child = cr.deployment();
    let Some(seen) = cx.cache.child(&child).filter(|seen| !seen.deleting && is_owned(cr, seen)) else { return Ok(()) };
    let (Some(state), Some(record)) = (&seen.deployment, cx.applied_records.record(cr.uid(), records(cr), &child))
    else {
        return Ok(());
    };
    let Some(number) = replicas::due_change(cr, state, Some(&record)) else { return Ok(()) };
    // The user's number did not change: a stranger changed that of the Deployment.
    let repair = record.replicas == Some(cr.replicas()) && number.is_some();
    if repair {
        let left = cx.applied_records.repair_backoff(next.uid(), &child, cx.clock.elapsed());
        if !left.is_zero() {
            ApplyOutcome::BackedOff(left).is_done(&cx.notes, &child);
            return Ok(());
        }
    }
    refuse_stale(cx, cr).await?;
    cx.client.set_replicas(&child, &seen.uid, number).await?;
    if repair {
        cx.applied_records.repaired(next.uid(), &child, cx.clock.elapsed());
    }
    cx.notes.fact("applied", format!("replicas of {child}"));
    let record = ChildRecord { replicas: Some(next.replicas()), ..record };
    cx.applied_records.applied(next.uid(), &child, record.clone());
    store_record(next, record);
    Ok(())
}

/// How a child differs from its baseline.
pub(super) fn drift(seen: Option<&CachedChild>, record: &ChildRecord) -> Drift {
    match seen {
        None => Drift::Gone,
        Some(seen) if seen.deleting => Drift::Deleting,
        // Whoever made a child anew without us owns all of it, so the digest tells that too.
        Some(seen) if seen.owned.as_deref() == Some(record.owned.as_str()) => Drift::None,
        Some(_) => Drift::Changed,
    }
}

/// Whether a child is ours: controlled by us or by a predecessor of our name, or an orphan with our labels.
pub(super) fn is_owned<K: PhasedObject>(cr: &K, seen: &CachedChild) -> bool {
    let name = cr.meta().name.as_deref().unwrap_or_default();
    match &seen.controller {
        Some(controller) if controller.uid == cr.uid() => true,
        Some(controller) => controller.group == GROUP && controller.kind == K::KIND && controller.name == name,
        None => {
            let label = |key: &str| seen.labels.get(key).map(String::as_str);
            label(MANAGED_BY_LABEL) == Some(MANAGED_BY) && label(&kind_label(K::KIND)) == Some(name)
        }
    }
}

/// Removes from the status, and from the cluster where it is ours, what is no longer wanted: what the status names, and what
/// we applied besides. The status write that was to name it may have been lost, to a crash or to an edit of the spec.
pub(super) async fn remove_unwanted<K: WorkloadKind>(
    cx: &Context,
    next: &mut K,
    wanted: &[&ChildManifest],
) -> Result<(), ActionError> {
    let namespace = next.meta().namespace.clone().unwrap_or_default();
    let records = std::mem::take(&mut next.status_mut().children);
    let (kept, surplus): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| wanted.iter().any(|manifest| is_record_of(record, &manifest.child)));
    next.status_mut().children = kept;
    let named = |record: ChildRecord| {
        let kind = kind_of(&record)?;
        cx.cache.child(&ChildRef { kind, namespace: namespace.clone(), name: record.name })
    };
    let mut surplus: Vec<_> = surplus.into_iter().filter_map(named).filter(|seen| is_owned(next, seen)).collect();
    for seen in unrecorded(cx, next) {
        if !wanted.iter().any(|manifest| manifest.child == seen.child) && !surplus.contains(&seen) {
            surplus.push(seen);
        }
    }
    for seen in surplus.into_iter().filter(|seen| !seen.deleting) {
        refuse_stale(cx, next).await?;
        cx.client.delete(&seen.child, &seen.uid).await?;
        cx.applied_records.removed(next.uid(), &seen.child);
        cx.notes.fact("removed", seen.child.to_string());
    }
    Ok(())
}

/// Children that we applied and that the status does not name. What a discovery made of a server's tools is not the workload's.
pub(super) fn unrecorded<K: WorkloadKind>(cx: &Context, cr: &K) -> Vec<Arc<CachedChild>> {
    let key = cr.key();
    let tools = tool_server::tools_config_map(K::KIND, &key.name);
    let mut children = cx.cache.children(&key.namespace, cr.uid());
    children.retain(|seen| {
        seen.owned.is_some()
            && !seen.deleting
            && seen.child.name != tools
            && stored_record(records(cr), &seen.child).is_none()
    });
    children
}

/// Brings records that no status holds yet into the status of `next`: the write that was to carry them failed.
pub(super) fn restore_records<K: WorkloadKind>(cx: &Context, next: &mut K) {
    let namespace = next.meta().namespace.clone().unwrap_or_default();
    let kept = next.status().map(|status| status.children.clone()).unwrap_or_default();
    for record in kept {
        let Some(kind) = kind_of(&record) else { continue };
        let child = ChildRef { kind, namespace: namespace.clone(), name: record.name };
        if let Some(record) = cx.applied_records.record(next.uid(), records(next), &child) {
            store_record(next, record);
        }
    }
}

/// Takes along the uid of a Service that was made again: gateways send requests only to Pods of the Service with this uid.
/// Whether there was a new one.
pub(super) fn renew_service<K: WorkloadKind>(cx: &Context, next: &mut K) -> bool {
    let key = next.key();
    let service = ChildRef { kind: ChildKind::Service, namespace: key.namespace, name: key.name };
    let Some(seen) = cx.cache.child(&service).filter(|seen| !seen.deleting && is_owned(next, seen)) else {
        return false;
    };
    if stored_record(records(next), &service).is_none_or(|record| record.uid == seen.uid) {
        return false;
    }
    let records = next.status_mut().children.iter_mut();
    records.filter(|record| is_record_of(record, &service)).for_each(|record| record.uid.clone_from(&seen.uid));
    true
}

/// The kind of the child that a record speaks of, if this build knows it.
pub(super) fn kind_of(record: &ChildRecord) -> Option<ChildKind> {
    ChildKind::ALL.iter().copied().find(|kind| kind.as_str() == record.kind)
}

/// Whether the user asked that deleting the object leaves its children alone.
pub(super) fn is_orphaning<K: WorkloadKind>(cr: &K) -> bool {
    cr.meta().finalizers.iter().flatten().any(|finalizer| finalizer == "orphan")
}

/// The records of the children in the status.
pub(super) fn records<K: WorkloadKind>(cr: &K) -> &[ChildRecord] {
    cr.status().map(|status| status.children.as_slice()).unwrap_or_default()
}

fn store_record<K: WorkloadKind>(next: &mut K, record: ChildRecord) {
    let settled = next.phase().is_some_and(Phase::is_settled);
    let children = &mut next.status_mut().children;
    match children.iter_mut().find(|found| found.kind == record.kind && found.name == record.name) {
        // A child that was made again is as it was: its new uid alone is not worth a write.
        Some(found)
            if settled
                && (&found.inputs, &found.owned, found.replicas)
                    == (&record.inputs, &record.owned, record.replicas) => {}
        Some(found) => *found = record,
        None => children.push(record),
    }
}

/// A child of somebody else stays as it is.
pub(crate) fn check_owner<K: PhasedObject>(cr: &K, seen: &CachedChild) -> Result<(), ActionError> {
    if is_owned(cr, seen) {
        return Ok(());
    }
    let owner = seen.controller.as_ref().map_or_else(
        || "is not managed by Récif".to_owned(),
        |controller| format!("belongs to {}/{}", controller.kind, controller.name),
    );
    let message = format!("{} exists and {owner}", seen.child);
    Err(ActionError::terminal("NameConflict", message))
}
