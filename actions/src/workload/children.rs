//! Applies the children of a workload by server-side apply: created only if the name is free or the object belongs to the
//! workload, and applied again only if the manifest changed or the child drifted.
//!
//! Drift is read from `managedFields`: `owned` is a digest of the fields that the operator owns in the child, and the answer to
//! the last apply is the baseline. A child is never compared with what this build would render, so a new build, a mutating
//! webhook or a default causes no apply.

use std::{sync::Arc, time::Duration};

use crds::{ChildRecord, GROUP, MANAGED_BY, digest, reason, tool_server};
use machine::{ActionError, ApiError, StepNotes};
use meta::{Phase, PhasedObject};
use serde_json::{Value, json};

use super::{kind::WorkloadKind, replicas};
use crate::{
    applied::{is_record_of, stored_record},
    kind::Context,
    ports::{CachedChild, ChildKind, ChildManifest, ChildRef},
    render::{MANAGED_BY_LABEL, kind_label},
    stale::{refuse_stale, refuse_stale_repair},
};

/// Result of [`ensure`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ApplyOutcome {
    /// The child is as it should be; nothing was sent.
    Unchanged,
    /// The child was applied.
    Applied,
    /// The child is being deleted: it can be created again when it is gone.
    Deleting,
    /// Another client keeps changing the child: it is left alone for this long (exponential back-off).
    BackedOff(Duration),
}

impl ApplyOutcome {
    /// Reports whether the child is as it should be, and otherwise notes why it is not.
    pub(super) fn is_done(&self, notes: &StepNotes, child: &ChildRef) -> bool {
        match self {
            Self::Unchanged | Self::Applied => return true,
            Self::Deleting => {
                notes.waiting(reason::DELETING, format!("{child} is being deleted and will be created again"))
            }
            Self::BackedOff(left) => {
                notes.blocked(reason::CONTESTED, format!("another client keeps changing {child}; repairs back off"));
                notes.requeue_after(*left);
            }
        }
        false
    }
}

/// Difference between a child and its baseline.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Drift {
    /// As in the baseline.
    None,
    /// Another client changed fields that the operator owns.
    Changed,
    /// The child does not exist.
    Gone,
    /// The child is being deleted.
    Deleting,
}

/// Applies a child if its manifest changed or it drifted, and stores its record in the status of `next`.
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
    // A child with an unchanged manifest that differs from its record was changed by another client.
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
    let (applied, made) = match cx.client.apply(manifest, seen.as_ref().map(|seen| seen.uid.as_str())).await {
        // The known child is gone or replaced, or the name is taken: read it once past the informer cache, which holds only
        // children of the operator, and of these not one that it cannot decode.
        Err(ApiError::WrongUid(_)) => {
            let live = cx.client.get(child).await?;
            if let Some(live) = &live {
                check_owner(next, live)?;
                if live.deleting {
                    return Ok(ApplyOutcome::Deleting);
                }
            }
            // The manifest has the replicas for the Deployment as the cache held it, which may take them from their manager.
            let state = live.as_ref().and_then(|live| live.deployment.as_ref());
            let body = with_replicas(manifest, replicas::applied_replicas(next, state));
            let manifest = ChildManifest { child: child.clone(), body: body.unwrap_or_else(|| manifest.body.clone()) };
            let uid = live.as_ref().map(|live| live.uid.as_str());
            (cx.client.apply(&manifest, uid).await?, live.is_none())
        }
        answer => (answer?, seen.is_none()),
    };
    cx.notes.fact("applied", child.to_string());
    let record = ChildRecord {
        kind: child.kind.as_str().to_owned(),
        name: child.name.clone(),
        uid: applied.uid.clone(),
        inputs,
        owned: applied.owned.clone().unwrap_or_default(),
        replicas: replicas_in_force(cx, next, manifest, made),
    };
    cx.applied_records.applied(next.uid(), child, record.clone());
    if repair {
        cx.applied_records.repaired(next.uid(), child, cx.clock.elapsed());
    }
    store_record(next, record);
    Ok(ApplyOutcome::Applied)
}

/// Returns the digest of a child's manifest. That of a Deployment leaves out `replicas`, which changes alone.
fn inputs(manifest: &ChildManifest) -> String {
    match with_replicas(manifest, None) {
        Some(body) => digest::digest(&body),
        None => digest::digest(&manifest.body),
    }
}

/// Reports whether a child was last applied from this manifest. Records of older builds have the digest of the Deployment with
/// `replicas`.
fn is_made_from(record: &ChildRecord, manifest: &ChildManifest, inputs: &str) -> bool {
    let older = || with_replicas(manifest, record.replicas).map(|body| digest::digest(&body));
    record.inputs == inputs || older().is_some_and(|older| record.inputs == older)
}

/// Returns the body of a Deployment with this number of replicas; `None`: the child is no Deployment.
fn with_replicas(manifest: &ChildManifest, replicas: Option<i32>) -> Option<Value> {
    let mut body = (manifest.child.kind == ChildKind::Deployment).then(|| manifest.body.clone())?;
    if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("replicas");
        spec.extend(replicas.map(|replicas| ("replicas".to_owned(), json!(replicas))));
    }
    Some(body)
}

/// Returns the user's number that is in force for a Deployment: the one it is created with, else the one that was applied last,
/// if that is known.
fn replicas_in_force<K: WorkloadKind>(cx: &Context, cr: &K, manifest: &ChildManifest, made: bool) -> Option<i32> {
    let known = cx
        .applied_records
        .record(cr.uid(), records(cr), &manifest.child)
        .and_then(|record| record.replicas)
        .filter(|_| !made);
    (manifest.child.kind == ChildKind::Deployment).then(|| known.unwrap_or(cr.replicas()))
}

