//! Keeps a PodDisruptionBudget beside the Pods of a workload for as long as at least two of them run at any time.
//!
//! The eviction API evicts no Pod that two budgets select, so there is none beside a budget of another owner.

use machine::ActionError;

use super::{
    children::{ensure, records, remove_child},
    kind::WorkloadKind,
    policies::wants_budget,
};
use crate::{
    applied::stored_record,
    kind::Context,
    ports::{ChildKind, ChildRef},
    render::disruption_budget_name,
};

/// Returns the budget of the workload.
pub(super) fn budget<K: WorkloadKind>(cr: &K) -> ChildRef {
    let key = cr.key();
    let name = disruption_budget_name(&key.name);
    ChildRef { kind: ChildKind::PodDisruptionBudget, namespace: key.namespace, name }
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
