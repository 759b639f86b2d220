//! Defines the ports of the actions: requests about children, and reads from the informer caches.
//!
//! The types are reduced: a child is its identity, its owner, a digest of the fields that the operator owns in it, and the few
//! status fields that decisions need. The packages `cluster` and `operator` implement the ports; `fake` implements them over a
//! simulated cluster.

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc};

use async_trait::async_trait;
use crds::{RefKind, Tool, pod_problem::PodProblem};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machine::ApiError;
use meta::Key;
use serde_json::Value;

use crate::discovery::Definitions;

/// Kinds of children, in the order in which they are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum ChildKind {
    ServiceAccount,
    ConfigMap,
    Secret,
    Service,
    NetworkPolicy,
    PodDisruptionBudget,
    Deployment,
    /// A Tool that a server publishes. It is watched like the other kinds of Récif and is in no list of children.
    Tool,
}

impl ChildKind {
    /// Every kind but Tool.
    pub const ALL: &'static [Self] = &[
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::Secret,
        Self::Service,
        Self::NetworkPolicy,
        Self::PodDisruptionBudget,
        Self::Deployment,
    ];

    /// Returns the name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Service => "Service",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::Deployment => "Deployment",
            Self::Tool => "Tool",
        }
    }

    /// Returns the `apiVersion` with which the kind is applied.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Deployment => "apps/v1",
            Self::NetworkPolicy => "networking.k8s.io/v1",
            Self::PodDisruptionBudget => "policy/v1",
            Self::Tool => "agents.recif.dev/v1",
            _ => "v1",
        }
    }
}

impl fmt::Display for ChildKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Identity of a child.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildRef {
    /// Kind.
    pub kind: ChildKind,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for ChildRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// Desired state of a child: a partial object for server-side apply.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildManifest {
    /// Identity of the child.
    pub child: ChildRef,
    /// Complete apply body: apiVersion, kind, metadata with labels and controller reference, and the fields that the operator
    /// owns.
    pub body: Value,
}

/// Controller reference of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Group of the controller, without the version; empty for the core group.
    pub group: String,
    /// Kind of the controller.
    pub kind: String,
    /// Name of the controller.
    pub name: String,
    /// Uid of the controller.
    pub uid: String,
}

/// Object in the informer cache: a child of the operator, or a Secret or ConfigMap that an object refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct CachedChild {
    /// Identity of the object.
    pub child: ChildRef,
    /// Uid of the object.
    pub uid: String,
    /// Resource version of the object.
    pub resource_version: u64,
    /// Generation of its spec.
    pub generation: i64,
    /// Labels that identify its owner; empty if it has a controller.
    pub labels: BTreeMap<String, String>,
    /// Controller of the object.
    pub controller: Option<Controller>,
    /// SHA-256 (hex) of the `fieldsV1` of the operator's Apply entry in `managedFields`, without `spec.replicas`, whose manager
    /// may change; `None`: the operator owns no field.
    pub owned: Option<String>,
    /// True if it is being deleted.
    pub deleting: bool,
    /// Secrets and ConfigMaps: key to SHA-256 (hex) of its value.
    pub data: BTreeMap<String, String>,
    /// Deployments: their progress.
    pub deployment: Option<DeploymentState>,
    /// ConfigMaps of the operator with the definitions of a server's tools: the parsed definitions, which rendering reads.
    pub definitions: Option<Arc<Definitions>>,
}

/// Status of a Deployment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeploymentState {
    /// Generation that the status is about.
    pub observed_generation: i64,
    /// `spec.replicas`.
    pub desired: i32,
    /// Pods of any template.
    pub replicas: i32,
    /// Pods of the current template.
    pub updated: i32,
    /// Ready Pods.
    pub ready: i32,
    /// Available Pods.
    pub available: i32,
    /// Message of `Progressing=False`: the Deployment's own deadline is exceeded.
    pub stalled: Option<String>,
    /// Message of `ReplicaFailure=True`: Pods cannot be created.
    pub replica_failure: Option<String>,
    /// Field managers of `spec.replicas`.
    pub replicas_managers: ReplicasManagers,
}

/// Field managers of `spec.replicas`: several if they applied the same number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicasManagers {
    /// True if the operator's apply of the whole Deployment owns it, which created it with its first number. While it owns the
    /// field, it has to carry it.
    pub operator: bool,
    /// True if the operator's apply of the number alone owns it.
    pub replicas_apply: bool,
    /// True if the scaler owns it.
    pub scaler: bool,
    /// Any other field manager.
    pub other: Option<String>,
}

impl ReplicasManagers {
    /// Reports whether one of the operator's field managers owns it.
    pub fn has_operator(&self) -> bool {
        self.operator || self.replicas_apply
    }

    /// Returns the other field manager, if neither the operator nor the scaler owns it.
    pub fn other_manager(&self) -> Option<&str> {
        self.other.as_deref().filter(|_| !self.has_operator() && !self.scaler)
    }
}

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

/// Owner as the API server holds it, as far as a step depends on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnerState {
    /// Metadata.
    pub meta: ObjectMeta,
    /// Number of the last entry of `status.history`; 0: there is none.
    pub seq: i64,
}

/// Client for requests about children. Every call has a deadline; no call is retried inside.
#[async_trait]
pub trait ChildClient: Send + Sync {
    /// Reads a child's metadata by one GET, past the cache.
    ///
    /// # Errors
    /// The API server's error; absence is `Ok(None)`.
    async fn get(&self, child: &ChildRef) -> Result<Option<Arc<CachedChild>>, ApiError>;

    /// Reads an owner by one GET, past the cache.
    ///
    /// # Errors
    /// The API server's error; absence is `Ok(None)`.
    async fn get_owner(&self, kind: &'static str, owner: &Key) -> Result<Option<OwnerState>, ApiError>;

    /// Reads the `data` of a ConfigMap or Secret by one GET, past the cache, which holds no values: key to text, of Secrets as
    /// the API server returns it (base64).
    ///
    /// # Errors
    /// The API server's error.
    async fn get_data(&self, child: &ChildRef) -> Result<BTreeMap<String, String>, ApiError>;

    /// Sends one server-side apply. With a uid it is bound to the object with this uid, with `None` to the absence of an object
    /// of that name: anything else is [`ApiError::WrongUid`].
    ///
    /// # Errors
    /// The API server's error.
    async fn apply(&self, manifest: &ChildManifest, uid: Option<&str>) -> Result<Arc<CachedChild>, ApiError>;

    /// Sends the request of [`ChildClient::apply`] as a dry run, which stores nothing.
    ///
    /// # Errors
    /// [`ApiError::Invalid`] or [`ApiError::Refused`] if the API server would reject it.
    async fn dry_run(&self, manifest: &ChildManifest) -> Result<(), ApiError>;

    /// Sends one server-side apply of the replicas of the Deployment with this uid and of nothing else, as the field manager
    /// [`crate::workload::REPLICAS`]; `None`: this manager gives the field up, and another manager that has applied it keeps it.
    ///
    /// # Errors
    /// The API server's error.
    async fn set_replicas(
        &self,
        deployment: &ChildRef,
        uid: &str,
        replicas: Option<i32>,
    ) -> Result<Arc<CachedChild>, ApiError>;

    /// Sends one DELETE with foreground propagation, bound to the uid; an object that does not exist is no error.
    ///
    /// # Errors
    /// The API server's error.
    async fn delete(&self, child: &ChildRef, uid: &str) -> Result<(), ApiError>;
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
    /// Returns the objects in this namespace whose controller has this uid, of every kind of [`ChildKind::ALL`], ordered by kind
    /// and name.
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
