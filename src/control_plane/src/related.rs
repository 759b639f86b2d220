//! Objects related to ours, reduced to what is shown of them: Deployments, Pods, rendered ConfigMaps and Events.
//!
//! Secrets are never read: nothing is known of them here except that the operator made them.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use cluster::{Change, ObjectMap, ObjectVersion};
use crds::{
    ApiKind, KINDS, PROXY_CONTAINER, Role,
    diagnosis::{deployment_problems, is_pod_ready, is_silent, pod_problems, pod_warning},
    proxy_port,
    tool_server::{TOOLS_KEY, tools_config_map},
    usage::usage_key,
};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Pod},
        events::v1::Event,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use meta::Key;
use serde_json::Error;

use super::fleet::mask_rendered;

/// Caches of the objects related to ours.
///
/// Invariant: each index holds what its maps hold, because it subscribes to their changes.
#[derive(Debug, Default)]
pub(super) struct RelatedObjects {
    /// Deployments that the operator made.
    pub(super) deployments: Arc<ObjectMap<DeploymentRecord>>,
    /// ConfigMaps that the operator made.
    pub(super) config_maps: Arc<ObjectMap<ConfigMapRecord>>,
    /// Pods that belong to workloads.
    pub(super) pods: Arc<ObjectMap<PodRecord>>,
    /// Events of the operator about objects of our kinds.
    pub(super) events: Arc<ObjectMap<EventRecord>>,
    /// Warnings of other reporters, in the namespaces of workloads.
    pub(super) warnings: Arc<ObjectMap<EventRecord>>,
    /// Pods by label and name of their workload.
    by_workload: Arc<Index<(String, Key), PodRecord>>,
    /// Pods by their uid.
    by_uid: Arc<Index<Box<str>, PodRecord>>,
    /// Pods by their address.
    by_address: Arc<Index<IpAddr, PodRecord>>,
    /// Events by the uid of the object that they are about.
    by_object: Arc<Index<Box<str>, EventRecord>>,
    /// Events about ReplicaSets by their Deployment.
    by_deployment: Arc<Index<Key, EventRecord>>,
}

/// Deployment, as far as it is shown.
#[derive(Debug)]
pub(super) struct DeploymentRecord {
    /// Its uid.
    pub(super) uid: Box<str>,
    /// The uid of its controller; empty: it has none.
    pub(super) owner: Box<str>,
    /// Desired Pods.
    pub(super) desired: i32,
    /// Ready Pods.
    pub(super) ready: i32,
    /// Problems of its rollout, one line each.
    pub(super) problems: Box<[String]>,
}

/// ConfigMap, as far as it is shown.
#[derive(Debug)]
pub(super) struct ConfigMapRecord {
    /// Its masked texts by key, without a server's tools, which are kept in the read model.
    pub(super) files: Box<[(Box<str>, Box<str>)]>,
    /// The kind of the server whose tools it holds, and their definitions.
    pub(super) tools: Option<(&'static ApiKind, Arc<str>)>,
}

/// Pod, as far as it is shown.
#[derive(Debug)]
pub(super) struct PodRecord {
    /// Its name.
    pub(super) name: Box<str>,
    /// Its uid.
    pub(super) uid: Box<str>,
    /// Its IP address.
    pub(super) ip: Option<IpAddr>,
    /// Port of its sidecar at that address.
    pub(super) port: u16,
    /// Ready, Terminating, or the phase that Kubernetes gives it.
    pub(super) state: Box<str>,
    /// Problems reported by kubelet and scheduler, one line each.
    problems: Box<[String]>,
    /// True if it is not ready and its status does not say why.
    silent: bool,
    /// Key with which its sidecar is asked what its models used; `None`: it has no sidecar.
    pub(super) usage_key: Option<Box<str>>,
    workloads: Box<[(String, Key)]>,
}

impl PodRecord {
    /// Returns the workload that it belongs to.
    pub(super) fn workload(&self) -> Option<(&'static ApiKind, &Key)> {
        let mut workloads = KINDS.iter().filter(|kind| kind.role == Role::Workload);
        workloads.find_map(|kind| {
            let label = workload_label(kind);
            self.workloads.iter().find(|(known, _)| *known == label).map(|(_, key)| (kind, key))
        })
    }
}

/// Event, as far as it is shown.
#[derive(Debug)]
pub(super) struct EventRecord {
    /// The uid of the object that it is about.
    pub(super) about: Box<str>,
    /// The name of the ReplicaSet that it is about.
    pub(super) replica_set: Option<Box<str>>,
    /// Normal or Warning.
    pub(super) type_: Box<str>,
    /// The reason.
    pub(super) reason: Box<str>,
    /// The message, its credentials masked.
    pub(super) message: Box<str>,
    /// Number of times that it happened.
    pub(super) count: i32,
    /// First and last time, RFC 3339.
    pub(super) times: (Box<str>, Box<str>),
}

impl RelatedObjects {
    /// Creates empty caches whose indexes follow the maps.
    pub(super) fn new() -> Self {
        let around = Self::default();
        let index = around.by_workload.clone();
        around.pods.subscribe(move |change| index.apply_change(change, |pod| pod.workloads.to_vec()));
        let index = around.by_uid.clone();
        around.pods.subscribe(move |change| index.apply_change(change, |pod| vec![pod.uid.clone()]));
        let index = around.by_address.clone();
        around.pods.subscribe(move |change| index.apply_change(change, |pod| pod.ip.into_iter().collect()));
        for events in [&around.events, &around.warnings] {
            let index = around.by_object.clone();
            events.subscribe(move |change| index.apply_change(change, |event| vec![event.about.clone()]));
        }
        let index = around.by_deployment.clone();
        around.warnings.subscribe(move |change| {
            let namespace = &change.key.namespace;
            let deployment =
                |event: &EventRecord| Some(Key::new(namespace, deployment_of(event.replica_set.as_deref()?)?));
            index.apply_change(change, |event| deployment(event).into_iter().collect());
        });
        around
    }

