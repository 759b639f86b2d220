//! Conditions on the models of agents, on their calls that wait for a person, and on budgets of tokens, which are written beside the
//! rounds.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use crds::pending_calls::PendingCalls;
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use machine::ApiError;
use tokio::{sync::Semaphore, time::sleep};

use super::{
    super::{ModelCounts, ReportedTokens, WorkloadFleet, WorkloadId},
    writes::WRITE_BACKOFF,
};

/// Shortest time between two looks at the models of an agent, for which the responses of a minute are counted, and between two writes about
/// its calls that wait, which may be others after each response.
const NOTE_PAUSE: Duration = Duration::from_secs(5);

/// Write of a condition.
type NoteWrite = BoxFuture<'static, Result<(), ApiError>>;

/// Writes of these conditions. Invariant: a workload has at most one.
#[derive(Default)]
pub(super) struct StatusNotes {
    /// Times of the last looks, for agents whose models answered.
    noted: HashMap<WorkloadId, Duration>,
    /// Times of the last writes, for agents that report calls which wait.
    noted_pending: HashMap<WorkloadId, Duration>,
    pending: FuturesUnordered<BoxFuture<'static, WorkloadId>>,
    workloads: HashSet<WorkloadId>,
}

impl StatusNotes {
    /// Begins the writes for agents whose models answered so, with the permits of all writes. `now` is the time since the scaler
    /// began.
    pub(super) fn begin(
        &mut self,
        models: HashMap<WorkloadId, ModelCounts>,
        now: Duration,
        fleet: &Arc<dyn WorkloadFleet>,
        permits: &Arc<Semaphore>,
    ) {
        self.noted.retain(|id, at| models.contains_key(id) && now.saturating_sub(*at) < NOTE_PAUSE);
        for (id, answered) in models {
            if self.noted.contains_key(&id) {
                continue;
            }
            let (fleet, of) = (fleet.clone(), id.clone());
            let write = async move { fleet.note_models(&of, &answered).await };
            if self.push(id.clone(), permits, Box::pin(write)) {
                self.noted.insert(id, now);
            }
        }
    }

    /// Begins the writes for agents that reported these calls which wait. `now` is the time since the scaler began.
    pub(super) fn begin_pending(
        &mut self,
        pending: HashMap<WorkloadId, PendingCalls>,
        now: Duration,
        fleet: &Arc<dyn WorkloadFleet>,
        permits: &Arc<Semaphore>,
    ) {
        self.noted_pending.retain(|id, at| pending.contains_key(id) && now.saturating_sub(*at) < NOTE_PAUSE);
        for (id, calls) in pending {
            if self.noted_pending.contains_key(&id) || !fleet.is_pending_due(&id, &calls) {
                continue;
            }
            let (fleet, of) = (fleet.clone(), id.clone());
            if self.push(id.clone(), permits, Box::pin(async move { fleet.note_pending(&of, &calls).await })) {
                self.noted_pending.insert(id, now);
            }
        }
    }

    /// Begins the writes for workloads whose budgets these reports say to be spent or not.
    pub(super) fn begin_budgets(
        &mut self,
        reported: &HashMap<WorkloadId, ReportedTokens>,
        fleet: &Arc<dyn WorkloadFleet>,
        permits: &Arc<Semaphore>,
    ) {
        for id in fleet.due_budgets(reported) {
            let (fleet, of, tokens) = (fleet.clone(), id.clone(), reported.get(&id).copied());
            self.push(id, permits, Box::pin(async move { fleet.note_budget(&of, tokens).await }));
        }
    }

    /// Begins a write and returns true, unless one of the workload is under way: the next round tries again.
    fn push(&mut self, id: WorkloadId, permits: &Arc<Semaphore>, write: NoteWrite) -> bool {
        if !self.workloads.insert(id.clone()) {
            return false;
        }
        let permits = permits.clone();
        self.pending.push(Box::pin(async move {
            let permit = permits.acquire().await;
            let result = write.await;
            drop(permit);
            if let Err(error) = result {
                // The next round tries again.
                tracing::debug!(namespace = id.key.namespace, name = id.key.name, %error, "a condition is not noted");
                sleep(WRITE_BACKOFF).await;
            }
            id
        }));
        true
    }

    /// Waits for the end of a write; `None`: there is none.
    pub(super) async fn next(&mut self) -> Option<()> {
        let id = self.pending.next().await?;
        self.workloads.remove(&id);
        Some(())
    }
}
