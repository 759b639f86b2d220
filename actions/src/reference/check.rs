//! `check`: Resolving → Available. Waits until everything the spec refers to may be used, and pins what it read.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::ReferencePhase;
use machine::{Action, ActionError, RECHECK};

use super::Reference;
use crate::{deps::World, kind::Context, references::Unresolved};

/// See the module.
#[derive(Debug)]
pub struct Check;

#[async_trait]
impl<K: Reference> Action<K, World> for Check {
    fn name(&self) -> &'static str {
        "check"
    }

    fn phases(&self) -> &'static [ReferencePhase] {
        &[ReferencePhase::Resolving]
    }

    fn recheck(&self, _cr: &K) -> Option<Duration> {
        Some(RECHECK)
    }

    async fn handle(&self, cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        if let Some(error) = cr.refused(cx) {
            return Err(error);
        }
        let inputs = cr.inputs(cx);
        match inputs.waiting_for() {
            None => {
                let mut next = cr.moved_to(ReferencePhase::Available);
                next.tell(cx);
                next.machine_mut().inputs = Some(inputs.pin());
                Ok(Some(next))
            }
            Some(Unresolved { reason, sentence, missing: true }) => {
                cx.notes.missing(reason, sentence);
                Ok(None)
            }
            Some(Unresolved { reason, sentence, missing: false }) => {
                cx.notes.waiting(reason, sentence);
                Ok(None)
            }
        }
    }
}
