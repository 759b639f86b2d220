//! Conditions on the models of agents, which are written beside the rounds.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{sync::Semaphore, time::sleep};

use super::{
    super::{ModelCounts, WorkloadFleet, WorkloadId},
    writes::WRITE_BACKOFF,
};

/// Shortest time between two looks at the models of an agent: the responses of a minute are counted.
const NOTE_PAUSE: Duration = Duration::from_secs(5);

/// Writes of these conditions. Invariant: an agent has at most one.
#[derive(Default)]
pub(super) struct ModelNotes {
    /// Times of the last looks, for agents whose models answered.
    noted: HashMap<WorkloadId, Duration>,
    pending: FuturesUnordered<BoxFuture<'static, WorkloadId>>,
    agents: HashSet<WorkloadId>,
}

impl ModelNotes {
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
            if self.noted.contains_key(&id) || !self.agents.insert(id.clone()) {
                continue;
            }
            self.noted.insert(id.clone(), now);
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
