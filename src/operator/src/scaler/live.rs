//! Port of the scaler on the cluster itself: reads the informer caches, writes through the API.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use actions::{
    ports::{CacheReader, CachedChild, ChildKind, WorkloadPod},
    workload::{SCALER, WorkloadKind},
};
use async_trait::async_trait;
use cluster::{
    Change, CustomObjects, ObjectMap, ScaleWriter, Transport, WatchHealth,
    cache::{Caches, Referrers, workload_label},
};
use crds::{Agent, CustomObject, Flow, FlowSet, GROUP, KINDS, RefKind, Tool};
use machine::{ApiError, Clock, ObjectClient as _};
use meta::{Key, PhasedObject as _};
use tokio::sync::Notify;

use super::{
    budget::{self, BudgetNote, ReportedTokens},
    cost::{self, PricedKind},
    fallback::FallbackConditions,
    fleet::{ScalingStatus, ViewError, WorkloadFleet, WorkloadId, WorkloadView},
    gateways::ModelCounts,
    status,
};

/// Addresses behind the gateways' admin Service, by EndpointSlice.
pub type GatewayMap = ObjectMap<Vec<SocketAddr>>;

/// Workloads of the cluster.
pub struct LiveFleet {
    kinds: Vec<Box<dyn KindFleet>>,
    fallbacks: FallbackConditions,
    tools: Arc<Referrers>,
    caches: Arc<dyn CacheReader>,
    changes: Arc<ChangedWorkloads>,
    gateways: Arc<GatewayMap>,
    writer: ScaleWriter,
    watch_health: Arc<WatchHealth>,
}

impl fmt::Debug for LiveFleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveFleet").finish_non_exhaustive()
    }
}

impl LiveFleet {
    /// Creates the fleet of these caches. Must be called before the first watch starts.
    pub fn new(
        transport: &Arc<Transport>,
        maps: &Caches,
        caches: &Arc<dyn CacheReader>,
        clock: &Arc<dyn Clock>,
        gateways: Arc<GatewayMap>,
        board: Arc<WatchHealth>,
    ) -> Self {
        let changes = Arc::new(ChangedWorkloads::default());
        let tools = Arc::new(Referrers::default());
        let follower = tools.clone();
        maps.kinds.of::<Tool>().subscribe(move |change| follower.follow(change));
        let deployments = maps.children.get(&ChildKind::Deployment).cloned().unwrap_or_default();
        let sink = changes.clone();
        deployments.subscribe(move |change| {
            if concerns_replicas(change) {
                owners(change).for_each(|id| sink.add(id));
            }
        });
        let kinds: Vec<Box<dyn KindFleet>> = vec![
            KindWorkloads::<Agent>::watched(maps.kinds.of::<Agent>(), transport, caches, clock, &changes),
            KindWorkloads::<Flow>::watched(maps.kinds.of::<Flow>(), transport, caches, clock, &changes),
            KindWorkloads::<FlowSet>::watched(maps.kinds.of::<FlowSet>(), transport, caches, clock, &changes),
        ];
        let fallbacks = FallbackConditions::new(maps.kinds.of::<Agent>(), transport, caches, clock);
        let writer = ScaleWriter::new(transport.clone(), deployments);
        Self { kinds, fallbacks, tools, caches: caches.clone(), changes, gateways, writer, watch_health: board }
    }

    /// Reports whether Tools of this namespace may call the workload.
    fn admits(&self, id: &WorkloadId, namespace: &str) -> bool {
        let is_agent = id.kind == Agent::KIND;
        namespace == id.key.namespace
            || self.caches.get::<Agent>(&id.key.namespace, &id.key.name).filter(|_| is_agent).is_some_and(|agent| {
                let labels = self.caches.namespace_labels(namespace);
                agent.spec.allowed_namespaces.as_ref().is_some_and(|allowed| allowed.admits(labels.as_deref()))
            })
    }

    fn kind(&self, id: &WorkloadId) -> Option<&dyn KindFleet> {
        self.kinds.iter().find(|kind| kind.kind() == id.kind).map(Box::as_ref)
    }
}

#[async_trait]
impl WorkloadFleet for LiveFleet {
    fn all(&self) -> Vec<WorkloadId> {
        let ids = self.kinds.iter().flat_map(|kind| {
            let keys = kind.keys().into_iter().filter(|key| kind.view(key).is_some());
            keys.map(|key| WorkloadId { kind: kind.kind(), key }).collect::<Vec<_>>()
        });
        ids.collect()
    }

    async fn changed(&self) -> Vec<WorkloadId> {
        self.changes.drain().await
    }

