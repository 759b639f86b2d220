//! Writes of the scaler.

use std::time::Duration;

use futures::future::try_join_all;
use machine::ApiError;

use super::super::{Direction, WorkloadFleet, WorkloadId, WorkloadView, tracked::PlannedWrites};

/// Back-off after a failed write.
pub(super) const WRITE_BACKOFF: Duration = Duration::from_secs(5);

/// Reports whether the error is more than a change at the same moment, which the next round takes into account.
pub(super) fn should_log(error: &ApiError) -> bool {
    !matches!(error, ApiError::Stale | ApiError::WrongUid(_) | ApiError::NotFound)
}

/// Writes the deletion costs first, then `replicas`, then the status. Returns the direction in which the number of Pods was changed, also
/// if the status could not be written after it.
pub(super) async fn apply_writes(
    fleet: &dyn WorkloadFleet,
    id: &WorkloadId,
    seen: &WorkloadView,
    writes: &PlannedWrites,
) -> (Option<Direction>, Result<(), ApiError>) {
    let scaled = match scale(fleet, id, seen, writes).await {
        Ok(scaled) => scaled,
        Err(error) => return (None, Err(error)),
    };
    let result = match &writes.status {
        Some(status) => fleet.write_status(id, &seen.uid, status).await,
        None => Ok(()),
    };
    (scaled, result)
}

/// Writes the deletion costs and `replicas`. Returns the direction in which the number of Pods was changed.
async fn scale(
    fleet: &dyn WorkloadFleet,
    id: &WorkloadId,
    seen: &WorkloadView,
    writes: &PlannedWrites,
) -> Result<Option<Direction>, ApiError> {
    let costs = writes.costs.iter().map(|(pod, cost)| fleet.set_deletion_cost(&id.key.namespace, pod, *cost));
    try_join_all(costs).await?;
    let (Some(replicas), Some(deployment)) = (writes.replicas, &seen.deployment) else { return Ok(None) };
    fleet.set_replicas(deployment, replicas).await?;
    let (namespace, name) = (&id.key.namespace, &id.key.name);
    tracing::info!(kind = id.kind, namespace, name, replicas, "replicas set by the scaler");
    Ok(writes.direction)
}
