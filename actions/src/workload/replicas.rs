//! Who sets `replicas` of the Deployment: the operator from the spec, the scaler, or somebody else.
//!
//! The Deployment is made with its number in one apply. A later number is applied alone, by a field manager of its own, so that
//! scaling replaces no Pod, whatever this build renders.
//!
//! The field changes hands without a gap: an apply that leaves a field out resets it to its default when nobody else has
//! applied it too. So whoever takes it over applies it with the value it has; when both are seen in managedFields, the
//! other one leaves it out; and only whoever has it alone sets another number.

use crds::{ChildRecord, Scaling};

use super::WorkloadKind;
use crate::ports::DeploymentState;

/// The scaler's field manager.
pub const SCALER: &str = "recif-scaler";

/// The operator's field manager of a number that is applied alone.
pub const REPLICAS: &str = "recif-replicas";

/// What the scaler is to do about the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicasHandover {
    /// It is its own: any number may be set.
    Owned,
    /// Apply this number, to take it over.
    Acquire(i32),
    /// Leave it out: the operator has it.
    Release,
    /// It is the operator's turn.
    Wait,
    /// It is none of its business.
    None,
}

/// Fewest Pods of a workload that runs and does not sleep.
pub fn min_running(scaling: &Scaling) -> i32 {
    scaling.min_replicas.max(1)
}

/// The scaler's turn. `scaling`: of a workload that has it and is not stopped.
pub fn handover(scaling: Option<&Scaling>, live: &DeploymentState) -> ReplicasHandover {
    let by = &live.replicas_managers;
    match (scaling, by.has_operator(), by.scaler) {
        // It was stopped, and is to be started by the operator.
        (Some(_), true, false) if live.desired == 0 => ReplicasHandover::Wait,
        (Some(_), true, false) => ReplicasHandover::Acquire(live.desired),
        (Some(_), true, true) => ReplicasHandover::Wait,
        (Some(_), false, true) => ReplicasHandover::Owned,
        // Just made, or taken by somebody else.
        (Some(scaling), false, false) => ReplicasHandover::Acquire(live.desired.max(min_running(scaling))),
        (None, true, true) => ReplicasHandover::Release,
        (None, false, true) => ReplicasHandover::Wait,
        (None, _, false) => ReplicasHandover::None,
    }
}

/// The scaling that is in force: a stopped workload has none.
pub(super) fn scaling<K: WorkloadKind>(cr: &K) -> Option<&Scaling> {
    cr.scaling().filter(|_| cr.replicas() > 0)
}

/// How many Pods are wanted: the user's number, or that of whoever else sets it.
pub(super) fn desired<K: WorkloadKind>(cr: &K, live: &DeploymentState) -> i32 {
    let by_others = scaling(cr).is_some() || live.replicas_managers.other_manager().is_some();
    if cr.replicas() > 0 && by_others { live.desired } else { cr.replicas() }
}

/// How many Pods make the workload ready: all that are wanted or, where the load says how many, the fewest there may be.
pub(super) fn required<K: WorkloadKind>(cr: &K, live: &DeploymentState) -> i32 {
    let wanted = desired(cr, live);
    scaling(cr).map_or(wanted, |scaling| wanted.min(min_running(scaling)))
}

/// How many Pods of a new template are to become ready.
pub(super) fn expected<K: WorkloadKind>(cr: &K, live: Option<&DeploymentState>) -> i32 {
    live.map_or_else(|| scaling(cr).map_or(cr.replicas(), min_running), |live| desired(cr, live))
}

/// Whether the user's number is another one than when the Deployment was last applied, as its `record` says.
fn is_edited<K: WorkloadKind>(cr: &K, record: Option<&ChildRecord>) -> bool {
    match record.and_then(|record| record.replicas) {
        Some(known) => known != cr.replicas(),
        // The record of an older build.
        None => cr.is_edited(),
    }
}

/// `replicas` as it goes into the operator's apply of the whole Deployment: the first number, and, because an apply without it
/// could take it away, the number there is while that apply has it. `None`: left out.
pub(super) fn applied_replicas<K: WorkloadKind>(cr: &K, live: Option<&DeploymentState>) -> Option<i32> {
    match live {
        None => scaling(cr).is_none().then(|| cr.replicas()),
        Some(live) => (live.replicas_managers.operator && !is_handed_over(cr, live)).then_some(live.desired),
    }
}

/// Whether the scaler has taken the field over from the apply of the whole Deployment, which is to leave it out now.
pub(super) fn is_handed_over<K: WorkloadKind>(cr: &K, live: &DeploymentState) -> bool {
    live.replicas_managers.operator && live.replicas_managers.scaler && scaling(cr).is_some()
}

/// A change of the field alone that is the operator's to make: another number, which is the user's unless the scaler's or,
/// until the user edits it, a stranger's counts; or (`Some(None)`) to leave it to the scaler.
pub(super) fn due_change<K: WorkloadKind>(
    cr: &K,
    live: &DeploymentState,
    record: Option<&ChildRecord>,
) -> Option<Option<i32>> {
    let by = &live.replicas_managers;
    if let Some(scaling) = scaling(cr) {
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

/// Whether the scaler has yet to take the field over.
pub(super) fn awaits_scaler<K: WorkloadKind>(cr: &K, live: &DeploymentState) -> bool {
    scaling(cr).is_some_and(|scaling| handover(Some(scaling), live) != ReplicasHandover::Owned)
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
