//! Children of objects, reduced to what decisions need.

use std::{collections::BTreeMap, fmt, sync::Arc};

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
    /// Message of `Progressing=False` with the reason `ReplicaSetCreateError`: no ReplicaSet can be created. Until one is, Kubernetes does
    /// not write the generation that it has observed.
    pub replica_set_failure: Option<String>,
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
