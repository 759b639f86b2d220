//! Implements the operator's ports over the simulated cluster: informer caches, a log of requests, and fault injection.
//!
//! Each start of the operator has its own ports; after it dies, its requests never return.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use crds::{Agent, Tool};
use machine::{ApiError, ObjectClient};
use meta::{Key, PhasedObject};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    Cascade, Obj, ObjectId, Sim, Store,
    cache::Cache,
    requests::{LoggedRequest, RequestFault, Verb},
    store::StoreChange,
};
use crate::{
    ports::{
        CacheReader, Cached, CachedChild, ChildClient, ChildKind, ChildManifest, ChildRef, OwnerState, WorkloadPod,
    },
    render::MANAGED_BY_LABEL,
    workload::{REPLICAS, ReplicasHandover, SCALER, WorkloadKind as _, handover},
};

/// Ports of one run of the operator.
pub(crate) struct Ports {
    sim: Sim,
    cache: Mutex<Cache>,
    dead: AtomicBool,
    dying: AtomicBool,
    pub(super) died: Notify,
}

impl Ports {
    /// Creates the ports of a start: everything is listed.
    pub(super) fn start(sim: &Sim) -> Arc<Self> {
        let store = sim.store();
        let cache = Cache::listed(&store);
        drop(store);
        Arc::new(Self {
            sim: sim.clone(),
            cache: Mutex::new(cache),
            dead: AtomicBool::new(false),
            dying: AtomicBool::new(false),
            died: Notify::new(),
        })
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst) || self.dying.load(Ordering::SeqCst)
    }

    /// Delivers the pending watch events, except those of lagging kinds.
    pub(super) fn deliver(&self, lags: impl Fn(&str) -> bool) -> Vec<StoreChange> {
        self.cache().deliver(&self.sim.store().log, lags)
    }

    fn cached(&self, id: &ObjectId) -> Option<Obj> {
        self.cache().get(id)
    }

    fn typed<K: DeserializeOwned>(&self, kind: &'static str, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.cached(&ObjectId { kind, namespace: namespace.to_owned(), name: name.to_owned() })?.typed()
    }

    fn wrote(&self, id: &ObjectId, rv: u64, obj: Option<Obj>) {
        self.cache().wrote(id, rv, obj);
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether an object of another owner and of this kind, whose labels to match are at `selector`, selects these labels.
    fn is_selected(
        &self,
        kind: &'static str,
        selector: &str,
        namespace: &str,
        labels: &BTreeMap<String, String>,
    ) -> bool {
        let cache = self.cache();
        let mut foreign = cache.objs().filter(|(id, obj)| {
            id.kind == kind && id.namespace == namespace && !obj.labels().contains_key(MANAGED_BY_LABEL)
        });
        foreign.any(|(_, obj)| {
            let wanted = obj.body.pointer(selector).and_then(Value::as_object);
            wanted.into_iter().flatten().all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
        })
    }

    async fn send<T>(
        &self,
        verb: Verb,
        id: &ObjectId,
        body: &Value,
        work: impl FnOnce(&mut Store) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let fault = if self.is_dead() { RequestFault::DieBefore } else { self.fault(verb, id, body) };
        let mut answer = None;
        if !matches!(fault, RequestFault::Refuse(_) | RequestFault::DieBefore) {
            answer = Some(work(&mut self.sim.store()));
        }
        match (fault, answer) {
            (RequestFault::Refuse(error) | RequestFault::Lose(error), _) => Err(error),
            (RequestFault::No, Some(answer)) => answer,
            (RequestFault::DieAfter, Some(answer)) => {
                self.dying.store(true, Ordering::SeqCst);
                answer
            }
            (RequestFault::DieBefore | RequestFault::DieUnanswered, _) | (_, None) => {
                self.dead.store(true, Ordering::SeqCst);
                self.died.notify_one();
                std::future::pending().await
            }
        }
    }

    fn fault(&self, verb: Verb, id: &ObjectId, body: &Value) -> RequestFault {
        let mut faults = self.sim.faults();
        let request =
            LoggedRequest { verb, id: id.clone(), nth: faults.requests, nth_write: faults.writes, body: body.clone() };
        faults.requests += 1;
        faults.writes += usize::from(request.is_write());
        faults.log.push(request.clone());
        match &mut faults.plan {
            Some(plan) => plan(&request, &mut self.sim.store()),
            None => RequestFault::No,
        }
    }
}

