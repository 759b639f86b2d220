//! Port for reads from the informer caches.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use crds::{RefKind, Tool, pod_problem::PodProblem};

use super::child::{CachedChild, ChildRef};

/// Pod of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadPod {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Resource version.
    pub resource_version: u64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// True if it is ready.
    pub ready: bool,
    /// True if it is being deleted.
    pub terminating: bool,
    /// Address, once it has one.
    pub ip: Option<IpAddr>,
    /// Port of its sidecar at that address.
    pub port: u16,
    /// Annotation `controller.kubernetes.io/pod-deletion-cost`: of Pods that are ready, those with the lower cost are deleted
    /// first.
    pub deletion_cost: Option<i32>,
    /// Problem that keeps it from starting; `None` while it is ready or merely starting.
    pub problem: Option<PodProblem>,
}

/// Informer cache of one kind, never older than the answers to the operator's own writes.
pub trait Cached<K> {
    /// Returns the object of this name.
    fn cached(&self, namespace: &str, name: &str) -> Option<Arc<K>>;
}

macro_rules! cached_kinds {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        /// Informer caches of all of Récif's kinds.
        pub trait CachedKinds: $(Cached<crds::$module::$kind> +)+ Send + Sync {}

        impl<T: $(Cached<crds::$module::$kind> +)+ Send + Sync> CachedKinds for T {}
    };
}
crds::for_each_kind!(cached_kinds);

/// Reader of the informer caches, which are never older than the answers to the operator's own writes.
pub trait CacheReader: CachedKinds {
    /// Returns the labels of a namespace, if they are known.
    fn namespace_labels(&self, namespace: &str) -> Option<Arc<BTreeMap<String, String>>>;
    /// Reports whether the cluster has a CustomResourceDefinition of this kind: without one there can be no object of it.
    fn is_defined(&self, _: RefKind) -> bool {
        true
    }
    /// Reports whether the namespace is being deleted, as far as is known.
    fn is_namespace_going(&self, namespace: &str) -> bool;
    /// Returns the Tools that carry the label of this server.
    fn published_tools(&self, kind: &'static str, namespace: &str, server: &str) -> Vec<Arc<Tool>>;
    /// Reports whether an Agent, Flow or FlowSet lists this Tool.
    fn is_tool_used(&self, namespace: &str, name: &str) -> bool;
    /// Returns a child, or a Secret or ConfigMap of another owner.
    fn child(&self, child: &ChildRef) -> Option<Arc<CachedChild>>;
    /// Reports whether a NetworkPolicy of another owner governs the ingress of Pods with these labels.
    fn is_ingress_governed(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool;
    /// Reports whether a PodDisruptionBudget of another owner selects Pods with these labels.
    fn is_disruption_governed(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool;
    /// Returns the public keys of the gateways, in the form in which a sidecar gets them; `None`: there are none yet.
    fn caller_keys(&self) -> Option<String>;
    /// Returns the objects in this namespace whose controller has this uid, of every kind of
    /// [`ChildKind::ALL`](super::ChildKind::ALL), ordered by kind and name.
    fn children(&self, namespace: &str, owner: &str) -> Vec<Arc<CachedChild>>;
    /// Returns the Pods of the workload of this kind (`Agent`) and name, in the order of their names.
    fn pods(&self, kind: &'static str, namespace: &str, name: &str) -> Vec<Arc<WorkloadPod>>;
}

impl dyn CacheReader + '_ {
    /// Returns the object of this kind and name.
    pub fn get<K>(&self, namespace: &str, name: &str) -> Option<Arc<K>>
    where
        Self: Cached<K>,
    {
        Cached::<K>::cached(self, namespace, name)
    }
}
