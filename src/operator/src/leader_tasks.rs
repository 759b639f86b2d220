//! Tasks of the replica that holds the Lease: reconciles, the scaler, and the keys of the gateways.

use std::{sync::Arc, time::Duration};

use actions::applied::AppliedRecords;
use cluster::{LeaderElector, WatchHealth, cache::Keys, secret::SecretObject};
use futures::future::{join_all, join4};
use tokio::time::timeout;

use super::{bindings::BindingController, controller::Controller, discovery::Discoverer};
use crate::{metrics::StepMetrics, scaler::Scaler};

/// Longest wait of a new leader for the keys of the gateways.
const KEYS_TIMEOUT: Duration = Duration::from_secs(5);

/// Tasks of a leader.
pub(super) struct LeaderTasks {
    pub(super) controllers: Arc<[Arc<dyn Controller>]>,
    pub(super) workers: usize,
    pub(super) scaler: Arc<Scaler>,
    pub(super) discoverer: Arc<Discoverer>,
    pub(super) binding_controller: BindingController,
    pub(super) keys: Keys,
    pub(super) secret: SecretObject,
}

impl LeaderTasks {
    /// Leads whenever this replica may; never returns.
    pub(super) async fn run_as_leader(
        &self,
        board: &WatchHealth,
        mut election: Option<&mut LeaderElector>,
        baselines: &AppliedRecords,
        steps: &StepMetrics,
    ) {
        board.settled().await;
        match board.notes().as_slice() {
            [] => tracing::info!("every watch has started"),
            lines => {
                tracing::warn!(
                    refused = lines.len(),
                    first = lines[0],
                    "led is what is known: some watches are refused"
                )
            }
        }
        loop {
            let controllers = join_all(self.controllers.iter().map(|controller| controller.run(self.workers)));
            let lead = async {
                // The first objects should be rendered with the keys, but missing keys do not keep the leader from its work.
                let _ = timeout(KEYS_TIMEOUT, self.keys.ensure(&self.secret)).await;
                join4(
                    controllers,
                    self.scaler.clone().run(),
                    self.keys.maintain(&self.secret),
                    self.binding_controller.run(),
                )
                .await
            };
            let Some(election) = &mut election else {
                steps.leading(true);
                lead.await;
                return;
            };
            election.acquire().await;
            tracing::info!("holding the lease");
            // Records of steps that ended after the last term are out of date.
            baselines.clear();
            self.discoverer.clear();
            steps.leading(true);
            // Losing the Lease drops every step in flight.
            tokio::select! {
                () = election.renew() => {}
                _ = lead => {}
            }
            steps.leading(false);
            self.discoverer.clear();
            tracing::warn!("the lease is lost: standing by");
        }
    }
}
