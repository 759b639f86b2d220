//! `resolve`: Resolving → Rendering. Waits until everything the spec refers to may be used, naming all that is not, and
//! pins what it read.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::WorkloadPhase;

use super::{Workload, health::news};
use crate::{
    machine::{Action, ActionError, Context, condition, with_condition},
    references::Unresolved,
};

/// See the module.
#[derive(Debug)]
pub struct Resolve;

#[async_trait]
impl<K: Workload> Action<K> for Resolve {
    fn name(&self) -> &'static str {
        "resolve"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Resolving]
    }

    fn recheck(&self, _cr: &K) -> Option<Duration> {
        Some(Duration::from_secs(600))
    }

    async fn handle(&self, cx: &Context<K>, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        let mut next = cr.moved_to(WorkloadPhase::Rendering);
        if cr.replicas() == 0 {
            // No Pod will read the result, so nothing is worth waiting for.
            next.machine_mut().inputs = Some(BTreeMap::new());
            return Ok(Some(with_condition(next, condition("ReferencesResolved", true, "Stopped", ""))));
        }
        let inputs = cr.inputs(cx);
        match inputs.waiting_for() {
            None => {
                next.machine_mut().inputs = Some(inputs.pin());
                Ok(Some(with_condition(next, condition("ReferencesResolved", true, "Resolved", ""))))
            }
            Some(Unresolved { reason, sentence, missing: true }) => {
                cx.notes.missing(reason, sentence.clone());
                let unresolved = condition("ReferencesResolved", false, reason, sentence);
                let seen = news(cx, cr.as_ref()).unwrap_or_else(|| cr.as_ref().clone());
                Ok(Some(with_condition(seen, unresolved)))
            }
            Some(Unresolved { reason, sentence, missing: false }) => {
                cx.notes.waiting(reason, sentence);
                Ok(news(cx, cr.as_ref()))
            }
        }
    }
}
