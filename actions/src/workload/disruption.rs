//! Keeps a PodDisruptionBudget beside the Pods of a workload for as long as at least two of them run at any time.
//!
//! The eviction API evicts no Pod that two budgets select, so there is none beside a budget of another owner.

use machine::ActionError;

use super::{
    children::{delete_child, ensure, records, remove_child},
    kind::{WorkloadKind, pod_labels},
    replicas,
};
use crate::{
    applied::stored_record,
    deps::Deps,
    kind::Context,
    ports::{ChildKind, ChildRef},
    render::disruption_budget_name,
};

/// Fewest Pods for which there is a budget: the only Pod of a workload may always be evicted.
const FEWEST_PODS: i32 = 2;

/// Reports whether the operator is to create a budget for the Pods.
pub(super) fn wants_budget<K: WorkloadKind>(cr: &K, deps: &Deps) -> bool {
    let fewest = replicas::scaling(cr).map_or(cr.replicas(), |scaling| scaling.min_replicas);
    fewest >= FEWEST_PODS && !is_governed(cr, deps)
}

/// Reports whether a budget of another owner selects the Pods.
fn is_governed<K: WorkloadKind>(cr: &K, deps: &Deps) -> bool {
    deps.cache.is_disruption_governed(&cr.key().namespace, &pod_labels(cr))
}

/// Returns the budget of the workload.
fn budget<K: WorkloadKind>(cr: &K) -> ChildRef {
    let key = cr.key();
    let name = disruption_budget_name(&key.name);
    ChildRef { kind: ChildKind::PodDisruptionBudget, namespace: key.namespace, name }
}

/// Deletes the budget of a workload whose Pods one of another owner selects too. In every phase that may last while Pods of an earlier
/// configuration serve; those of a deleted workload are evicted whatever budgets say. The status names the budget until the workload is
/// deployed, so a wait costs no write of the status.
pub(super) async fn yield_budget<K: WorkloadKind>(cx: &Context, cr: &K) -> Result<(), ActionError> {
    if is_governed(cr, cx) { delete_child(cx, cr, &budget(cr)).await } else { Ok(()) }
}

/// Applies the budget of a running workload that lacks one, or deletes one that is not wanted any more: `spec.replicas` is edited
/// without a rollout, and budgets of other owners come and go. Drift of a budget that is recorded is repaired as that of any child.
pub(super) async fn settle_budget<K: WorkloadKind>(cx: &Context, cr: &K, next: &mut K) -> Result<(), ActionError> {
    let child = budget(cr);
    if !wants_budget(cr, cx) {
        return remove_child(cx, next, &child).await;
    }
    if stored_record(records(next), &child).is_none() {
        ensure(cx, next, &cr.disruption_budget()).await?.is_done(&cx.notes, &child);
    }
    Ok(())
}
