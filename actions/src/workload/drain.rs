//! Drains a deleted workload; action `drain` of the phase Terminating. Deletes the Deployment in the foreground, waits until its
//! Pods are gone, then removes the [finalizer](https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/).
//! The garbage collector removes everything else through the owner references.
//!
//! In a namespace that is being deleted the finalizer is removed at once: the namespace controller deletes the Deployment, and an
//! operator that is restricted to some namespaces loses its permissions there.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{WorkloadPhase, reason};
use machine::{Action, ActionError, RECHECK};
use meta::PhasedObject;

use super::{children::is_orphaning, kind::WorkloadKind};
use crate::{deps::Deps, kind::Context, ports::CachedChild};

/// Action `drain`; see the module.
#[derive(Debug)]
pub struct Drain;

#[async_trait]
impl<K: WorkloadKind> Action<K, Deps> for Drain {
    fn name(&self) -> &'static str {
        "drain"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Terminating]
    }

    fn recheck(&self, _cr: &K) -> Option<Duration> {
        Some(RECHECK)
    }

    async fn handle(&self, cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        if cx.cache.is_namespace_going(&cr.meta().namespace.clone().unwrap_or_default()) {
            cx.notes.fact("namespace", "being deleted");
            return Ok(Some(let_go(cx, cr.as_ref())));
        }
        let child = cr.deployment();
        let is_left = |seen: &CachedChild| seen.controller.as_ref().is_none_or(|controller| controller.uid != cr.uid());
        let seen = cx.cache.child(&child).filter(|seen| !is_left(seen) && !is_orphaning(cr.as_ref()));
        // With an orphan deletion the garbage collector removes the owner reference from the children first, which may be in no
        // cache yet.
        let ours = match seen {
            Some(seen) if !seen.deleting => cx.client.get(&child).await?.filter(|live| !is_left(live)),
            other => other,
        };
        if let Some(seen) = ours {
            if !seen.deleting {
                cx.client.delete(&child, &seen.uid).await?;
                cx.notes.fact("deleted", child.to_string());
            }
            cx.notes.waiting(reason::DRAINING, format!("{child} is being deleted"));
            return Ok(None);
        }
        Ok(Some(let_go(cx, cr.as_ref())))
    }
}

/// Returns the object without the operator's finalizer.
fn let_go<K: WorkloadKind>(cx: &Context, cr: &K) -> K {
    cx.applied_records.forget(cr.uid());
    cx.debounce.forget(cr.uid());
    let mut next = cr.clone();
    if let Some(finalizers) = &mut next.meta_mut().finalizers {
        finalizers.retain(|finalizer| Some(finalizer.as_str()) != <K as PhasedObject>::FINALIZER);
    }
    next
}
