//! Looks at everything that a workload refers to, which every action does first.

use crds::WorkloadPhase;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::WorkloadKind;
use crate::{
    kind::Context,
    references::{Inputs, Resolution},
};

/// Everything the workload refers to, and the rollout that somebody asked for.
pub(super) fn inputs<K: WorkloadKind>(cx: &Context, cr: &K) -> Inputs {
    let mut inputs = cr.inputs(cx);
    let annotations = cr.meta().annotations.as_ref();
    if let Some(at) = annotations.and_then(|annotations| annotations.get(crds::ROLLOUT_AT)) {
        inputs.add("Rollout", Resolution::Resolved(at.clone()));
    }
    inputs
}

/// Why what was resolved no longer holds; a workload without Pods does not care.
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

/// Whether something referred to is on its way, which is noted: rendering now would leave it out.
pub(super) fn is_unsettled<K: WorkloadKind>(cx: &Context, cr: &K, inputs: &Inputs) -> bool {
    let waiting = if cr.replicas() == 0 { None } else { inputs.waiting_for() };
    waiting.map(|wait| cx.notes.waiting(wait.reason, wait.sentence)).is_some()
}

/// Whether no Pods were wanted when it was resolved, so that nothing was waited for.
pub(super) fn was_stopped<K: WorkloadKind>(cr: &K) -> bool {
    resolved(cr).is_some_and(|found| found.reason == "Stopped")
}

pub(super) fn resolved<K: WorkloadKind>(cr: &K) -> Option<&Condition> {
    cr.common()?.conditions.iter().find(|found| found.type_ == RESOLVED)
}

/// The condition that says whether everything it refers to may be used.
pub(super) const RESOLVED: &str = "ReferencesResolved";
