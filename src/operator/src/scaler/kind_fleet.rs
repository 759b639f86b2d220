//! Workloads of one kind, as the scaler sees them: reads the informer caches, writes through the API.

use std::{collections::HashMap, sync::Arc};

use actions::{
    ports::CacheReader,
    workload::{SCALER, WorkloadKind},
};
use async_trait::async_trait;
use cluster::{CustomObjects, ObjectMap, Transport, WatchHealth};
use crds::CustomObject;
use machine::{ApiError, Clock, ObjectClient as _};
use meta::{Key, condition_type};

use super::{
    budget::{self, BudgetNote, ReportedTokens},
    changed_workloads::{ChangedWorkloads, concerns_scaling},
    cost::{self, PricedKind},
    fleet::{ScalingStatus, WorkloadId, WorkloadView},
    status, unreported,
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
    board: Arc<WatchHealth>,
    objects: CustomObjects<K>,
}

impl<K: WorkloadKind + CustomObject + PricedKind> KindWorkloads<K> {
    /// Creates the workloads of a cache, whose changes `changes` gets.
    pub(super) fn watched(
        map: &Arc<ObjectMap<K>>,
        transport: &Arc<Transport>,
        caches: &Arc<dyn CacheReader>,
        clock: &Arc<dyn Clock>,
        board: &Arc<WatchHealth>,
        changes: &Arc<ChangedWorkloads>,
    ) -> Box<dyn KindFleet> {
        let sink = changes.clone();
        map.subscribe(move |change| {
            if concerns_scaling(change) {
                sink.add(WorkloadId { kind: K::KIND, key: change.key.clone() });
            }
        });
        let objects = CustomObjects::new(transport.clone(), map.clone()).managed_by(SCALER);
        Box::new(Self { map: map.clone(), caches: caches.clone(), clock: clock.clone(), board: board.clone(), objects })
    }

