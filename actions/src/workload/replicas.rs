//! Decides which field manager sets `replicas` of the Deployment: the operator from the spec, the scaler, or another client.
//!
//! The Deployment is created with its replicas in one apply. A later number is applied alone, by a separate field manager, so
//! that scaling replaces no Pod, whatever this build renders.
//!
//! The ownership of the field is transferred without a gap, as [server-side
//! apply](https://kubernetes.io/docs/reference/using-api/server-side-apply/#transferring-ownership) requires: an apply that
//! leaves a field out resets it to its default unless another manager has applied it too. So the new manager applies the field
//! with its current value; when managedFields names both, the old manager leaves it out; and only the sole manager sets another
//! number.

use crds::{ChildRecord, Scaling};

use super::kind::WorkloadKind;
use crate::ports::DeploymentState;

/// Field manager of the scaler.
pub const SCALER: &str = "recif-scaler";

/// Field manager of the operator for a number that is applied alone.
pub const REPLICAS: &str = "recif-replicas";

/// Scaler's next step in the transfer of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicasHandover {
    /// The scaler is the sole manager: it may set any number.
    Owned,
    /// Apply this number, to become a manager of the field.
    Acquire(i32),
    /// Leave the field out of the apply: the operator owns it.
    Release,
    /// Wait for the operator.
    Wait,
    /// Do nothing: the workload has no scaling, and the scaler does not own the field.
    None,
}

/// Returns the fewest Pods of a workload that runs and is not scaled to zero.
pub fn min_running(scaling: &Scaling) -> i32 {
    scaling.min_replicas.max(1)
}

/// Returns the scaler's next step. `scaling`: of a workload that has scaling and is not stopped.
pub fn handover(scaling: Option<&Scaling>, live: &DeploymentState) -> ReplicasHandover {
    let by = &live.replicas_managers;
    match (scaling, by.has_operator(), by.scaler) {
        // It was stopped, and the operator is to start it.
        (Some(_), true, false) if live.desired == 0 => ReplicasHandover::Wait,
        (Some(_), true, false) => ReplicasHandover::Acquire(live.desired),
        (Some(_), true, true) => ReplicasHandover::Wait,
        (Some(_), false, true) => ReplicasHandover::Owned,
        // The Deployment was just created, or another client took the field.
        (Some(scaling), false, false) => ReplicasHandover::Acquire(live.desired.max(min_running(scaling))),
        (None, true, true) => ReplicasHandover::Release,
        (None, false, true) => ReplicasHandover::Wait,
        (None, _, false) => ReplicasHandover::None,
    }
}

/// Returns the number of Pods wanted: the user's, or that of the scaler or of another field manager.
pub(super) fn desired<K: WorkloadKind>(cr: &K, live: &DeploymentState) -> i32 {
    let by_others = cr.scaling_in_force().is_some() || live.replicas_managers.other_manager().is_some();
    if cr.replicas() > 0 && by_others { live.desired } else { cr.replicas() }
}

/// Returns how many Pods make the workload ready: all that are wanted, or with scaling the minimum.
pub(super) fn required<K: WorkloadKind>(cr: &K, live: &DeploymentState) -> i32 {
    let wanted = desired(cr, live);
    cr.scaling_in_force().map_or(wanted, |scaling| wanted.min(min_running(scaling)))
}

/// Returns how many Pods of a new template are to become ready.
pub(super) fn expected<K: WorkloadKind>(cr: &K, live: Option<&DeploymentState>) -> i32 {
    live.map_or_else(|| cr.scaling_in_force().map_or(cr.replicas(), min_running), |live| desired(cr, live))
}

/// Reports whether the user's number has changed since the Deployment was last applied, as its `record` says.
fn is_edited<K: WorkloadKind>(cr: &K, record: Option<&ChildRecord>) -> bool {
    match record.and_then(|record| record.replicas) {
        Some(known) => known != cr.replicas(),
        // Record of an older build.
        None => cr.is_edited(),
    }
}

/// Returns `replicas` for the operator's apply of the whole Deployment: the first number, or the current number while that apply
/// owns the field, because an apply without it could reset it. `None`: left out.
pub(super) fn applied_replicas<K: WorkloadKind>(cr: &K, live: Option<&DeploymentState>) -> Option<i32> {
    match live {
        None => cr.scaling_in_force().is_none().then(|| cr.replicas()),
        Some(live) => (live.replicas_managers.operator && !is_handed_over(cr, live)).then_some(live.desired),
    }
}

/// Reports whether the scaler has taken the field over from the apply of the whole Deployment, which is to leave it out.
pub(super) fn is_handed_over<K: WorkloadKind>(cr: &K, live: &DeploymentState) -> bool {
    live.replicas_managers.operator && live.replicas_managers.scaler && cr.scaling_in_force().is_some()
}

/// Returns the change of this field alone that is due: another number, or (`Some(None)`) leaving the field to the scaler. The
/// number is the user's unless the scaler's counts or, until the user edits the spec, that of another client.
pub(super) fn due_change<K: WorkloadKind>(
    cr: &K,
    live: &DeploymentState,
    record: Option<&ChildRecord>,
) -> Option<Option<i32>> {
    let by = &live.replicas_managers;
    if let Some(scaling) = cr.scaling_in_force() {
        return match by.scaler {
            true => by.replicas_apply.then_some(None),
            // It was stopped, and is to be started.
            false => (by.has_operator() && live.desired == 0).then(|| Some(min_running(scaling))),
        };
    }
    let edited = is_edited(cr, record);
    if by.other_manager().is_some() && !edited && cr.replicas() > 0 {
        return None;
    }
    (cr.replicas() != live.desired || !by.has_operator() || edited).then(|| Some(cr.replicas()))
}

/// Reports whether the scaler has yet to take the field over.
pub(super) fn awaits_scaler<K: WorkloadKind>(cr: &K, live: &DeploymentState) -> bool {
    cr.scaling_in_force().is_some_and(|scaling| handover(Some(scaling), live) != ReplicasHandover::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::ReplicasManagers;

    fn live(desired: i32, operator: bool, scaler: bool) -> DeploymentState {
        let replicas_by = ReplicasManagers { operator, scaler, ..ReplicasManagers::default() };
        DeploymentState { desired, replicas_managers: replicas_by, ..DeploymentState::default() }
    }

    #[test]
    fn the_scaler_takes_over_the_number_there_is_and_sets_its_own_when_it_has_it_alone() {
        let scaling = Scaling { min_replicas: 3, ..Scaling::default() };
        let turn = |live| handover(Some(&scaling), &live);
        assert_eq!(turn(live(5, true, false)), ReplicasHandover::Acquire(5));
        assert_eq!(turn(live(1, true, false)), ReplicasHandover::Acquire(1), "not yet its own number");
        assert_eq!(turn(live(5, true, true)), ReplicasHandover::Wait);
        assert_eq!(turn(live(5, false, true)), ReplicasHandover::Owned);
        assert_eq!(turn(live(1, false, false)), ReplicasHandover::Acquire(3), "just made");
        assert_eq!(turn(live(7, false, false)), ReplicasHandover::Acquire(7), "kubectl scale");
        assert_eq!(turn(live(0, true, false)), ReplicasHandover::Wait, "stopped");
    }

    #[test]
    fn the_scaler_lets_go_of_the_number_when_the_operator_has_it() {
        assert_eq!(handover(None, &live(5, false, true)), ReplicasHandover::Wait);
        assert_eq!(handover(None, &live(5, true, true)), ReplicasHandover::Release);
        assert_eq!(handover(None, &live(5, true, false)), ReplicasHandover::None);
    }
}