/// Reports whether the apply of the whole Deployment owns `replicas` exactly if the manifest has them: the digest of the owned
/// fields leaves them out.
fn carries_replicas_as(seen: &CachedChild, manifest: &ChildManifest) -> bool {
    let carries = manifest.body.pointer("/spec/replicas").is_some();
    seen.deployment.as_ref().is_none_or(|deployment| deployment.replicas_managers.operator == carries)
}

/// Applies the replicas of the Deployment alone (`None`: leaves them to their other manager), if that is due, and stores the
/// user's number that is then in force in the status of `next`, which is to follow `cr`.
pub(super) async fn scale<K: WorkloadKind>(cx: &Context, cr: &K, next: &mut K) -> Result<(), ActionError> {
    let child = cr.deployment();
    let Some(seen) = cx.cache.child(&child).filter(|seen| !seen.deleting && is_owned(cr, seen)) else { return Ok(()) };
    let (Some(state), Some(record)) = (&seen.deployment, cx.applied_records.record(cr.uid(), records(cr), &child))
    else {
        return Ok(());
    };
    let Some(number) = replicas::due_change(cr, state, Some(&record)) else { return Ok(()) };
    // The user's number is unchanged: another client changed that of the Deployment.
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

/// Returns the drift of a child from its baseline.
pub(super) fn drift(seen: Option<&CachedChild>, record: &ChildRecord) -> Drift {
    match seen {
        None => Drift::Gone,
        Some(seen) if seen.deleting => Drift::Deleting,
        // A client that created the child anew owns all of its fields, so the digest shows that too.
        Some(seen) if seen.owned.as_deref() == Some(record.owned.as_str()) => Drift::None,
        Some(_) => Drift::Changed,
    }
}

/// Reports whether a child belongs to the object: controlled by it or by an earlier object of its name, or an orphan with its
/// labels.
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

/// Removes children that are not wanted any more, from the status and, if they belong to the workload, from the cluster: those
/// that the status names, and those that were applied besides. The status write that was to name them may have been lost, in a
/// crash or by an edit of the spec.
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
        delete(cx, next, &seen).await?;
    }
    Ok(())
}

/// Removes one child that is not wanted any more, from the status and, if it belongs to the workload, from the cluster.
pub(super) async fn remove_child<K: WorkloadKind>(
    cx: &Context,
    next: &mut K,
    child: &ChildRef,
) -> Result<(), ActionError> {
    delete_child(cx, next, child).await?;
    if stored_record(records(next), child).is_some() {
        next.status_mut().children.retain(|record| !is_record_of(record, child));
    }
    Ok(())
}

/// Deletes one child in the cluster, if it is there and belongs to the workload.
pub(super) async fn delete_child<K: WorkloadKind>(cx: &Context, cr: &K, child: &ChildRef) -> Result<(), ActionError> {
    match cx.cache.child(child).filter(|seen| !seen.deleting && is_owned(cr, seen)) {
        Some(seen) => delete(cx, cr, &seen).await,
        None => Ok(()),
    }
}

async fn delete<K: WorkloadKind>(cx: &Context, next: &K, seen: &CachedChild) -> Result<(), ActionError> {
    refuse_stale(cx, next).await?;
    cx.client.delete(&seen.child, &seen.uid).await?;
    cx.applied_records.removed(next.uid(), &seen.child);
    cx.notes.fact("removed", seen.child.to_string());
    Ok(())
}

/// Returns the applied children that the status does not name. The ConfigMap that discovery made of a server's tools is none of
/// them.
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

/// Restores records that no status holds yet in the status of `next`: the write that was to store them failed.
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

/// Stores the uid of a Service that was created again, because gateways send requests only to the Pods of the Service with this
/// uid. Returns whether the uid is new.
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

/// Returns the kind of the child that a record names, if this build knows it.
pub(super) fn kind_of(record: &ChildRecord) -> Option<ChildKind> {
    ChildKind::ALL.iter().copied().find(|kind| kind.as_str() == record.kind)
}

/// Reports whether the user deletes the object with its children orphaned.
pub(super) fn is_orphaning<K: WorkloadKind>(cr: &K) -> bool {
    cr.meta().finalizers.iter().flatten().any(|finalizer| finalizer == "orphan")
}

/// Returns the records of the children in the status.
pub(super) fn records<K: WorkloadKind>(cr: &K) -> &[ChildRecord] {
    cr.status().map(|status| status.children.as_slice()).unwrap_or_default()
}

fn store_record<K: WorkloadKind>(next: &mut K, record: ChildRecord) {
    let settled = next.phase().is_some_and(Phase::is_settled);
    let children = &mut next.status_mut().children;
    match children.iter_mut().find(|found| found.kind == record.kind && found.name == record.name) {
        // A child that was created again is as before: its new uid alone is not worth a write.
        Some(found)
            if settled
                && (&found.inputs, &found.owned, found.replicas)
                    == (&record.inputs, &record.owned, record.replicas) => {}
        Some(found) => *found = record,
        None => children.push(record),
    }
}

/// Returns an error if the object does not belong to `cr`: children of another owner are never changed.
pub(crate) fn check_owner<K: PhasedObject>(cr: &K, seen: &CachedChild) -> Result<(), ActionError> {
    if is_owned(cr, seen) {
        return Ok(());
    }
    let owner = seen.controller.as_ref().map_or_else(
        || "is not managed by Récif".to_owned(),
        |controller| format!("belongs to {}/{}", controller.kind, controller.name),
    );
    let message = format!("{} exists and {owner}", seen.child);
    Err(ActionError::terminal(reason::NAME_CONFLICT, message))
}