    /// Returns what has to change in the status of a workload with budgets, by this report.
    fn budget_note(&self, cr: &K, reported: Option<ReportedTokens>) -> Option<BudgetNote> {
        let status = cr.common().filter(|status| !cr.is_deleting() && !status.is_initial())?;
        let (limits, namespace) = (&cr.traffic().limits, cr.meta().namespace.as_deref().unwrap_or_default());
        let stored = cr.status().and_then(|status| status.prices.as_deref());
        let noted = [condition_type::WITHIN_LIMITS, condition_type::LIMITS_ENFORCED];
        if limits.is_empty() && stored.is_none() && noted.iter().all(|type_| status.condition(type_).is_none()) {
            return None;
        }
        // What is not listed is unknown, not gone.
        let has_cost = limits.iter().any(|limit| limit.cost_per_day.is_some());
        if has_cost && ["Model", "PluginConfig"].iter().any(|kind| self.board.unlisted(kind, namespace).is_some()) {
            return None;
        }
        let effective = cost::prices(cr, limits, namespace, self.caches.as_ref(), stored);
        let change = budget::change(status, limits, &effective, reported, self.clock.now());
        let prices = effective.prices.map(|prices| prices.to_string());
        let prices = (prices.as_deref() != stored).then_some(prices);
        let reporting = unreported::change(status, limits, reported.and_then(|reported| reported.reporting));
        let is_due = change.is_some() || prices.is_some() || reporting.is_some();
        is_due.then_some(BudgetNote { change, prices, reporting })
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use cluster::{ChangeSource, cache::Caches, resource::Resource};
    use crds::{Agent, Model, PluginConfig, usage::day_of};
    use http::{Request, Response};
    use jiff::Timestamp;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::scaler::{
        LiveFleet, WorkloadFleet as _,
        testing::{fleet, observe},
    };

    /// Prices of [`model`] for 3 EUR.
    const PRICES: &str = "EUR, openai/m 3000000 3000000 3000000 3000000";

    /// Returns a client of an API server that holds this object, and applies patches to its status.
    fn client(stored: &Arc<Mutex<Value>>) -> kube::Client {
        let stored = stored.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let stored = stored.clone();
            async move {
                let body = request.into_body().collect_bytes().await.map_err(std::io::Error::other)?;
                let steps: Vec<Value> = serde_json::from_slice(&body)?;
                let mut object = stored.lock().unwrap();
                for step in &steps {
                    let path = step["path"].as_str().unwrap();
                    let field = path.strip_prefix("/status/").unwrap_or(path);
                    match step["op"].as_str() {
                        Some("test") => assert_eq!(object.pointer(path), Some(&step["value"]), "{step}"),
                        Some("add") => object["status"][field] = step["value"].clone(),
                        _ => drop(object["status"].as_object_mut().unwrap().remove(field).unwrap()),
                    }
                }
                let version = version(&object) + 1;
                object["metadata"]["resourceVersion"] = version.to_string().into();
                Ok::<_, std::io::Error>(Response::new(Body::from(object.to_string().into_bytes())))
            }
        });
        kube::Client::new(service, "ns")
    }

    fn version(object: &Value) -> u64 {
        object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }

    /// Returns the Model `one` of this version.
    fn model(version: u64, price: Option<&str>) -> Value {
        let price = price.map(|price| json!({"currency": "EUR", "input": price, "output": price}));
        json!({"metadata": {"name": "one", "namespace": "ns", "uid": "m", "resourceVersion": version.to_string()},
            "spec": {"provider": "x", "model": "m", "pluginConfigRef": {"name": "p"}, "price": price}})
    }

    /// Agent `a` with a budget of cost, whose Model is `one`.
    struct PricedAgent {
        fleet: LiveFleet,
        maps: Caches,
        board: Arc<WatchHealth>,
        stored: Arc<Mutex<Value>>,
    }

    impl PricedAgent {
        fn new() -> Self {
            let ready = json!({"type": "Ready", "status": "True", "reason": "Running", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let stored = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
                "spec": {"name": "A", "framework": "corail", "modelRef": {"name": "one"}},
                "status": {"phase": "Running", "conditions": [ready]}});
            let (stored, board, maps) = (Arc::new(Mutex::new(stored)), Arc::default(), Caches::default());
            let fleet = fleet(client(&stored), &maps, &board);
            let plugin = json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"type": "openai"}});
            observe(maps.kinds.of::<PluginConfig>(), 1, plugin);
            let it = Self { fleet, maps, board, stored };
            it.limit(&json!([{"per": "workload", "costPerDay": "2.5"}]));
            it
        }

        /// Sets its limits.
        fn limit(&self, limits: &Value) {
            let mut stored = self.stored.lock().unwrap();
            stored["spec"]["limits"] = limits.clone();
            let next = version(&stored) + 1;
            stored["metadata"]["resourceVersion"] = next.to_string().into();
            observe(self.maps.kinds.of::<Agent>(), next, stored.clone());
        }

        /// Returns the workloads whose status is to be written, while a gateway reports this cost of today.
        fn due(&self, cost: u64) -> Vec<(WorkloadId, ReportedTokens)> {
            let id = WorkloadId { kind: "Agent", key: Key::new("ns", "a") };
            let tokens = ReportedTokens { day: day_of(Timestamp::now().as_second()), spent: 1, cost, reporting: None };
            let due = self.fleet.due_budgets(&HashMap::from([(id, tokens)]));
            due.into_iter().map(|id| (id, tokens)).collect()
        }

        /// Writes what is due, and returns status, message and prices as they are then.
        async fn round(&self, cost: u64) -> (String, String, Value) {
            for (id, tokens) in self.due(cost) {
                self.fleet.note_budget(&id, Some(tokens)).await.unwrap();
            }
            assert_eq!(self.due(cost).len(), 0, "it is written once");
            let status = self.stored.lock().unwrap()["status"].clone();
            let text = |field: &str| status["conditions"][1][field].as_str().unwrap_or_default().to_owned();
            (text("status"), text("message"), status["prices"].clone())
        }
    }

    #[tokio::test]
    async fn prices_are_written_and_hold_while_the_model_has_none_or_is_gone() {
        let agent = PricedAgent::new();
        let models = agent.maps.kinds.of::<Model>();
        let says = |status: &str, message: &str, prices: Value| (status.to_owned(), message.to_owned(), prices);
        let gone = "model \"one\" not found, which costPerDay needs";
        assert_eq!(agent.round(9).await, says("Unknown", gone, Value::Null));
        observe(models, 1, model(1, Some("3")));
        let within = || says("True", "tokens are left today", PRICES.into());
        assert_eq!(agent.round(9).await, within());
        observe(models, 2, model(2, None));
        let unpriced = "model \"one\" has no spec.price, which costPerDay needs; the last prices hold";
        assert_eq!(agent.round(9).await, says("Unknown", unpriced, PRICES.into()));
        let spent =
            "its cost budget of today (2.5 EUR) is spent, 429 until 00:00 UTC: raise limits[workload].costPerDay";
        assert_eq!(agent.round(2_500_000_000).await, says("False", spent, PRICES.into()));
        models.remove(&Key::new("ns", "one"), 3, ChangeSource::Watch);
        let held = format!("{gone}; the last prices hold");
        assert_eq!(agent.round(9).await, says("Unknown", &held, PRICES.into()));
        observe(models, 4, model(4, Some("3")));
        assert_eq!(agent.round(9).await, within());
        agent.limit(&json!([]));
        assert_eq!(agent.round(9).await, says("", "", Value::Null));
    }

    #[tokio::test]
    async fn models_that_are_not_listed_yet_change_nothing() {
        let agent = PricedAgent::new();
        let watches =
            [Resource::of::<Model>(), Resource::of::<PluginConfig>()].map(|kind| agent.board.add(&kind, None));
        assert_eq!(agent.due(9).len(), 0);
        agent.board.record_list(watches[0]);
        assert_eq!(agent.due(9).len(), 0, "providers are not listed");
        agent.board.record_list(watches[1]);
        assert_eq!(agent.due(9).len(), 1);
        agent.limit(&json!([{"per": "caller", "requestsPerMinute": 1}]));
        assert_eq!(agent.due(9).len(), 0, "it has no budget");
    }
}
