//! State that all tasks of the node share: the client, the caches, ports, relays and logs.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Pod, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    core::{DynamicObject, PartialObjectMeta},
};
use serde_json::json;
use tokio::sync::{Notify, watch};

use crate::{
    cache::Cache,
    config::NodeConfig,
    events::EventQueue,
    leftovers::Leftovers,
    logs::Logs,
    output::{Output, Source},
    ports::{PortMap, Ports},
    relays::Relays,
    roll_out::hash_of,
};

/// Name under which the node writes.
const MANAGER: &str = "recif-node";
/// Times that a Pod is made anew because another program took its port.
const LOST_PORTS: u32 = 5;

/// Object of which only the metadata is kept.
pub(crate) type Owner = PartialObjectMeta<DynamicObject>;

/// State of the node.
pub(crate) struct NodeState {
    pub(crate) client: Client,
    pub(crate) config: NodeConfig,
    pub(crate) output: Arc<dyn Output>,
    pub(crate) events: EventQueue,
    pub(crate) logs: Logs,
    pub(crate) leftovers: Leftovers,
    pub(crate) relays: Relays,
    pub(crate) ports: Ports,
    /// Notified of each change in a cache.
    pub(crate) changed: Arc<Notify>,
    /// Notified of each change of a ConfigMap or Secret.
    pub(crate) data_changed: watch::Sender<()>,
    pub(crate) deployments: Cache<Deployment>,
    pub(crate) pods: Cache<Pod>,
    pub(crate) services: Cache<Service>,
    pub(crate) slices: Cache<EndpointSlice>,
    /// Objects that Deployments belong to, by their kind.
    pub(crate) owners: HashMap<&'static str, Cache<Owner>>,
    /// Number of ports that Pods of a template lost, by owner and hash.
    lost_ports: Mutex<HashMap<(String, String), u32>>,
    /// Notes that were shown once, by object and text.
    shown: Mutex<HashSet<(String, String)>>,
}

impl NodeState {
    /// Makes the state of a node that has read nothing yet.
    pub(crate) fn new(client: Client, config: NodeConfig, output: Arc<dyn Output>, events: EventQueue) -> Self {
        let changed = Arc::new(Notify::new());
        let workloads = crds::KINDS.iter().filter(|kind| kind.role == crds::Role::Workload);
        Self {
            client,
            output,
            events,
            logs: Logs::new(config.folder.join("logs")),
            leftovers: Leftovers::new(config.folder.join("processes")),
            relays: Relays::default(),
            ports: Ports::new(),
            data_changed: watch::Sender::default(),
            deployments: Cache::new(changed.clone()),
            pods: Cache::new(changed.clone()),
            services: Cache::new(changed.clone()),
            slices: Cache::new(changed.clone()),
            owners: workloads.map(|kind| (kind.name, Cache::new(changed.clone()))).collect(),
            lost_ports: Mutex::default(),
            shown: Mutex::default(),
            changed,
            config,
        }
    }

    /// Returns the parameters of the node's writes.
    pub(crate) fn write(&self) -> PostParams {
        PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
    }

    /// Returns the parameters of the node's patches.
    pub(crate) fn patch(&self) -> PatchParams {
        PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
    }

    /// Reports whether another Pod of the same Deployment listens on this port as its own declared one.
    pub(crate) fn predecessor_has(&self, pod: &Pod, declared: u16) -> bool {
        let owner = controller(pod.metadata.owner_references.as_deref()).map(|owner| &owner.uid);
        self.pods.all().iter().any(|other| {
            let of_owner = controller(other.metadata.owner_references.as_deref()).map(|owner| &owner.uid) == owner;
            let is_other = other.metadata.uid != pod.metadata.uid;
            let ports = PortMap::of(other.metadata.annotations.as_ref());
            of_owner && is_other && hash_of(other) != hash_of(pod) && ports.0.get(&declared) == Some(&declared)
        })
    }

    /// Counts a port that a Pod lost. Returns whether it is to be made anew with other ones.
    pub(crate) fn may_lose_port(&self, pod: &Pod) -> bool {
        let owner = controller(pod.metadata.owner_references.as_deref()).map_or("", |owner| &owner.uid);
        let key = (owner.to_owned(), hash_of(pod).to_owned());
        let mut lost = self.lost_ports.lock().unwrap_or_else(PoisonError::into_inner);
        let count = lost.entry(key).or_default();
        *count += 1;
        *count <= LOST_PORTS
    }

    /// Sets an annotation of the Deployment that a Pod belongs to.
    pub(crate) async fn annotate_deployment(&self, pod: &Pod, annotation: &str) {
        let Some(owner) = controller(pod.metadata.owner_references.as_deref()) else { return };
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let patch = json!({ "metadata": { "uid": owner.uid, "annotations": { annotation: "true" } } });
        match api.patch(&owner.name, &self.patch(), &Patch::Merge(patch)).await {
            Ok(deployment) => self.deployments.observe(deployment),
            Err(error) => tracing::debug!(%error, "annotate Deployment {}", owner.name),
        }
    }

    /// Shows a note once.
    pub(crate) fn tell_once(&self, source: &Source, text: &str) {
        let key = (format!("{}/{}/{}", source.namespace, source.kind, source.name), text.to_owned());
        if self.shown.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
            self.output.note(source, text);
        }
    }
}

/// Returns the controller among owners.
pub(crate) fn controller(owners: Option<&[OwnerReference]>) -> Option<&OwnerReference> {
    owners.into_iter().flatten().find(|owner| owner.controller == Some(true))
}