    /// Returns the Pods of a workload, by name.
    pub(super) fn pods_of(&self, kind: &ApiKind, key: &Key) -> Vec<Arc<PodRecord>> {
        self.by_workload.get(&(workload_label(kind), key.clone()))
    }

    /// Returns the Pod with this uid.
    pub(super) fn pod_with_uid(&self, uid: &str) -> Option<Arc<PodRecord>> {
        self.by_uid.get(&Box::from(uid)).pop()
    }

    /// Returns the Pods with this address; there are several where they share that of their node.
    pub(super) fn pods_at(&self, address: IpAddr) -> Vec<Arc<PodRecord>> {
        self.by_address.get(&address)
    }

    /// Returns the problems of a Pod, one line each. Of a Pod whose status does not say why it is not ready, it is the newest warning
    /// that says more than a reason.
    pub(super) fn problems_of(&self, pod: &PodRecord) -> Vec<String> {
        if !pod.silent {
            return pod.problems.to_vec();
        }
        let mut warnings = self.events_of(&pod.uid);
        warnings.sort_by(|one, other| one.times.1.cmp(&other.times.1).reverse());
        let warnings: Vec<_> = warnings.iter().map(|warning| (&*warning.reason, &*warning.message)).collect();
        pod_warning(&pod.name, &warnings).into_iter().collect()
    }

    /// Returns the warnings about the ReplicaSets of a Deployment.
    pub(super) fn replica_set_warnings(&self, deployment: &Key) -> Vec<Arc<EventRecord>> {
        self.by_deployment.get(deployment)
    }

    /// Returns the Events about the object with this uid.
    pub(super) fn events_of(&self, uid: &str) -> Vec<Arc<EventRecord>> {
        self.by_object.get(&Box::from(uid))
    }
}

/// Secondary index: objects by keys derived from them.
///
/// Invariant: no key has an empty map.
#[derive(Debug)]
struct Index<K, T>(Mutex<HashMap<K, BTreeMap<Key, Arc<T>>>>);

impl<K, T> Default for Index<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, T> Index<K, T> {
    fn apply_change(&self, change: &Change<T>, keys: impl Fn(&T) -> Vec<K>) {
        let mut index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for old in change.old.iter().flat_map(|old| keys(old)) {
            if let Some(found) = index.get_mut(&old) {
                found.remove(&change.key);
                if found.is_empty() {
                    index.remove(&old);
                }
            }
        }
        if let Some(new) = &change.new {
            for key in keys(new) {
                index.entry(key).or_default().insert(change.key.clone(), new.clone());
            }
        }
    }

    fn get(&self, key: &K) -> Vec<Arc<T>> {
        let index = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        index.get(key).map(|found| found.values().cloned().collect()).unwrap_or_default()
    }
}

/// Returns the name of the Deployment of a ReplicaSet of this name: Kubernetes appends the hash of the Pod template, in an alphabet without
/// vowels.
fn deployment_of(replica_set: &str) -> Option<&str> {
    let (deployment, hash) = replica_set.rsplit_once('-')?;
    let is_hash = !hash.is_empty() && hash.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c));
    is_hash.then_some(deployment)
}

fn workload_label(kind: &ApiKind) -> String {
    format!("recif.dev/{}", kind.name.to_lowercase())
}