impl Ports {
    /// Runs the scaler over every Agent; `number`: the number of Pods to set where the scaler owns the field.
    pub(super) async fn scale(&self, number: i32) {
        let agents: Vec<ObjectId> =
            self.cache().objs().filter(|(id, _)| id.kind == "Agent").map(|(id, _)| id.clone()).collect();
        for id in agents {
            let Some(agent) =
                Cached::<Agent>::cached(self, &id.namespace, &id.name).filter(|agent| !agent.is_deleting())
            else {
                continue;
            };
            let Some(live) = self.child(&agent.deployment()) else { continue };
            let Some(state) = live.deployment.as_ref().filter(|_| !live.deleting) else { continue };
            let scaling = agent.scaling().filter(|_| agent.replicas() > 0);
            let replicas = match handover(scaling, state) {
                ReplicasHandover::Acquire(replicas) => Some(replicas),
                ReplicasHandover::Owned if state.desired != number => Some(number),
                ReplicasHandover::Release => None,
                ReplicasHandover::Owned | ReplicasHandover::Wait | ReplicasHandover::None => continue,
            };
            let mut body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"uid": live.uid}});
            if let Some(replicas) = replicas {
                body["spec"] = json!({"replicas": replicas});
            }
            let manifest = ChildManifest { child: live.child.clone(), body };
            let id = ObjectId::from(&live.child);
            let work = |store: &mut Store| store.apply_as(SCALER, &manifest, Some(&live.uid));
            if let Ok(obj) = self.send(Verb::Scale, &id, &manifest.body, work).await {
                self.wrote(&id, obj.rv(), Some(obj));
            }
        }
    }
}

#[async_trait]
impl ChildClient for Ports {
    async fn get(&self, child: &ChildRef) -> Result<Option<Arc<CachedChild>>, ApiError> {
        let id = ObjectId::from(child);
        self.send(Verb::Look, &id, &Value::Null, |store| Ok(store.get(&id).map(|obj| obj.child(&id)))).await
    }

    async fn get_owner(&self, kind: &'static str, owner: &Key) -> Result<Option<OwnerState>, ApiError> {
        let id = ObjectId { kind, namespace: owner.namespace.clone(), name: owner.name.clone() };
        let state = |found: &Obj| OwnerState {
            meta: serde_json::from_value(found.body["metadata"].clone()).unwrap_or_default(),
            seq: found.body["status"]["history"]
                .as_array()
                .into_iter()
                .flatten()
                .last()
                .map_or(0, |entry| entry["seq"].as_i64().unwrap_or_default()),
        };
        self.send(Verb::Look, &id, &Value::Null, |store| Ok(store.get(&id).map(state))).await
    }

    async fn get_data(&self, child: &ChildRef) -> Result<BTreeMap<String, String>, ApiError> {
        let id = ObjectId::from(child);
        let data = |store: &mut Store| {
            let body = store.get(&id).map(|obj| obj.body.clone()).ok_or(ApiError::NotFound)?;
            Ok(serde_json::from_value(body["data"].clone()).unwrap_or_default())
        };
        self.send(Verb::Look, &id, &Value::Null, data).await
    }

    async fn apply(&self, manifest: &ChildManifest, uid: Option<&str>) -> Result<Arc<CachedChild>, ApiError> {
        let id = ObjectId::from(&manifest.child);
        let obj = self.send(Verb::Apply, &id, &manifest.body, |store| store.apply(manifest, uid)).await?;
        self.wrote(&id, obj.rv(), Some(obj.clone()));
        Ok(obj.child(&id))
    }

    async fn dry_run(&self, manifest: &ChildManifest) -> Result<(), ApiError> {
        self.send(Verb::DryRun, &ObjectId::from(&manifest.child), &manifest.body, |_| Ok(())).await
    }

    async fn set_replicas(
        &self,
        deployment: &ChildRef,
        uid: &str,
        replicas: Option<i32>,
    ) -> Result<Arc<CachedChild>, ApiError> {
        let id = ObjectId::from(deployment);
        let mut body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"uid": uid}});
        if let Some(replicas) = replicas {
            body["spec"] = json!({"replicas": replicas});
        }
        let manifest = ChildManifest { child: deployment.clone(), body };
        let work = |store: &mut Store| store.apply_as(REPLICAS, &manifest, Some(uid));
        let obj = self.send(Verb::Replicas, &id, &manifest.body, work).await?;
        self.wrote(&id, obj.rv(), Some(obj.clone()));
        Ok(obj.child(&id))
    }

    async fn delete(&self, child: &ChildRef, uid: &str) -> Result<(), ApiError> {
        let id = ObjectId::from(child);
        let work = |store: &mut Store| {
            if store.get(&id).is_some_and(|found| found.uid() == uid) {
                store.delete(&id, Cascade::Foreground);
            }
            Ok(store.get(&id).cloned())
        };
        if let Some(obj) = self.send(Verb::Delete, &id, &Value::Null, work).await? {
            self.wrote(&id, obj.rv(), Some(obj));
        }
        Ok(())
    }
}

impl<K: PhasedObject + DeserializeOwned> Cached<K> for Ports {
    fn cached(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.typed(K::KIND, namespace, name)
    }
}

impl CacheReader for Ports {
    fn namespace_labels(&self, namespace: &str) -> Option<Arc<BTreeMap<String, String>>> {
        let id = ObjectId { kind: "Namespace", namespace: String::new(), name: namespace.to_owned() };
        Some(Arc::new(self.sim.store().get(&id)?.labels()))
    }

