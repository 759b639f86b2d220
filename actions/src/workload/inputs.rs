//! Resolves all references of a workload, as every action does first.

use std::ops::ControlFlow;

use crds::{WorkloadPhase, reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use meta::condition_type;

use super::kind::WorkloadKind;
use crate::{
    kind::Context,
    references::{Inputs, Resolution},
};

/// Returns everything the workload refers to, and the rollout that a user requested by annotation.
pub(super) fn inputs<K: WorkloadKind>(cx: &Context, cr: &K) -> Inputs {
    let mut inputs = cr.inputs(cx);
    let annotations = cr.meta().annotations.as_ref();
    if let Some(at) = annotations.and_then(|annotations| annotations.get(crds::ROLLOUT_AT)) {
        inputs.add("Rollout", Resolution::Resolved(at.clone()));
    }
    inputs
}

/// Returns why the pinned references are outdated, if they are; a workload without Pods ignores changes.
pub(super) fn changed_inputs<K: WorkloadKind>(cr: &K, inputs: &Inputs) -> Option<String> {
    if cr.replicas() == 0 {
        return None;
    }
    if cr.phase() != Some(WorkloadPhase::Running) && was_stopped(cr) {
        return Some("no Pods were wanted when its references were read".to_owned());
    }
    match cr.pinned() {
        Some(pinned) => inputs.changed_since(pinned),
        None => Some("nothing was resolved yet".to_owned()),
    }
}

/// Checks that the pinned references are those of now. Breaks with the result of the step: back to Resolving if one has
/// changed, and no change while one is pending.
pub(super) fn check_inputs<K: WorkloadKind>(cx: &Context, cr: &K, inputs: &Inputs) -> ControlFlow<Option<K>> {
    if let Some(why) = changed_inputs(cr, inputs) {
        cx.notes.reason(why);
        return ControlFlow::Break(Some(cr.moved_to(WorkloadPhase::Resolving)));
    }
    if is_unsettled(cx, cr, inputs) { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
}

/// Reports whether a reference is still pending, and notes it: rendering at this moment would leave the reference out.
pub(super) fn is_unsettled<K: WorkloadKind>(cx: &Context, cr: &K, inputs: &Inputs) -> bool {
    let waiting = if cr.replicas() == 0 { None } else { inputs.waiting_for() };
    waiting.map(|wait| cx.notes.waiting(wait.reason, wait.sentence)).is_some()
}

/// Reports whether no Pods were wanted when the references were resolved, so that no reference was waited for.
pub(super) fn was_stopped<K: WorkloadKind>(cr: &K) -> bool {
    resolved(cr).is_some_and(|found| found.reason == reason::STOPPED)
}

pub(super) fn resolved<K: WorkloadKind>(cr: &K) -> Option<&Condition> {
    cr.common()?.condition(condition_type::REFERENCES_RESOLVED)
}
