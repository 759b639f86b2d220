//! `drain`: Terminating. Deletes the Deployment, waits until its Pods are gone, then lets the object go; everything
//! else is the garbage collector's.

use std::sync::Arc;

use async_trait::async_trait;
use crds::WorkloadPhase;

use super::{Workload, children::is_orphaning};
use crate::machine::{Action, ActionError, Context, Machine};

/// See the module.
#[derive(Debug)]
pub struct Drain;

#[async_trait]
impl<K: Workload> Action<K> for Drain {
    fn name(&self) -> &'static str {
        "drain"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Terminating]
    }

    async fn handle(&self, cx: &Context<K>, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        let child = cr.deployment();
        let ours = cx.views.child(&child).filter(|seen| {
            seen.controller.as_ref().is_some_and(|controller| controller.uid == cr.uid()) && !is_orphaning(cr.as_ref())
        });
        if let Some(seen) = ours {
            if !seen.deleting {
                cx.cluster.delete(&child, &seen.uid).await?;
                cx.notes.note("deleted", child.to_string());
            }
            cx.notes.waiting("Draining", format!("{child} is being deleted"));
            return Ok(None);
        }
        cx.baselines.forget(cr.uid());
        let mut next = cr.as_ref().clone();
        if let Some(finalizers) = &mut next.meta_mut().finalizers {
            finalizers.retain(|finalizer| Some(finalizer.as_str()) != <K as Machine>::FINALIZER);
        }
        Ok(Some(next))
    }
}
