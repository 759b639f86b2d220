//! Workloads of one kind, as the scaler sees them: reads the informer caches, writes through the API.

use std::{collections::HashMap, sync::Arc};

use actions::{
    ports::CacheReader,
    workload::{SCALER, WorkloadKind},
};
use async_trait::async_trait;
use cluster::{CustomObjects, ObjectMap, Transport};
use crds::CustomObject;
use machine::{ApiError, Clock, ObjectClient as _};
use meta::Key;

use super::{
    budget::{self, BudgetNote, ReportedTokens},
    cost::{self, PricedKind},
    fleet::{ScalingStatus, WorkloadId, WorkloadView},
    live::{ChangedWorkloads, concerns_scaling},
    status,
};

/// Workloads of one kind.
#[async_trait]
pub(super) trait KindFleet: Send + Sync {
    fn kind(&self) -> &'static str;
    fn keys(&self) -> Vec<Key>;
    fn view(&self, key: &Key) -> Option<WorkloadView>;
    async fn write_status(&self, key: &Key, uid: &str, status: &ScalingStatus) -> Result<(), ApiError>;
    fn due_budgets(&self, reported: &HashMap<WorkloadId, ReportedTokens>) -> Vec<WorkloadId>;
    async fn note_budget(&self, key: &Key, reported: Option<ReportedTokens>) -> Result<(), ApiError>;
}

/// Workloads of one kind, by their cache.
pub(super) struct KindWorkloads<K> {
    map: Arc<ObjectMap<K>>,
    caches: Arc<dyn CacheReader>,
    clock: Arc<dyn Clock>,
    objects: CustomObjects<K>,
}

impl<K: WorkloadKind + CustomObject + PricedKind> KindWorkloads<K> {
    /// Creates the workloads of a cache, whose changes `changes` gets.
    pub(super) fn watched(
        map: &Arc<ObjectMap<K>>,
        transport: &Arc<Transport>,
        caches: &Arc<dyn CacheReader>,
        clock: &Arc<dyn Clock>,
        changes: &Arc<ChangedWorkloads>,
    ) -> Box<dyn KindFleet> {
        let sink = changes.clone();
        map.subscribe(move |change| {
            if concerns_scaling(change) {
                sink.add(WorkloadId { kind: K::KIND, key: change.key.clone() });
            }
        });
        let objects = CustomObjects::new(transport.clone(), map.clone()).managed_by(SCALER);
        Box::new(Self { map: map.clone(), caches: caches.clone(), clock: clock.clone(), objects })
    }

    /// Returns what has to change in the status of a workload with budgets, by this report.
    fn budget_note(&self, cr: &K, reported: Option<ReportedTokens>) -> Option<BudgetNote> {
        let status = cr.common().filter(|status| !cr.is_deleting() && !status.is_initial())?;
        let (limits, namespace) = (&cr.traffic().limits, cr.meta().namespace.as_deref().unwrap_or_default());
        let prices = cost::prices(cr, limits, namespace, self.caches.as_ref());
        let change = budget::change(status, limits, &prices, reported, self.clock.now());
        let prices = prices.ok().flatten().map(|prices| prices.to_string());
        let is_known = cr.status().and_then(|status| status.prices.as_ref()) == prices.as_ref();
        let prices = (!is_known).then_some(prices);
        (change.is_some() || prices.is_some()).then_some(BudgetNote { change, prices })
    }
}

#[async_trait]
impl<K: WorkloadKind + CustomObject + PricedKind> KindFleet for KindWorkloads<K> {
    fn kind(&self) -> &'static str {
        K::KIND
    }

    fn keys(&self) -> Vec<Key> {
        self.map.keys()
    }

    fn view(&self, key: &Key) -> Option<WorkloadView> {
        let cr = self.map.get(key).filter(|cr| !cr.is_deleting())?;
        let deployment = self.caches.child(&cr.deployment());
        let scaling = cr.scaling().cloned();
        let held =
            deployment.as_ref().and_then(|live| live.deployment.as_ref()).is_some_and(|it| it.replicas_managers.scaler);
        if scaling.is_none() && !held {
            return None;
        }
        Some(WorkloadView {
            uid: cr.uid().to_owned(),
            scaling,
            stopped: cr.replicas() == 0,
            failed: cr.common().is_some_and(crds::is_ended_by_ready_pods),
            deployment,
            pods: self.caches.pods(K::KIND, &key.namespace, &key.name),
            tool: None,
            status: ScalingStatus {
                desired: cr.status().and_then(|status| status.desired_replicas),
                active: cr.common().and_then(status::active),
            },
        })
    }

    async fn write_status(&self, key: &Key, uid: &str, status: &ScalingStatus) -> Result<(), ApiError> {
        let Some(cr) = self.map.get(key).filter(|cr| cr.uid() == uid) else { return Ok(()) };
        match status::patch(uid, cr.generation(), &cr.status_json(), status, self.clock.now()) {
            Some(patch) => self.objects.patch_status(key, patch).await.map(drop),
            None => Ok(()),
        }
    }

    fn due_budgets(&self, reported: &HashMap<WorkloadId, ReportedTokens>) -> Vec<WorkloadId> {
        let keys = self.map.keys().into_iter().filter_map(|key| Some((self.map.get(&key)?, key)));
        let due = keys.filter_map(|(cr, key)| {
            let id = WorkloadId { kind: K::KIND, key };
            self.budget_note(&cr, reported.get(&id).copied()).map(|_| id)
        });
        due.collect()
    }

    async fn note_budget(&self, key: &Key, reported: Option<ReportedTokens>) -> Result<(), ApiError> {
        let Some(cr) = self.map.get(key) else { return Ok(()) };
        let Some(note) = self.budget_note(&cr, reported) else { return Ok(()) };
        let patch = budget::patch(cr.uid(), cr.generation(), &cr.status_json(), &note, self.clock.now());
        self.objects.patch_status(key, patch).await.map(drop)
    }
}
