//! Deletes the NetworkPolicy and the PodDisruptionBudget of a workload beside those of another owner.

use machine::ActionError;

use super::{
    children::delete_child,
    disruption::budget,
    kind::WorkloadKind,
    policies::{is_disruption_governed, is_governed},
};
use crate::{
    kind::Context,
    ports::{ChildKind, ChildRef},
    render::network_policy_name,
};

/// Deletes the policy or the budget of a workload whose Pods one of another owner selects too: the policy would allow what that one
/// denies, and two budgets block each eviction.
///
/// Called in every phase that may last while Pods of an earlier configuration serve. `monitor` does it for running workloads; the
/// Pods of a deleted one are evicted whatever budgets say. The status names the child until the workload is deployed, so a wait
/// costs no write of the status.
pub(super) async fn yield_to_foreign_policies<K: WorkloadKind>(cx: &Context, cr: &K) -> Result<(), ActionError> {
    // Without its egress part the Pods could connect to everything: it stays until the workload is deployed anew.
    if cr.egress().is_none() && is_governed(cr, cx) {
        let key = cr.key();
        let name = network_policy_name(&key.name);
        let policy = ChildRef { kind: ChildKind::NetworkPolicy, namespace: key.namespace, name };
        delete_child(cx, cr, &policy).await?;
    }
    if is_disruption_governed(cr, cx) { delete_child(cx, cr, &budget(cr)).await } else { Ok(()) }
}
