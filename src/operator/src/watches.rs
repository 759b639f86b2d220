//! Watches of the operator: every kind that it reconciles, and what actions read besides.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use actions::ports::ChildKind;
use cluster::{
    ObjectVersion, WatchSource, Watches,
    cache::{Caches, KindCaches, NamespaceState},
    custom::decode_custom,
    decode,
    endpoint_slice::{EndpointSlice, EndpointState},
    pod, policy,
    resource::Resource,
};
use crds::CustomObject;
use tokio::task::JoinSet;

use crate::scaler::GatewayMap;

/// Informer caches of every kind that is watched.
#[derive(Debug)]
pub struct WatchedCaches {
    /// Caches that actions read.
    pub caches: Caches,
}

impl Default for WatchedCaches {
    fn default() -> Self {
        let children: HashMap<_, _> = ChildKind::ALL.iter().map(|kind| (*kind, Arc::default())).collect();
        Self { caches: Caches { children, ..Caches::default() } }
    }
}

/// Label selector of our own children and Pods. Secrets and ConfigMaps are watched without it, because agents refer to those of users.
const OURS: Option<&str> = Some("app.kubernetes.io/managed-by=recif-operator");
/// Label selector of the NetworkPolicies and PodDisruptionBudgets of other owners.
const NOT_OURS: Option<&str> = Some("app.kubernetes.io/managed-by!=recif-operator");
/// Field selector that leaves out Helm's release records: they are large and no object refers to them.
const NOT_HELM: Option<&str> = Some("type!=helm.sh/release.v1");

impl WatchedCaches {
    /// Starts every watch.
    pub fn watch(&self, watches: &Watches, tasks: &mut JoinSet<()>) {
        watch_kinds(watches, &self.caches.kinds, tasks);
        let decode = Arc::new(pod::pod);
        watches.watch(
            WatchSource { resource: Resource::POD, labels: OURS, fields: None, decode },
            &self.caches.pods,
            tasks,
        );
        // An operator of some namespaces may not watch the namespaces themselves: then labels admit no object of another namespace.
        if watches.namespaces.is_empty() {
            let decode = Arc::new(|_: &ObjectVersion, json: &str| {
                let (labels, deleting) = decode::labels(json)?;
                Ok(NamespaceState { labels: Arc::new(labels), deleting })
            });
            let source = WatchSource { resource: Resource::NAMESPACE, labels: None, fields: None, decode };
            watches.watch(source, &self.caches.namespaces, tasks);
        }
        let decode = Arc::new(|_: &ObjectVersion, json: &str| policy::ingress_selector(json));
        let resource = Resource::child(ChildKind::NetworkPolicy);
        let source = WatchSource { resource, labels: NOT_OURS, fields: None, decode };
        watches.watch(source, &self.caches.ingress, tasks);
        let decode = Arc::new(|_: &ObjectVersion, json: &str| policy::budget_selector(json));
        let resource = Resource::child(ChildKind::PodDisruptionBudget);
        let source = WatchSource { resource, labels: NOT_OURS, fields: None, decode };
        watches.watch(source, &self.caches.disruption, tasks);
        for (&kind, map) in &self.caches.children {
            let (labels, fields) = match kind {
                ChildKind::ServiceAccount
                | ChildKind::Service
                | ChildKind::NetworkPolicy
                | ChildKind::PodDisruptionBudget
                | ChildKind::Deployment
                | ChildKind::Tool => (OURS, None),
                ChildKind::Secret => (None, NOT_HELM),
                ChildKind::ConfigMap => (None, None),
            };
            let decode = Arc::new(move |head: &ObjectVersion, json: &str| decode::child(kind, head, json));
            watches.watch(WatchSource { resource: Resource::child(kind), labels, fields, decode }, map, tasks);
        }
    }
}

macro_rules! watch_kinds {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        fn watch_kinds(watches: &Watches, kinds: &KindCaches, tasks: &mut JoinSet<()>) {
            $(watches.watch(custom_source::<crds::$module::$kind>(), kinds.of(), tasks);)+
        }
    };
}
crds::for_each_kind!(watch_kinds);

fn custom_source<K: CustomObject>() -> WatchSource<K> {
    let decode = Arc::new(|_: &ObjectVersion, json: &str| decode_custom::<K>(json));
    WatchSource { resource: Resource::of::<K>(), labels: None, fields: None, decode }
}

/// Service behind which the gateways report their demand.
#[derive(Debug, Clone)]
pub struct GatewayService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Starts the watch of the Pods behind that Service, whatever the operator's own namespaces.
pub fn watch_gateways(watches: &Watches, service: GatewayService, map: &Arc<GatewayMap>, tasks: &mut JoinSet<()>) {
    let GatewayService { namespace, name } = service;
    let decode = Arc::new(move |_: &ObjectVersion, json: &str| {
        let slice = EndpointSlice::read(json)?;
        // The Service also publishes Pods that are not ready: one that is shutting down still holds requests.
        let (Some(_), Some(port)) = (slice.service(&name), slice.first_port()) else { return Ok(Vec::new()) };
        let serving = slice.endpoints().filter(|pod| pod.state >= EndpointState::Leaving);
        Ok(serving.map(|pod| SocketAddr::new(pod.ip, port)).collect())
    });
    let source = WatchSource { resource: Resource::ENDPOINT_SLICE, labels: None, fields: None, decode };
    watches.watch_in(Some(namespace), source, map, tasks);
}
