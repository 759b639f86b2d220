//! Sends the difference between an object and its next state: at most one patch of the metadata and one of the status.

use std::sync::Arc;

use meta::PhasedObject;
use serde_json::Value;

use super::{
    ApiError, Driver, NamespaceReader, conditions,
    patch::{metadata_patch, status_patch},
    step_decision::StepDecision,
};

/// Result of a write.
pub(super) enum StatusWrite<K> {
    Unchanged,
    /// `sent` is the status that was sent; null if only metadata was.
    Written {
        answer: Arc<K>,
        sent: Value,
    },
    Gone,
}

impl<K: PhasedObject, D: NamespaceReader> Driver<K, D> {
    /// Sends what differs. The status goes with the identity of this operator and the condition about the CRD.
    pub(super) async fn send(&self, step: &StepDecision<'_, K>, done: &mut K) -> Result<StatusWrite<K>, ApiError> {
        let cr = &step.cr;
        let mut answer = None;
        if let Some(patch) = metadata_patch(cr.meta(), done.meta()) {
            match self.objects.patch_metadata(step.key, patch).await? {
                Some(stored) if !stored.is_deleting() || stored.has_finalizer() => answer = Some(stored),
                // No status is written after the last finalizer is removed.
                _ => return Ok(StatusWrite::Gone),
            }
        }
        let mut sent = Value::Null;
        let changes = status_patch(cr.meta(), cr.status_json(), self.wanted_status(cr, done)).is_some();
        if changes || (self.dropped.is_upgraded() && conditions::crd_outdated::<K>(cr).is_some()) {
            // The writer's identity and what the CRD drops are written only together with another change.
            if self.instance.is_some() {
                done.common_mut().managed_by.clone_from(&self.instance);
            }
            conditions::set_crd_outdated(done, self.dropped.sentence::<K>(), self.clock.now());
            // Dropped fields go along: the CRD may have been upgraded meanwhile, and no later step may set them again.
            let status = done.status_json();
            if let Some(patch) = status_patch(cr.meta(), cr.status_json(), status.clone()) {
                answer = Some(self.send_status(step, patch).await?);
                sent = status;
            }
        }
        Ok(answer.map_or(StatusWrite::Unchanged, |answer| StatusWrite::Written { answer, sent }))
    }

    pub(super) async fn send_status(&self, step: &StepDecision<'_, K>, patch: Value) -> Result<Arc<K>, ApiError> {
        let answer = self.objects.patch_status(step.key, patch).await?;
        self.retry_state.record_write((step.key, step.cr.uid()), answer.version());
        Ok(answer)
    }

    /// Returns the status by which it is decided whether to write: without the fields that the API server would drop.
    fn wanted_status(&self, cr: &K, done: &K) -> Value {
        let mut status = done.status_json();
        self.dropped.withhold(|| cr.status_json(), &mut status, self.table(), self.clock.elapsed());
        status
    }
}
