//! What an action may ask of the world: requests about children, and views of the watch caches.
//!
//! Everything seen here is reduced: a child is its identity, who owns it, a digest of what we own in it, and the few
//! status fields that decisions need. Real ones live in the packages `cluster` and `operator`, a simulated cluster in `fake`.

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc};

use async_trait::async_trait;
use crds::{Agent, Flow, MCPServer, Model, PluginConfig, Prompt, RefKind, RemoteMCPServer, Tool};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machine::ApiError;
use meta::Key;
use serde_json::Value;

use crate::discovery::Definitions;

/// The kinds of children, in the order in which they are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum ChildKind {
    ServiceAccount,
    ConfigMap,
    Secret,
    Service,
    NetworkPolicy,
    Deployment,
    /// A Tool that a server publishes. It is watched as a kind of ours and in no list of children.
    Tool,
}

impl ChildKind {
    /// Every kind but Tool.
    pub const ALL: &'static [Self] =
        &[Self::ServiceAccount, Self::ConfigMap, Self::Secret, Self::Service, Self::NetworkPolicy, Self::Deployment];

    /// The kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Service => "Service",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::Deployment => "Deployment",
            Self::Tool => "Tool",
        }
    }

    /// The `apiVersion` it is applied with.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Deployment => "apps/v1",
            Self::NetworkPolicy => "networking.k8s.io/v1",
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

/// Names a child.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildRef {
    /// Its kind.
    pub kind: ChildKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ChildRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// A child as we want it: a partial object for server-side apply.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildManifest {
    /// Which child.
    pub child: ChildRef,
    /// The complete apply body: apiVersion, kind, metadata with labels and controller reference, and what we own.
    pub body: Value,
}

/// The controller reference of an object.
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

/// An object as the cache holds it: a child of ours, or a Secret or ConfigMap that somebody refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct CachedChild {
    /// Which object.
    pub child: ChildRef,
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub resource_version: u64,
    /// The generation of its spec.
    pub generation: i64,
    /// Those of its labels that say whose it is; empty where its controller does.
    pub labels: BTreeMap<String, String>,
    /// Who controls it.
    pub controller: Option<Controller>,
    /// SHA-256 (hex) of our Apply entry's `fieldsV1` in `managedFields`, without `spec.replicas`, which may change
    /// hands; `None`: we own nothing in it.
    pub owned: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Secrets and ConfigMaps: key to SHA-256 (hex) of its value.
    pub data: BTreeMap<String, String>,
    /// Deployments: their progress.
    pub deployment: Option<DeploymentState>,
    /// ConfigMaps of ours with the definitions of a server's tools: these, which rendering reads.
    pub definitions: Option<Arc<Definitions>>,
}

/// What a Deployment says of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeploymentState {
    /// The generation its status speaks of.
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
    /// Whether `Progressing=False`: its own deadline is over; holds the message.
    pub stalled: Option<String>,
    /// The message of `ReplicaFailure=True`: Pods cannot be created.
    pub replica_failure: Option<String>,
    /// Who set `spec.replicas`.
    pub replicas_managers: ReplicasManagers,
}

/// The field managers of `spec.replicas`: several when they applied the same number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicasManagers {
    /// The operator's apply of the whole Deployment, which made it with its first number: while it has the field, it has to carry it.
    pub operator: bool,
    /// The operator's apply of the number alone.
    pub replicas_apply: bool,
    /// The scaler.
    pub scaler: bool,
    /// Anybody else.
    pub other: Option<String>,
}

impl ReplicasManagers {
    /// Whether the operator has it, in whichever way.
    pub fn has_operator(&self) -> bool {
        self.operator || self.replicas_apply
    }

    /// Whoever else set it, when we did not.
    pub fn other_manager(&self) -> Option<&str> {
        self.other.as_deref().filter(|_| !self.has_operator() && !self.scaler)
    }
}

/// A Pod of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadPod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub resource_version: u64,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Its address, once it has one.
    pub ip: Option<IpAddr>,
    /// Its annotation `controller.kubernetes.io/pod-deletion-cost`: of Pods that are ready, those with less go first.
    pub deletion_cost: Option<i32>,
    /// Why it does not come up, by class and what the user wrote; `None` while it is ready or merely starting.
    pub problem: Option<PodProblem>,
}

/// Why a Pod does not come up: a class, and what the user wrote; never the kubelet's text, which would flap.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodProblem {
    /// The image cannot be pulled, or is not there.
    ImagePull {
        /// The image as in the Pod template.
        image: String,
    },
    /// A container ends again and again.
    CrashLoop {
        /// Name of the container.
        container: String,
        /// Its last exit code.
        exit_code: i32,
    },
    /// A container cannot be made from its configuration, usually because an object it names is missing.
    CreateContainerConfigError {
        /// What is missing, such as `secret "keys"`.
        object: String,
    },
    /// No node takes it.
    Unschedulable,
}

/// An owner as the API server holds it, as far as a step depends on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnerState {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The number of the last entry of `status.history`; 0: there is none.
    pub seq: i64,
}

