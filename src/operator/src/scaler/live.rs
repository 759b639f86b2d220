//! Port of the scaler on the cluster itself: reads the informer caches, writes through the API.

use std::{collections::HashMap, fmt, net::SocketAddr, sync::Arc};

use actions::ports::{CacheReader, CachedChild, ChildKind, WorkloadPod};
use async_trait::async_trait;
use cluster::{
    Change, ObjectMap, ScaleWriter, Transport, WatchHealth,
    cache::{Caches, Referrers, workload_label},
};
use crds::{Agent, Flow, FlowSet, GROUP, KINDS, RefKind, Tool, pending_calls::PendingCalls};
use machine::{ApiError, Clock};
use meta::{Key, PhasedObject as _};

use super::{
    budget::ReportedTokens,
    changed_workloads::ChangedWorkloads,
    fallback::FallbackConditions,
    fleet::{ScalingStatus, ViewError, WorkloadFleet, WorkloadId, WorkloadView},
    gateways::ModelCounts,
    kind_fleet::{KindFleet, KindWorkloads},
    pending::PendingConditions,
};

/// Addresses behind the gateways' admin Service, by EndpointSlice.
pub type GatewayMap = ObjectMap<Vec<SocketAddr>>;

/// Workloads of the cluster.
pub struct LiveFleet {
    kinds: Vec<Box<dyn KindFleet>>,
    fallbacks: FallbackConditions,
    pending: PendingConditions,
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
            KindWorkloads::<Agent>::watched(maps.kinds.of::<Agent>(), transport, caches, clock, &board, &changes),
            KindWorkloads::<Flow>::watched(maps.kinds.of::<Flow>(), transport, caches, clock, &board, &changes),
            KindWorkloads::<FlowSet>::watched(maps.kinds.of::<FlowSet>(), transport, caches, clock, &board, &changes),
        ];
        let fallbacks = FallbackConditions::new(maps.kinds.of::<Agent>(), transport, caches, clock);
        let pending = PendingConditions::new(maps.kinds.of::<Agent>(), transport, clock);
        let writer = ScaleWriter::new(transport.clone(), deployments);
        let caches = caches.clone();
        Self { kinds, fallbacks, pending, tools, caches, changes, gateways, writer, watch_health: board }
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

    fn is_pending_due(&self, id: &WorkloadId, pending: &PendingCalls) -> bool {
        id.kind == Agent::KIND && self.pending.is_due(&id.key, pending)
    }

    async fn note_pending(&self, id: &WorkloadId, pending: &PendingCalls) -> Result<(), ApiError> {
        if id.kind == Agent::KIND { self.pending.write(&id.key, pending).await } else { Ok(()) }
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

    use cluster::resource::Resource;
    use serde_json::{Value, json};

    use super::*;
    use crate::scaler::testing::{fleet, observe};

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
        let children = HashMap::from([(ChildKind::Deployment, Arc::default())]);
        let maps = Caches { children, ..Caches::default() };
        let board = Arc::new(WatchHealth::default());
        let fleet = fleet(client, &maps, &board);

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
