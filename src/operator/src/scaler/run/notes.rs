//! Conditions on the models of agents and on budgets of tokens, which are written beside the rounds.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use machine::ApiError;
use tokio::{sync::Semaphore, time::sleep};

use super::{
    super::{ModelCounts, ReportedTokens, WorkloadFleet, WorkloadId},
    writes::WRITE_BACKOFF,
};

/// Writes of these conditions. Invariant: a workload has at most one.
#[derive(Default)]
pub(super) struct StatusNotes {
    pending: FuturesUnordered<BoxFuture<'static, WorkloadId>>,
    workloads: HashSet<WorkloadId>,
}

impl StatusNotes {
    /// Begins the writes for agents whose models answered so, with the permits of all writes.
    pub(super) fn begin(
        &mut self,
        models: HashMap<WorkloadId, ModelCounts>,
        fleet: &Arc<dyn WorkloadFleet>,
        permits: &Arc<Semaphore>,
    ) {
        for (id, answered) in models {
            let (fleet, of) = (fleet.clone(), id.clone());
            self.push(id, permits, Box::pin(async move { fleet.note_models(&of, &answered).await }));
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

    /// Begins a write, unless one of the workload is under way: the next round tries again.
    fn push(&mut self, id: WorkloadId, permits: &Arc<Semaphore>, write: BoxFuture<'static, Result<(), ApiError>>) {
        if !self.workloads.insert(id.clone()) {
            return;
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
    }

    /// Waits for the end of a write; `None`: there is none.
    pub(super) async fn next(&mut self) -> Option<()> {
        let id = self.pending.next().await?;
        self.workloads.remove(&id);
        Some(())
    }
}
