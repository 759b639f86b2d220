//! Children: made only where the name is free or the object is ours, and applied again only when there is a reason.
//!
//! Drift is read from `managedFields`: `owned` is a digest of what we own in the child, the answer to our apply is the
//! baseline. A child is never compared with what this build would render, so a new build, a webhook or a normal form
//! costs nothing.

use std::time::Duration;

use crds::{ChildRecord, GROUP, MANAGED_BY, Phase, digest};

use super::Workload;
use crate::{
    machine::{ActionError, ApiError, Context, Machine, Notes},
    ports::{Child, ChildKind, ChildRef, Manifest},
    render::{MANAGED_BY_LABEL, kind_label},
};

/// What became of a child.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ensured {
    /// As it should be; nothing was sent.
    Kept,
    /// Applied.
    Applied,
    /// It is being deleted: it can be made again when it is gone.
    Deleting,
    /// Somebody keeps changing it: it is left alone for this long.
    Contested(Duration),
}

impl Ensured {
    /// Notes why the child is not yet as it should be; whether it is.
    pub(super) fn is_done(&self, notes: &Notes, child: &ChildRef) -> bool {
        match self {
            Self::Kept | Self::Applied => return true,
            Self::Deleting => notes.waiting("Deleting", format!("{child} is being deleted and will be made again")),
            Self::Contested(left) => {
                notes.missing("Contested", format!("somebody keeps changing {child}; it is put back ever more rarely"));
                notes.look_again(*left);
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
pub(super) async fn ensure<K: Workload>(
    cx: &Context<K>,
    next: &mut K,
    manifest: &Manifest,
) -> Result<Ensured, ActionError> {
    let child = &manifest.child;
    let inputs = digest::digest(&manifest.body);
    let seen = cx.views.child(child);
    if let Some(seen) = &seen {
        refuse_foreign(next, seen)?;
        if seen.deleting {
            return Ok(Ensured::Deleting);
        }
    }
    // What is still wanted as it was applied, and is not so, was changed by somebody.
    let record = cx.baselines.record(next, child).filter(|record| record.inputs == inputs);
    let repair = record.is_some();
    if let Some(record) = record {
        let as_applied = |seen: &&Child| drift(Some(*seen), &record) == Drift::None && has_replicas_of(seen, manifest);
        if let Some(seen) = seen.as_deref().filter(as_applied) {
            keep(next, ChildRecord { uid: seen.uid.clone(), ..record });
            return Ok(Ensured::Kept);
        }
        let left = cx.baselines.truce(next.uid(), child, cx.clock.elapsed());
        if !left.is_zero() {
            return Ok(Ensured::Contested(left));
        }
        // Children change and go because their owner does, and the watch of owners may be behind theirs: what is put back
        // then outlives a deletion that was to orphan it, or is made for an object that is gone.
        if !cx.cluster.is_alive(K::KIND, &next.key(), next.uid()).await? {
            return Err(ApiError::Stale.into());
        }
    }
    let applied = match cx.cluster.apply(manifest, seen.as_ref().map(|seen| seen.uid.as_str())).await {
        // The child we knew is gone or another one, or the name is taken: look, once, past the cache, which holds our own
        // children only.
        Err(ApiError::WrongUid(_)) => {
            let seen = cx.cluster.look(child).await?;
            if let Some(seen) = &seen {
                refuse_foreign(next, seen)?;
                if seen.deleting {
                    return Ok(Ensured::Deleting);
                }
            }
            cx.cluster.apply(manifest, seen.as_ref().map(|seen| seen.uid.as_str())).await?
        }
        answer => answer?,
    };
    cx.notes.note("applied", child.to_string());
    let record = ChildRecord {
        kind: child.kind.as_str().to_owned(),
        name: child.name.clone(),
        uid: applied.uid.clone(),
        inputs,
        owned: applied.owned.clone().unwrap_or_default(),
        replicas: (child.kind == ChildKind::Deployment).then(|| next.replicas()),
    };
    cx.baselines.applied(next.uid(), child, record.clone());
    if repair {
        cx.baselines.repaired(next.uid(), child, cx.clock.elapsed());
    }
    keep(next, record);
    Ok(Ensured::Applied)
}

/// Whether `replicas` is ours where the manifest sets it; what we own is digested without it.
fn has_replicas_of(seen: &Child, manifest: &Manifest) -> bool {
    let sets = manifest.body.pointer("/spec/replicas").is_some();
    !sets || seen.deployment.as_ref().is_none_or(|deployment| deployment.replicas_by.operator)
}

/// How a child differs from its baseline.
pub(super) fn drift(seen: Option<&Child>, record: &ChildRecord) -> Drift {
    match seen {
        None => Drift::Gone,
        Some(seen) if seen.deleting => Drift::Deleting,
        // Whoever made a child anew without us owns all of it, so the digest tells that too.
        Some(seen) if seen.owned.as_deref() == Some(record.owned.as_str()) => Drift::None,
        Some(_) => Drift::Changed,
    }
}

/// Whether a child is ours: controlled by us or by a predecessor of our name, or an orphan with our labels.
pub(super) fn is_ours<K: Machine>(cr: &K, seen: &Child) -> bool {
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

/// Removes from the status, and from the cluster where it is ours, what is no longer wanted.
pub(super) async fn remove_unwanted<K: Workload>(
    cx: &Context<K>,
    next: &mut K,
    wanted: &[&Manifest],
) -> Result<(), ActionError> {
    let namespace = next.meta().namespace.clone().unwrap_or_default();
    let records = std::mem::take(&mut next.status_mut().children);
    let (kept, surplus): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| wanted.iter().any(|manifest| is_record_of(record, &manifest.child)));
    next.status_mut().children = kept;
    for record in surplus {
        let Some(kind) = kind_of(&record) else { continue };
        let child = ChildRef { kind, namespace: namespace.clone(), name: record.name };
        if let Some(seen) = cx.views.child(&child)
            && is_ours(next, &seen)
            && !seen.deleting
        {
            cx.cluster.delete(&child, &seen.uid).await?;
            cx.notes.note("removed", child.to_string());
        }
    }
    Ok(())
}

/// Brings records that no status holds yet into the status of `next`: the write that was to carry them failed.
pub(super) fn recall<K: Workload>(cx: &Context<K>, next: &mut K) {
    let namespace = next.meta().namespace.clone().unwrap_or_default();
    let records = next.status().map(|status| status.children.clone()).unwrap_or_default();
    for record in records {
        let Some(kind) = kind_of(&record) else { continue };
        let child = ChildRef { kind, namespace: namespace.clone(), name: record.name };
        if let Some(record) = cx.baselines.record(next, &child) {
            keep(next, record);
        }
    }
}

/// Takes along the uid of a Service that was made again: gateways send requests only to Pods of the Service with this uid.
/// Whether there was a new one.
pub(super) fn renew_service<K: Workload>(cx: &Context<K>, next: &mut K) -> bool {
    let key = next.key();
    let service = ChildRef { kind: ChildKind::Service, namespace: key.namespace, name: key.name };
    let Some(seen) = cx.views.child(&service).filter(|seen| !seen.deleting && is_ours(next, seen)) else {
        return false;
    };
    if stored(next, &service).is_none_or(|record| record.uid == seen.uid) {
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
pub(super) fn is_orphaning<K: Workload>(cr: &K) -> bool {
    cr.meta().finalizers.iter().flatten().any(|finalizer| finalizer == "orphan")
}

/// The baseline of a child in the status.
pub(super) fn stored<'a, K: Workload>(cr: &'a K, child: &ChildRef) -> Option<&'a ChildRecord> {
    cr.status()?.children.iter().find(|record| is_record_of(record, child))
}

fn is_record_of(record: &ChildRecord, child: &ChildRef) -> bool {
    record.kind == child.kind.as_str() && record.name == child.name
}

fn keep<K: Workload>(next: &mut K, record: ChildRecord) {
    let settled = next.phase().is_some_and(Phase::is_settled);
    let children = &mut next.status_mut().children;
    match children.iter_mut().find(|found| found.kind == record.kind && found.name == record.name) {
        // A child that was made again is as it was: its new uid alone is not worth a write.
        Some(found) if settled && found.inputs == record.inputs && found.owned == record.owned => {}
        Some(found) => *found = record,
        None => children.push(record),
    }
}

/// A child of somebody else stays as it is.
pub(crate) fn refuse_foreign<K: Machine>(cr: &K, seen: &Child) -> Result<(), ActionError> {
    if is_ours(cr, seen) {
        return Ok(());
    }
    let owner = seen.controller.as_ref().map_or_else(
        || "is not managed by Récif".to_owned(),
        |controller| format!("belongs to {}/{}", controller.kind, controller.name),
    );
    let message = format!("{} exists and {owner}", seen.child);
    Err(ActionError::terminal("NameConflict", message))
}
