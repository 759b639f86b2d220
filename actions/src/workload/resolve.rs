//! Resolves references; action `resolve`, Resolving → Rendering. Waits until everything the spec refers to can be used, names all
//! that cannot, and pins what it read.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{WorkloadPhase, reason};
use machine::{Action, ActionError, RECHECK};
use meta::{condition, condition_type, with_condition};

use super::{
    degradation::Degradable,
    foreign::yield_to_foreign_policies,
    health::{entered, observed_change},
    inputs::{inputs, resolved},
    kind::WorkloadKind,
};
use crate::{
    deps::Deps,
    kind::Context,
    references::{Inputs, Unresolved},
};

/// Longest wait for references that the workload can do without: objects that were applied together are ready by then.
const PENDING_GRACE: Duration = Duration::from_secs(30);

/// Action `resolve`; see the module.
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
        yield_to_foreign_policies(cx, cr.as_ref()).await?;
        let mut next = cr.moved_to(WorkloadPhase::Rendering);
        if cr.replicas() == 0 {
            // No Pod will read the result, so nothing is waited for. The existing references are pinned all the same: a failure
            // is retried when they change, and only then.
            cx.debounce.forget(cr.uid());
            next.common_mut().inputs = Some(inputs(cx, cr.as_ref()).pin());
            return Ok(Some(with_condition(
                next,
                condition(condition_type::REFERENCES_RESOLVED, true, reason::STOPPED, ""),
            )));
        }
        let inputs = omit_overdue(cx, cr.as_ref(), inputs(cx, cr.as_ref()));
        let lacking = || {
            cr.model_problem(cx).map(|sentence| Unresolved {
                reason: reason::MISSING_DEPENDENCY,
                sentence,
                needs_user: true,
            })
        };
        let exposed = || {
            cr.exposed_credentials(cx).map(|sentence| Unresolved {
                reason: reason::MISSING_DEPENDENCY,
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
                next.record_members(&inputs);
                let resolved = match next.degradable().and_then(Degradable::degraded) {
                    None => condition(condition_type::REFERENCES_RESOLVED, true, "Resolved", ""),
                    Some(sentence) => condition(condition_type::REFERENCES_RESOLVED, false, reason::DEGRADED, sentence),
                };
                Ok(Some(with_condition(next, resolved)))
            }
            Some(Unresolved { reason, sentence, needs_user }) => {
                cx.debounce.forget(cr.uid());
                match needs_user {
                    true => cx.notes.blocked(reason, sentence),
                    false => cx.notes.waiting(reason, sentence),
                }
                cx.notes.false_condition(condition_type::REFERENCES_RESOLVED);
                Ok(observed_change(cx, cr.as_ref(), &inputs))
            }
        }
    }
}

/// Reports whether the status says that a reference was missing.
fn had_missing<K: WorkloadKind>(cr: &K) -> bool {
    resolved(cr).is_some_and(|found| found.status == "False" && found.reason == reason::MISSING_DEPENDENCY)
}

/// Returns the references to wait for: without those that the workload can do without, once they have been waited for long
/// enough.
fn omit_overdue<K: WorkloadKind>(cx: &Context, cr: &K, inputs: Inputs) -> Inputs {
    let Some(members) = cr.degradable() else { return inputs };
    let without = members.omit_pending(inputs.clone());
    if without == inputs {
        return inputs;
    }
    let entered = entered(cr, WorkloadPhase::Resolving);
    match entered.map(|entered| cx.time_left("resolving", entered, PENDING_GRACE)).filter(|left| !left.is_zero()) {
        None => without,
        Some(left) => {
            cx.notes.requeue_after(left);
            inputs
        }
    }
}
