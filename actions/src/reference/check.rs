//! `check`: Resolving → Available. Waits until everything the spec refers to may be used, and pins what it read.

use std::sync::Arc;

use async_trait::async_trait;
use crds::ReferencePhase;

use super::Reference;
use crate::machine::{Action, ActionError, Context};

/// See the module.
#[derive(Debug)]
pub struct Check;

#[async_trait]
impl<K: Reference> Action<K> for Check {
    fn name(&self) -> &'static str {
        "check"
    }

    fn phases(&self) -> &'static [ReferencePhase] {
        &[ReferencePhase::Resolving]
    }

    async fn handle(&self, cx: &Context<K>, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        let inputs = cr.inputs(cx);
        match inputs.waiting_for() {
            None => {
                let mut next = cr.moved_to(ReferencePhase::Available);
                next.machine_mut().inputs = Some(inputs.pin());
                Ok(Some(next))
            }
            Some((sentence, true)) => {
                cx.notes.missing("MissingDependency", sentence);
                Ok(None)
            }
            Some((sentence, false)) => {
                cx.notes.waiting("MissingDependency", sentence);
                Ok(None)
            }
        }
    }
}