    fn is_namespace_going(&self, namespace: &str) -> bool {
        self.sim.store().is_terminating(namespace)
    }

    fn published_tools(&self, kind: &'static str, namespace: &str, server: &str) -> Vec<Arc<Tool>> {
        let label = crate::render::kind_label(kind);
        let ids: Vec<_> = self.cache().objs().map(|(id, _)| id.clone()).collect();
        let tools = ids.iter().filter(|id| id.kind == "Tool" && id.namespace == namespace);
        let tools = tools.filter_map(|id| Cached::<Tool>::cached(self, namespace, &id.name));
        tools
            .filter(|tool| tool.metadata.labels.iter().flatten().any(|(key, name)| *key == label && name == server))
            .collect()
    }

    fn is_tool_used(&self, namespace: &str, name: &str) -> bool {
        let cache = self.cache();
        let users = cache.objs().filter(|(id, _)| id.namespace == namespace && id.kind == "Agent");
        let mut users = users.filter_map(|(_, obj)| obj.typed::<Agent>());
        users.any(|agent| agent.spec.tools.iter().any(|tool| tool == name))
    }

    fn is_ingress_governed(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.is_selected("NetworkPolicy", "/spec/podSelector/matchLabels", namespace, labels)
    }

    fn is_disruption_governed(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.is_selected("PodDisruptionBudget", "/spec/selector/matchLabels", namespace, labels)
    }

    fn caller_keys(&self) -> Option<String> {
        self.sim.caller_keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn child(&self, child: &ChildRef) -> Option<Arc<CachedChild>> {
        let id = ObjectId::from(child);
        let obj = self.cached(&id)?;
        // Secrets and ConfigMaps are all watched, the other kinds by the operator's label.
        let seen = matches!(id.kind, "Secret" | "ConfigMap") || obj.labels().contains_key(MANAGED_BY_LABEL);
        seen.then(|| obj.child(&id))
    }

    fn children(&self, namespace: &str, owner: &str) -> Vec<Arc<CachedChild>> {
        let cache = self.cache();
        let is_its = |id: &ObjectId, obj: &Obj| {
            id.namespace == namespace && obj.text("/metadata/ownerReferences/0/uid") == owner && obj.owners().len() == 1
        };
        let ids: Vec<_> = cache.objs().filter(|(id, obj)| is_its(id, obj)).map(|(id, _)| id.clone()).collect();
        drop(cache);
        let of = |id: ObjectId| {
            let kind = ChildKind::ALL.iter().copied().find(|kind| kind.as_str() == id.kind)?;
            self.child(&ChildRef { kind, namespace: id.namespace, name: id.name })
        };
        ids.into_iter().filter_map(of).collect()
    }

    fn pods(&self, kind: &'static str, namespace: &str, name: &str) -> Vec<Arc<WorkloadPod>> {
        let label = format!("recif.dev/{}", kind.to_lowercase());
        let cache = self.cache();
        let pods = cache.objs().filter(|(id, pod)| {
            id.kind == "Pod" && id.namespace == namespace && pod.labels().get(&label).is_some_and(|found| found == name)
        });
        pods.map(|(id, pod)| pod.pod(id)).collect()
    }
}

#[async_trait]
impl<K: PhasedObject + DeserializeOwned> ObjectClient<K> for Ports {
    fn newest(&self, key: &Key) -> Option<Arc<K>> {
        self.cached(&id::<K>(key))?.typed()
    }

    async fn patch_status(&self, key: &Key, patch: Value) -> Result<Arc<K>, ApiError> {
        let id = id::<K>(key);
        let obj = self.send(Verb::Status, &id, &patch, |store| store.patch_status(&id, &patch)).await?;
        self.wrote(&id, obj.rv(), Some(obj.clone()));
        obj.typed().ok_or(ApiError::NotFound)
    }

    async fn patch_metadata(&self, key: &Key, patch: Value) -> Result<Option<Arc<K>>, ApiError> {
        let id = id::<K>(key);
        let work = |store: &mut Store| store.patch_metadata(&id, &patch).map(|obj| (obj, store.last_rv()));
        let (obj, rv) = self.send(Verb::Metadata, &id, &patch, work).await?;
        self.wrote(&id, obj.as_ref().map_or(rv, Obj::rv), obj.clone());
        Ok(obj.and_then(|obj| obj.typed()))
    }
}

fn id<K: PhasedObject>(key: &Key) -> ObjectId {
    ObjectId { kind: K::KIND, namespace: key.namespace.clone(), name: key.name.clone() }
}

/// Returns the key of an object of a kind that has a driver.
pub(super) fn key(id: &ObjectId) -> Key {
    Key::new(&id.namespace, &id.name)
}

/// Reports whether the kind has a driver.
pub(super) fn is_driven(kind: &str) -> bool {
    crds::KINDS.iter().any(|known| known.name == kind)
}
