//! `resolve`: Resolving → Rendering. Waits until everything the spec refers to may be used, naming all that is not, and
//! pins what it read.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::WorkloadPhase;
use machine::{Action, ActionError, RECHECK};
use meta::{condition, with_condition};

use super::{
    WorkloadKind,
    health::observed_change,
    inputs::{RESOLVED, inputs, resolved},
};
use crate::{
    deps::Deps,
    kind::Context,
    references::{Inputs, Unresolved},
};

/// What a workload could do without is waited for this long: whatever was applied together settles within it.
const PENDING_GRACE: Duration = Duration::from_secs(30);

/// The reason of what could never answer with what it refers to.
const NEVER_REASON: &str = "MissingDependency";

/// See the module.
#[derive(Debug)]
pub struct Resolve;

#[async_trait]
impl<K: WorkloadKind> Action<K, Deps> for Resolve {
    fn name(&self) -> &'static str {
        "resolve"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Resolving]
    }

    fn recheck(&self, _cr: &K) -> Option<Duration> {
        Some(RECHECK)
    }

    async fn handle(&self, cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        let mut next = cr.moved_to(WorkloadPhase::Rendering);
        if cr.replicas() == 0 {
            // No Pod will read the result, so nothing is worth waiting for. What is there is pinned all the same: a failure
            // is tried again when that changes, and only then.
            next.common_mut().inputs = Some(inputs(cx, cr.as_ref()).pin());
            return Ok(Some(with_condition(next, condition(RESOLVED, true, "Stopped", ""))));
        }
        let inputs = omit_overdue(cx, cr.as_ref(), inputs(cx, cr.as_ref()));
        let lacking =
            || cr.model_problem(cx).map(|sentence| Unresolved { reason: NEVER_REASON, sentence, needs_user: true });
        let exposed = || {
            cr.exposed_credentials(cx).map(|sentence| Unresolved {
                reason: "MissingDependency",
                sentence,
                needs_user: true,
            })
        };
        match inputs.waiting_for().or_else(lacking).or_else(exposed) {
            None => {
                let left = match had_missing(cr.as_ref()) {
                    true => cx.debounce.remaining(cr.uid(), &inputs, cx.clock.elapsed()),
                    false => Duration::ZERO,
                };
                if !left.is_zero() {
                    cx.notes.waiting("Settling", "everything is there, and more may be on its way");
                    cx.notes.requeue_after(left);
                    return Ok(None);
                }
                next.common_mut().inputs = Some(inputs.pin());
                next.report_status(&inputs);
                let resolved = match next.degraded() {
                    None => condition(RESOLVED, true, "Resolved", ""),
                    Some(sentence) => condition(RESOLVED, false, "Degraded", sentence),
                };
                Ok(Some(with_condition(next, resolved)))
            }
            Some(Unresolved { reason, sentence, needs_user }) => {
                cx.debounce.forget(cr.uid());
                match needs_user {
                    true => cx.notes.blocked(reason, sentence),
                    false => cx.notes.waiting(reason, sentence),
                }
                cx.notes.false_condition(RESOLVED);
                Ok(observed_change(cx, cr.as_ref(), &inputs))
            }
        }
    }
}

/// Whether something was missing, as its status says.
fn had_missing<K: WorkloadKind>(cr: &K) -> bool {
    resolved(cr).is_some_and(|found| found.status == "False" && found.reason == "MissingDependency")
}

/// What there is to wait for: without what the workload can do without, once that has been waited for long enough.
fn omit_overdue<K: WorkloadKind>(cx: &Context, cr: &K, inputs: Inputs) -> Inputs {
    let without = cr.omit_pending(inputs.clone());
    if without == inputs {
        return inputs;
    }
    let history = cr.common().map(|machine| machine.history.as_slice()).unwrap_or_default();
    let resolving = WorkloadPhase::Resolving.to_string();
    let entered = history.iter().rev().find(|entry| entry.to == resolving && entry.from != resolving);
    let entered = entered.or(history.first()).map(|entry| entry.at.0);
    match entered.map(|entered| cx.time_left("resolving", entered, PENDING_GRACE)).filter(|left| !left.is_zero()) {
        None => without,
        Some(left) => {
            cx.notes.requeue_after(left);
            inputs
        }
    }
}