/// Requests about children. Every call has a deadline; no call is repeated inside.
#[async_trait]
pub trait ChildClient: Send + Sync {
    /// One GET of a child's metadata, past the cache.
    ///
    /// # Errors
    /// As the API server answered; absence is `Ok(None)`.
    async fn get(&self, child: &ChildRef) -> Result<Option<Arc<CachedChild>>, ApiError>;

    /// One GET of an owner, past the cache.
    ///
    /// # Errors
    /// As the API server answered; absence is `Ok(None)`.
    async fn get_owner(&self, kind: &'static str, owner: &Key) -> Result<Option<OwnerState>, ApiError>;

    /// One GET of a ConfigMap's or Secret's `data`, past the cache, which holds no values: key to text, of Secrets as the
    /// API server gives it (base64).
    ///
    /// # Errors
    /// As the API server answered.
    async fn get_data(&self, child: &ChildRef) -> Result<BTreeMap<String, String>, ApiError>;

    /// One server-side apply, bound to the object with this uid, or (`None`) to there being no object of that name: anything
    /// else is [`ApiError::WrongUid`].
    ///
    /// # Errors
    /// As the API server answered.
    async fn apply(&self, manifest: &ChildManifest, uid: Option<&str>) -> Result<Arc<CachedChild>, ApiError>;

    /// As [`ChildClient::apply`], but nothing is stored.
    ///
    /// # Errors
    /// [`ApiError::Invalid`] when the API server would refuse it.
    async fn dry_run(&self, manifest: &ChildManifest) -> Result<(), ApiError>;

    /// One server-side apply of the replicas of the Deployment with this uid and of nothing else, as the field manager
    /// [`crate::workload::REPLICAS`]; `None`: that one has them no longer, and whoever else has applied them keeps them.
    ///
    /// # Errors
    /// As the API server answered.
    async fn set_replicas(
        &self,
        deployment: &ChildRef,
        uid: &str,
        replicas: Option<i32>,
    ) -> Result<Arc<CachedChild>, ApiError>;

    /// One DELETE in the foreground, bound to the uid; an object that is gone already is no error.
    ///
    /// # Errors
    /// As the API server answered.
    async fn delete(&self, child: &ChildRef, uid: &str) -> Result<(), ApiError>;
}

/// What the watch caches hold, never older than the answers to our own writes.
pub trait CacheReader: Send + Sync {
    /// An Agent.
    fn agent(&self, namespace: &str, name: &str) -> Option<Arc<Agent>>;
    /// A Flow.
    fn flow(&self, namespace: &str, name: &str) -> Option<Arc<Flow>>;
    /// A Tool.
    fn tool(&self, namespace: &str, name: &str) -> Option<Arc<Tool>>;
    /// A Model.
    fn model(&self, namespace: &str, name: &str) -> Option<Arc<Model>>;
    /// A PluginConfig.
    fn plugin_config(&self, namespace: &str, name: &str) -> Option<Arc<PluginConfig>>;
    /// A Prompt.
    fn prompt(&self, namespace: &str, name: &str) -> Option<Arc<Prompt>>;
    /// An MCPServer.
    fn mcp_server(&self, namespace: &str, name: &str) -> Option<Arc<MCPServer>>;
    /// A RemoteMCPServer.
    fn remote_mcp_server(&self, namespace: &str, name: &str) -> Option<Arc<RemoteMCPServer>>;
    /// The labels of a namespace, if they are known.
    fn namespace_labels(&self, namespace: &str) -> Option<Arc<BTreeMap<String, String>>>;
    /// Whether the cluster has a definition of this kind: without one there can be no object of it.
    fn is_defined(&self, _: RefKind) -> bool {
        true
    }
    /// Whether the namespace is being deleted, as far as is known.
    fn is_namespace_going(&self, namespace: &str) -> bool;
    /// The Tools that carry the label of this server.
    fn published_tools(&self, kind: &'static str, namespace: &str, server: &str) -> Vec<Arc<Tool>>;
    /// Whether an Agent, Flow or FlowSet lists this Tool.
    fn is_tool_used(&self, namespace: &str, name: &str) -> bool;
    /// A child, or a Secret or ConfigMap of somebody else.
    fn child(&self, child: &ChildRef) -> Option<Arc<CachedChild>>;
    /// Whether a NetworkPolicy of somebody else says what may reach Pods with these labels.
    fn is_ingress_governed(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool;
    /// The public keys of the gateways, as a sidecar is given them; `None`: there are none yet.
    fn caller_keys(&self) -> Option<String>;
    /// Those in this namespace whose controller has this uid, of every kind of [`ChildKind::ALL`], by kind and name.
    fn children(&self, namespace: &str, owner: &str) -> Vec<Arc<CachedChild>>;
    /// The Pods of the workload of this kind (`Agent`) and name, in the order of their names.
    fn pods(&self, kind: &'static str, namespace: &str, name: &str) -> Vec<Arc<WorkloadPod>>;
}
