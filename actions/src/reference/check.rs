//! Checks references; action `check`, Resolving → Available. Waits until everything the spec refers to can be used, and pins what
//! it read.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::ReferencePhase;
use machine::{Action, ActionError, RECHECK};

use super::kind::ReferenceKind;
use crate::{deps::Deps, kind::Context, references::Unresolved};

/// Action `check`; see the module.
#[derive(Debug)]
pub struct CheckReferences;

#[async_trait]
impl<K: ReferenceKind> Action<K, Deps> for CheckReferences {
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
        if let Some(error) = cr.rejection(cx) {
            return Err(error);
        }
        let inputs = cr.inputs(cx);
        match cr.unaccepted(cx).or_else(|| inputs.waiting_for()) {
            None => {
                let mut next = cr.moved_to(ReferencePhase::Available);
                next.report_status(cx);
                next.common_mut().inputs = Some(inputs.pin());
                Ok(Some(next))
            }
            Some(Unresolved { reason, sentence, needs_user: true }) => {
                cx.notes.blocked(reason, sentence);
                Ok(None)
            }
            Some(Unresolved { reason, sentence, needs_user: false }) => {
                cx.notes.waiting(reason, sentence);
                Ok(None)
            }
        }
    }
}