/// Decodes a Deployment.
pub(super) fn deployment(head: &ObjectVersion, json: &str) -> Result<DeploymentRecord, Error> {
    let deployment: Deployment = serde_json::from_str(json)?;
    let desired = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let trouble = deployment_problems(&deployment).into();
    let owners = deployment.metadata.owner_references.unwrap_or_default();
    let owner = owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.into());
    Ok(DeploymentRecord {
        uid: head.uid.as_str().into(),
        owner: owner.unwrap_or_default(),
        desired,
        ready,
        problems: trouble,
    })
}

/// Decodes a ConfigMap.
pub(super) fn config_map(head: &ObjectVersion, json: &str) -> Result<ConfigMapRecord, Error> {
    let map: ConfigMap = serde_json::from_str(json)?;
    let owner =
        map.metadata.owner_references.unwrap_or_default().into_iter().find(|owner| owner.controller == Some(true));
    let server = owner.filter(|owner| tools_config_map(&owner.kind, &owner.name) == head.key.name);
    let mut data = map.data.unwrap_or_default();
    let tools = server.and_then(|owner| Some((ApiKind::find(&owner.kind)?, data.remove(TOOLS_KEY)?.into())));
    let files = data.into_iter().map(|(name, text)| (name.as_str().into(), mask_rendered(&name, &text).into()));
    Ok(ConfigMapRecord { files: files.collect(), tools })
}

/// Returns the server of this kind whose tools a ConfigMap of this name holds.
pub(super) fn server_of(kind: &ApiKind, config_map: &Key) -> Option<Key> {
    let name = config_map.name.strip_suffix(tools_config_map(kind.name, "").as_str())?;
    Some(Key::new(&config_map.namespace, name))
}

/// Decodes a Pod.
pub(super) fn pod(head: &ObjectVersion, json: &str) -> Result<PodRecord, Error> {
    let pod: Pod = serde_json::from_str(json)?;
    let status = pod.status.as_ref();
    let state = if pod.metadata.deletion_timestamp.is_some() {
        "Terminating"
    } else if is_pod_ready(&pod) {
        "Ready"
    } else {
        status.and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
    };
    let labels = pod.metadata.labels.iter().flatten().filter(|(label, _)| label.starts_with("recif.dev/"));
    Ok(PodRecord {
        name: head.key.name.as_str().into(),
        uid: head.uid.as_str().into(),
        ip: status.and_then(|status| status.pod_ip.as_deref()?.parse().ok()),
        port: sidecar_port(&pod),
        state: state.into(),
        problems: pod_problems(&pod).into(),
        silent: is_silent(&pod),
        usage_key: sidecar_key(&pod),
        workloads: labels.map(|(label, name)| (label.clone(), Key::new(&head.key.namespace, name))).collect(),
    })
}

fn sidecar_key(pod: &Pod) -> Option<Box<str>> {
    let spec = pod.spec.as_ref()?;
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let sidecar = containers.find(|container| container.name == PROXY_CONTAINER)?;
    let key = sidecar.env.iter().flatten().find(|variable| variable.name == "RECIF_KEY")?;
    usage_key(key.value.as_deref()?).map(String::into_boxed_str)
}

fn sidecar_port(pod: &Pod) -> u16 {
    let spec = pod.spec.as_ref();
    let containers = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    proxy_port(containers.flat_map(|container| {
        let ports = container.ports.iter().flatten();
        ports.map(move |port| (container.name.as_str(), port.name.as_deref(), port.container_port))
    }))
}

/// Decodes an Event.
pub(super) fn event(_: &ObjectVersion, json: &str) -> Result<EventRecord, Error> {
    let event: Event = serde_json::from_str(json)?;
    let text = |time: Option<Time>| time.map(|time| time.0.to_string());
    let made = text(event.metadata.creation_timestamp);
    // A kubelet counts in the fields of the core group.
    let older = text(event.deprecated_first_timestamp).or(made).unwrap_or_default();
    let first = event.event_time.map_or(older, |time| time.0.to_string());
    let (count, last) = match event.series {
        Some(series) => (series.count, series.last_observed_time.0.to_string()),
        None => {
            let last = text(event.deprecated_last_timestamp).unwrap_or_else(|| first.clone());
            (event.deprecated_count.unwrap_or_default().max(1), last)
        }
    };
    let regarding = event.regarding.unwrap_or_default();
    let is_replica_set = regarding.kind.as_deref() == Some("ReplicaSet");
    Ok(EventRecord {
        about: regarding.uid.unwrap_or_default().into(),
        replica_set: regarding.name.filter(|_| is_replica_set).map(Into::into),
        type_: event.type_.unwrap_or_default().into(),
        reason: event.reason.unwrap_or_default().into(),
        // A kubelet repeats the URL of a probe, and what a program in a container has printed.
        message: mask_rendered("note", &event.note.unwrap_or_default()).into(),
        count,
        times: (first.into(), last.into()),
    })
}
