//! Conditions on the models of agents, which are written beside the rounds.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{sync::Semaphore, time::sleep};

use super::{
    super::{ModelCounts, WorkloadFleet, WorkloadId},
    writes::WRITE_BACKOFF,
};

/// Writes of these conditions. Invariant: an agent has at most one.
#[derive(Default)]
pub(super) struct ModelNotes {
    pending: FuturesUnordered<BoxFuture<'static, WorkloadId>>,
    agents: HashSet<WorkloadId>,
}

impl ModelNotes {
    /// Begins the writes for agents whose models answered so, with the permits of all writes.
    pub(super) fn begin(
        &mut self,
        models: HashMap<WorkloadId, ModelCounts>,
        fleet: &Arc<dyn WorkloadFleet>,
        permits: &Arc<Semaphore>,
    ) {
        for (id, answered) in models {
            if !self.agents.insert(id.clone()) {
                continue;
            }
            let (fleet, permits) = (fleet.clone(), permits.clone());
            self.pending.push(Box::pin(async move {
                let permit = permits.acquire().await;
                let result = fleet.note_models(&id, &answered).await;
                drop(permit);
                if let Err(error) = result {
                    // The next round tries again.
                    tracing::debug!(namespace = id.key.namespace, name = id.key.name, %error, "a fallback is not noted");
                    sleep(WRITE_BACKOFF).await;
                }
                id
            }));
        }
    }

    /// Waits for the end of a write; `None`: there is none.
    pub(super) async fn next(&mut self) -> Option<()> {
        let id = self.pending.next().await?;
        self.agents.remove(&id);
        Some(())
    }
}
