//! Delays the steps that depend on fields of a status which the API server did not keep, and says so in the status. Which fields
//! these are is found out in `dropped_fields.rs`.

use std::{sync::Arc, time::Duration};

use meta::PhasedObject;
use serde_json::Value;

use super::{
    Driver, NamespaceReader, conditions,
    dropped_fields::{affect_decisions, sentence},
    move_backoff::external_digest,
    patch::status_patch,
    step_decision::StepDecision,
};

impl<K: PhasedObject, D: NamespaceReader> Driver<K, D> {
    /// Writes the condition about the CRD if the last write has shown that it is another one. No further move of the object would
    /// tell it. If it cannot be written, the next write does.
    pub(super) async fn report_dropped_fields(&self, step: &StepDecision<'_, K>, answer: &mut Arc<K>) {
        let sentence = self.dropped.sentence::<K>();
        if conditions::crd_outdated::<K>(answer) == sentence.as_deref() {
            return;
        }
        let mut next = K::clone(answer);
        conditions::set_crd_outdated(&mut next, sentence, self.clock.now());
        let patch = status_patch(answer.meta(), answer.status_json(), next.status_json());
        if let Some(patch) = patch
            && let Ok(stored) = self.send_status(step, patch).await
        {
            *answer = stored;
        }
    }

    /// Returns the pause and its reason if the answer does not hold a field that decides on steps as it was sent.
    pub(super) fn lost_write(
        &self,
        step: &StepDecision<'_, K>,
        sent: &Value,
        answer: &K,
    ) -> Option<(Duration, String)> {
        let cr = &step.cr;
        let now = self.clock.elapsed();
        let lost = self.dropped.learn::<K>(&cr.status_json(), sent, &answer.status_json(), now);
        if affect_decisions(&lost, self.table()) {
            let (object, dependency_digest) = (external_digest(cr.meta()), || self.dependency_digest(cr));
            let pause = self.retry_state.record_lost_write((step.key, cr.uid()), object, dependency_digest, now);
            return Some((pause, sentence::<K>(&lost)));
        }
        if !self.dropped.affects_decisions(self.table()) {
            self.retry_state.record_kept_write(step.key);
        }
        None
    }
}