    fn view(&self, id: &WorkloadId) -> Result<WorkloadView, ViewError> {
        let seen = self.kind(id).and_then(|kind| kind.view(&id.key));
        let mut seen = seen.ok_or(ViewError::Gone)?;
        if ["Deployment", "Pod"].iter().any(|kind| self.watch_health.unlisted(kind, &id.key.namespace).is_some()) {
            return Err(ViewError::NotListed);
        }
        let may_sleep = seen.scaling.as_ref().is_some_and(|scaling| scaling.min_replicas == 0);
        if let Some(kind) = RefKind::parse(id.kind).filter(|_| may_sleep) {
            let mut users = self.tools.of(kind, &id.key).into_iter();
            let tool = users.find(|(kind, key)| *kind == Tool::KIND && self.admits(id, &key.namespace));
            seen.tool = tool.map(|(_, key)| key.name);
        }
        Ok(seen)
    }

    fn gateways(&self) -> Vec<SocketAddr> {
        let slices = self.gateways.keys().into_iter().filter_map(|key| self.gateways.get(&key));
        let mut addresses: Vec<_> = slices.flat_map(|slice| slice.to_vec()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    async fn set_replicas(&self, deployment: &CachedChild, replicas: Option<i32>) -> Result<(), ApiError> {
        self.writer.set_replicas(deployment, replicas).await
    }

    async fn set_deletion_cost(&self, namespace: &str, pod: &WorkloadPod, cost: Option<i32>) -> Result<(), ApiError> {
        self.writer.set_deletion_cost(namespace, pod, cost).await
    }

    async fn write_status(&self, id: &WorkloadId, uid: &str, status: &ScalingStatus) -> Result<(), ApiError> {
        match self.kind(id) {
            Some(kind) => kind.write_status(&id.key, uid, status).await,
            None => Ok(()),
        }
    }

    async fn note_models(&self, id: &WorkloadId, answered: &ModelCounts) -> Result<(), ApiError> {
        if id.kind == Agent::KIND { self.fallbacks.write(&id.key, answered).await } else { Ok(()) }
    }

    fn due_budgets(&self, reported: &HashMap<WorkloadId, ReportedTokens>) -> Vec<WorkloadId> {
        self.kinds.iter().flat_map(|kind| kind.due_budgets(reported)).collect()
    }

    async fn note_budget(&self, id: &WorkloadId, reported: Option<ReportedTokens>) -> Result<(), ApiError> {
        match self.kind(id) {
            Some(kind) => kind.note_budget(&id.key, reported).await,
            None => Ok(()),
        }
    }
}

/// Workloads of one kind.
#[async_trait]
trait KindFleet: Send + Sync {
    fn kind(&self) -> &'static str;
    fn keys(&self) -> Vec<Key>;
    fn view(&self, key: &Key) -> Option<WorkloadView>;
    async fn write_status(&self, key: &Key, uid: &str, status: &ScalingStatus) -> Result<(), ApiError>;
    fn due_budgets(&self, reported: &HashMap<WorkloadId, ReportedTokens>) -> Vec<WorkloadId>;
    async fn note_budget(&self, key: &Key, reported: Option<ReportedTokens>) -> Result<(), ApiError>;
}

struct KindWorkloads<K> {
    map: Arc<ObjectMap<K>>,
    caches: Arc<dyn CacheReader>,
    clock: Arc<dyn Clock>,
    objects: CustomObjects<K>,
}

impl<K: WorkloadKind + CustomObject + PricedKind> KindWorkloads<K> {
    fn watched(
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

/// Workloads that changed since the last call of `drain`.
#[derive(Debug, Default)]
struct ChangedWorkloads {
    ids: Mutex<HashSet<WorkloadId>>,
    added: Notify,
}

impl ChangedWorkloads {
    fn add(&self, id: WorkloadId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.added.notify_one();
    }

    async fn drain(&self) -> Vec<WorkloadId> {
        loop {
            let taken = std::mem::take(&mut *self.ids.lock().unwrap_or_else(PoisonError::into_inner));
            if !taken.is_empty() {
                return taken.into_iter().collect();
            }
            self.added.notified().await;
        }
    }
}

/// Reports whether a change of a workload concerns the scaler: its identity or spec is new, and it has scaling or had.
fn concerns_scaling<K: WorkloadKind>(change: &Change<K>) -> bool {
    let of = |cr: &Option<Arc<K>>| cr.as_ref().map(|cr| (cr.uid().to_owned(), cr.generation(), cr.is_deleting()));
    let scaled = |cr: &Option<Arc<K>>| cr.as_ref().is_some_and(|cr| cr.scaling().is_some());
    of(&change.old) != of(&change.new) && (scaled(&change.old) || scaled(&change.new))
}

/// Reports whether a change of a Deployment concerns the scaler: it is new, or its number of Pods or the owners of that changed.
fn concerns_replicas(change: &Change<CachedChild>) -> bool {
    let of = |child: &Option<Arc<CachedChild>>| {
        let child = child.as_ref()?;
        let state = child.deployment.as_ref()?;
        Some((child.uid.clone(), child.deleting, state.desired, state.replicas_managers.clone()))
    };
    of(&change.old) != of(&change.new)
}

/// Returns the workload that a Deployment belongs or belonged to.
fn owners(change: &Change<CachedChild>) -> impl Iterator<Item = WorkloadId> {
    let child = change.new.as_ref().or(change.old.as_ref());
    let owner = child.and_then(|child| match &child.controller {
        Some(owner) => (owner.group == GROUP).then(|| (owner.kind.clone(), owner.name.clone())),
        None => KINDS
            .iter()
            .find_map(|kind| Some((kind.name.to_owned(), child.labels.get(&workload_label(kind.name))?.clone()))),
    });
    let id = owner.and_then(|(kind, name)| {
        let kind = KINDS.iter().find(|known| known.name == kind)?;
        Some(WorkloadId { kind: kind.name, key: Key::new(&change.key.namespace, name) })
    });
    id.into_iter()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use cluster::{
        ChangeSource, ObjectVersion, Versioned as Version, WriteGate, cache::InformerReader, crash::CrashPoint,
        metrics::ApiMetrics, resource::Resource,
    };
    use machine::SystemClock;
    use serde_json::{Value, json};

    use super::*;

    fn observe<K: serde::de::DeserializeOwned>(map: &ObjectMap<K>, version: u64, object: Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = Key::new(text("namespace"), text("name"));
        let head = ObjectVersion { key, uid: "u".into(), resource_version: version };
        if let Ok(object) = serde_json::from_value(object) {
            map.observe(Version::new(head, object), ChangeSource::Watch);
        }
    }

    fn agent(generation: i64, min: i32) -> Value {
        json!({"apiVersion": "agents.recif.dev/v1", "kind": "Agent",
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "generation": generation},
            "spec": {"name": "A", "framework": "corail", "scaling": {"minReplicas": min}}})
    }

    #[tokio::test]
    async fn what_is_scaled_is_seen_while_its_pods_are_known_and_with_the_tool_that_keeps_it_awake() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("there is no API server"))
        });
        let client = kube::Client::new(service, "default");
        let transport =
            Transport::new(client, || None, WriteGate::always(), CrashPoint::default(), ApiMetrics::default());
        let children = HashMap::from([(ChildKind::Deployment, Arc::default())]);
        let maps = Caches { children, ..Caches::default() };
        let board = Arc::new(WatchHealth::default());
        let caches: Arc<dyn CacheReader> = Arc::new(InformerReader::new(&maps, board.clone()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let fleet = LiveFleet::new(&Arc::new(transport), &maps, &caches, &clock, Arc::default(), board.clone());

        let id = WorkloadId { kind: "Agent", key: Key::new("ns", "a") };
        assert_eq!(fleet.view(&id).map(drop), Err(ViewError::Gone));
        observe(maps.kinds.of::<Agent>(), 1, agent(1, 0));
        assert_eq!(fleet.all(), std::slice::from_ref(&id));
        assert_eq!(fleet.view(&id).unwrap().tool, None);
        let tool = |namespace: &str| {
            json!({"apiVersion": "agents.recif.dev/v1", "kind": "Tool",
                "metadata": {"name": "ask", "namespace": namespace, "uid": namespace},
                "spec": {"name": "ask", "type": "agent", "agentRef": {"name": "a", "namespace": "ns"}}})
        };
        observe(maps.kinds.of::<Tool>(), 2, tool("other"));
        assert_eq!(fleet.view(&id).unwrap().tool, None, "a Tool that may not ask it");
        observe(maps.kinds.of::<Tool>(), 3, tool("ns"));
        assert_eq!(fleet.view(&id).unwrap().tool.as_deref(), Some("ask"));
        observe(maps.kinds.of::<Agent>(), 3, agent(2, 1));
        assert_eq!(fleet.view(&id).unwrap().tool, None, "it stays anyway");

        let pods = board.add(&Resource::POD, None);
        assert_eq!(fleet.view(&id).map(drop), Err(ViewError::NotListed));
        assert_eq!(fleet.all(), std::slice::from_ref(&id), "it is scaled once they are listed");
        board.record_list(pods);
        assert!(fleet.view(&id).is_ok());
    }
}
