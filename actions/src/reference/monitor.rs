//! `monitor`: Available and Error → Resolving, when something the object refers to changed, or, in Error, when it is
//! time to try again.

use std::sync::Arc;

use async_trait::async_trait;
use crds::ReferencePhase;

use super::Reference;
use crate::machine::{Action, ActionError, Context};

/// See the module.
#[derive(Debug)]
pub struct Monitor;

#[async_trait]
impl<K: Reference> Action<K> for Monitor {
    fn name(&self) -> &'static str {
        "monitor"
    }

    fn phases(&self) -> &'static [ReferencePhase] {
        &[ReferencePhase::Available, ReferencePhase::Error]
    }

    async fn handle(&self, cx: &Context<K>, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        let machine = cr.machine();
        let changed =
            machine.and_then(|machine| machine.inputs.as_ref()).and_then(|pinned| cr.inputs(cx).changed_since(pinned));
        let failure = machine.and_then(|machine| machine.failure.as_ref()).filter(|failure| failure.retryable);
        let due = cr.phase() == Some(ReferencePhase::Error)
            && failure.and_then(|failure| failure.next_attempt_at.as_ref()).is_some_and(|due| due.0 <= cx.clock.now());
        let why = changed.or_else(|| due.then(|| "it is time to try again".to_owned()));
        Ok(why.map(|why| {
            cx.notes.because(why);
            cr.moved_to(ReferencePhase::Resolving)
        }))
    }
}
