//! Monitors a referenced object; action `monitor`, Available and Error → Resolving. Leaves the phase when one of the object's
//! references changed or, in Error, when a retry is due.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::ReferencePhase;
use machine::{Action, ActionError, RECHECK, is_due};

use super::kind::ReferenceKind;
use crate::{deps::Deps, kind::Context};

/// Action `monitor`; see the module.
#[derive(Debug)]
pub struct Monitor;

#[async_trait]
impl<K: ReferenceKind> Action<K, Deps> for Monitor {
    fn name(&self) -> &'static str {
        "monitor"
    }

    fn phases(&self) -> &'static [ReferencePhase] {
        &[ReferencePhase::Available, ReferencePhase::Error]
    }

    fn recheck(&self, _cr: &K) -> Option<Duration> {
        Some(RECHECK)
    }

    async fn handle(&self, cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        let failed = cr.phase() == Some(ReferencePhase::Error);
        if let Some(error) = cr.rejection(cx).filter(|_| failed) {
            return Err(error);
        }
        let machine = cr.common();
        let changed =
            machine.and_then(|machine| machine.inputs.as_ref()).and_then(|pinned| cr.inputs(cx).changed_since(pinned));
        let why = changed.or_else(|| match machine.and_then(|machine| machine.failure.as_ref()) {
            _ if !failed => None,
            None => Some("the status does not say why it failed".to_owned()),
            Some(failure) => {
                let due = failure.next_attempt_at.as_ref().filter(|_| failure.retryable);
                due.filter(|due| is_due(due.0, cx.clock.now())).map(|_| "the back-off is over".to_owned())
            }
        });
        if let Some(why) = why {
            cx.notes.reason(why);
            return Ok(Some(cr.moved_to(ReferencePhase::Resolving)));
        }
        let mut next = cr.as_ref().clone();
        if !failed {
            next.report_status(cx);
        }
        Ok((next.common() != cr.common()).then_some(next))
    }
}
