//! Models objects as the API server stores them, and their reduction in the operator's informer caches.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use crds::{digest::sha256_hex, pod_problem::PodProblem};
use serde_json::{Value, json};

use crate::{
    discovery::Definitions,
    ports::{CachedChild, ChildKind, ChildRef, Controller, DeploymentState, ReplicasManagers, WorkloadPod},
    workload::{REPLICAS, SCALER},
};

/// Field manager of the operator.
pub(crate) const OURS: &str = "recif-operator";

/// Kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl From<&ChildRef> for ObjectId {
    fn from(child: &ChildRef) -> Self {
        Self { kind: child.kind.as_str(), namespace: child.namespace.clone(), name: child.name.clone() }
    }
}

/// Stored object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Obj {
    /// The object as the answer to a GET, without managedFields.
    pub(crate) body: Value,
    /// JSON pointer of a leaf to its field managers, for children.
    pub(crate) owned: BTreeMap<String, BTreeSet<String>>,
    /// Pods: problem that keeps it from starting.
    pub(crate) problem: Option<PodProblem>,
}

impl Obj {
    pub(crate) fn new(body: Value) -> Self {
        Self { body, owned: BTreeMap::new(), problem: None }
    }

    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn number(&self, pointer: &str) -> i64 {
        self.body.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
    }

    pub(crate) fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub(crate) fn rv(&self) -> u64 {
        self.text("/metadata/resourceVersion").parse().unwrap_or_default()
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.body.pointer("/metadata/deletionTimestamp").is_some()
    }

    pub(crate) fn finalizers(&self) -> Vec<String> {
        let list = self.body.pointer("/metadata/finalizers").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|found| found.as_str().map(str::to_owned)).collect()
    }

    pub(crate) fn set_finalizers(&mut self, list: &[String]) {
        if list.is_empty() {
            self.metadata().remove("finalizers");
        } else {
            self.metadata().insert("finalizers".to_owned(), json!(list));
        }
    }

    pub(crate) fn owners(&self) -> Vec<Value> {
        self.body.pointer("/metadata/ownerReferences").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    pub(crate) fn metadata(&mut self) -> &mut serde_json::Map<String, Value> {
        self.body["metadata"].as_object_mut().expect("metadata is an object")
    }

    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.body.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
        serde_json::from_value(labels).expect("labels are strings")
    }

    /// Returns the object as in the cache of a kind with a driver.
    pub(crate) fn typed<K: serde::de::DeserializeOwned>(&self) -> Option<Arc<K>> {
        serde_json::from_value(self.body.clone()).ok().map(Arc::new)
    }

    /// Returns the object as in the caches of children.
    pub(crate) fn child(&self, id: &ObjectId) -> Arc<CachedChild> {
        let kind = ChildKind::ALL.iter().copied().find(|kind| kind.as_str() == id.kind);
        let kind = kind.unwrap_or(ChildKind::Tool);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let data = self.body.get("data").and_then(Value::as_object).into_iter().flatten();
        Arc::new(CachedChild {
            child: ChildRef { kind, namespace: id.namespace.clone(), name: id.name.clone() },
            uid: self.uid().to_owned(),
            resource_version: self.rv(),
            generation: self.number("/metadata/generation"),
            labels: if self.controller().is_none() { self.labels() } else { BTreeMap::new() },
            controller: self.controller(),
            owned: self.owned_digest(),
            deleting: self.is_deleting(),
            data: data.map(|(key, value)| (key.clone(), sha256_hex(text(value).as_bytes()))).collect(),
            deployment: (kind == ChildKind::Deployment).then(|| self.deployment()),
            definitions: self
                .body
                .pointer("/data/tools.json")
                .and_then(Value::as_str)
                .map(Definitions::read)
                .map(Arc::new),
        })
    }

    /// Returns the object as in the cache of Pods.
    pub(crate) fn pod(&self, id: &ObjectId) -> Arc<WorkloadPod> {
        let ready = self.body.pointer("/status/ready") == Some(&json!(true));
        Arc::new(WorkloadPod {
            name: id.name.clone(),
            uid: self.uid().to_owned(),
            resource_version: self.rv(),
            labels: self.labels(),
            ready,
            terminating: self.is_deleting(),
            ip: None,
            port: 8888,
            deletion_cost: None,
            problem: self.problem.clone().filter(|_| !ready),
        })
    }

    fn controller(&self) -> Option<Controller> {
        let owners = self.owners();
        let owner = owners.iter().find(|owner| owner["controller"] == json!(true))?;
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        let group = text("apiVersion").split_once('/').map_or_else(String::new, |(group, _)| group.to_owned());
        Some(Controller { group, kind: text("kind"), name: text("name"), uid: text("uid") })
    }

    fn owned_digest(&self) -> Option<String> {
        let ours: Vec<_> =
            self.owned.iter().filter(|(_, by)| by.contains(OURS)).map(|(path, _)| path.as_str()).collect();
        if ours.is_empty() {
            return None;
        }
        let counted: Vec<_> = ours.into_iter().filter(|path| *path != "/spec/replicas").collect();
        Some(sha256_hex(counted.join("\n").as_bytes()))
    }

    fn replicas_managers(&self) -> ReplicasManagers {
        let mut by = ReplicasManagers::default();
        for manager in self.owned.get("/spec/replicas").into_iter().flatten() {
            match manager.as_str() {
                OURS => by.operator = true,
                SCALER => by.scaler = true,
                REPLICAS => by.replicas_apply = true,
                other => by.other = Some(other.to_owned()),
            }
        }
        by
    }

    fn deployment(&self) -> DeploymentState {
        let count = |pointer: &str| i32::try_from(self.number(pointer)).unwrap_or_default();
        let text_at = |pointer: &str| self.body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        DeploymentState {
            observed_generation: self.number("/status/observedGeneration"),
            desired: count("/spec/replicas"),
            replicas: count("/status/replicas"),
            updated: count("/status/updated"),
            ready: count("/status/ready"),
            available: count("/status/ready"),
            stalled: text_at("/status/stalled"),
            replica_failure: text_at("/status/replicaFailure"),
            replica_set_failure: text_at("/status/replicaSetFailure"),
            replicas_managers: self.replicas_managers(),
        }
    }
}
