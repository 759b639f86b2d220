//! Kinds that the scenarios read. Objects are read as JSON, as a user with kubectl sees them.

use kube::core::ApiResource;

/// Kind of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KubeKind {
    group: &'static str,
    version: &'static str,
    /// Name in manifests.
    pub(crate) kind: &'static str,
    /// Plural in paths and in the audit log.
    pub(crate) plural: &'static str,
}

const fn kind(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> KubeKind {
    KubeKind { group, version, kind, plural }
}

pub(crate) const AGENT: KubeKind = kind(crds::GROUP, crds::VERSION, "Agent", "agents");
pub(crate) const FLOW: KubeKind = kind(crds::GROUP, crds::VERSION, "Flow", "flows");
pub(crate) const FLOW_SET: KubeKind = kind(crds::GROUP, crds::VERSION, "FlowSet", "flowsets");
pub(crate) const TOOL: KubeKind = kind(crds::GROUP, crds::VERSION, "Tool", "tools");
pub(crate) const MODEL: KubeKind = kind(crds::GROUP, crds::VERSION, "Model", "models");
pub(crate) const PLUGIN_CONFIG: KubeKind = kind(crds::GROUP, crds::VERSION, "PluginConfig", "pluginconfigs");
pub(crate) const PROMPT: KubeKind = kind(crds::GROUP, crds::VERSION, "Prompt", "prompts");
pub(crate) const MCP_SERVER: KubeKind = kind(crds::GROUP, crds::VERSION, "MCPServer", "mcpservers");
pub(crate) const REMOTE_MCP_SERVER: KubeKind = kind(crds::GROUP, crds::VERSION, "RemoteMCPServer", "remotemcpservers");
pub(crate) const DEPLOYMENT: KubeKind = kind("apps", "v1", "Deployment", "deployments");
pub(crate) const REPLICA_SET: KubeKind = kind("apps", "v1", "ReplicaSet", "replicasets");
pub(crate) const HORIZONTAL_POD_AUTOSCALER: KubeKind =
    kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers");
pub(crate) const SERVICE: KubeKind = kind("", "v1", "Service", "services");
pub(crate) const CONFIG_MAP: KubeKind = kind("", "v1", "ConfigMap", "configmaps");
pub(crate) const SECRET: KubeKind = kind("", "v1", "Secret", "secrets");
pub(crate) const SERVICE_ACCOUNT: KubeKind = kind("", "v1", "ServiceAccount", "serviceaccounts");
pub(crate) const POD: KubeKind = kind("", "v1", "Pod", "pods");
pub(crate) const EVENT: KubeKind = kind("", "v1", "Event", "events");
pub(crate) const NODE: KubeKind = kind("", "v1", "Node", "nodes");
pub(crate) const DISRUPTION_BUDGET: KubeKind = kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
pub(crate) const NAMESPACE: KubeKind = kind("", "v1", "Namespace", "namespaces");
pub(crate) const RESOURCE_QUOTA: KubeKind = kind("", "v1", "ResourceQuota", "resourcequotas");
pub(crate) const LEASE: KubeKind = kind("coordination.k8s.io", "v1", "Lease", "leases");
pub(crate) const NETWORK_POLICY: KubeKind = kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies");
pub(crate) const ROLE: KubeKind = kind("rbac.authorization.k8s.io", "v1", "Role", "roles");
pub(crate) const ROLE_BINDING: KubeKind = kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");
pub(crate) const CLUSTER_ROLE: KubeKind = kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
pub(crate) const CLUSTER_ROLE_BINDING: KubeKind =
    kind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");

pub(crate) const ADMISSION_POLICY: KubeKind =
    kind("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies");
pub(crate) const ADMISSION_POLICY_BINDING: KubeKind =
    kind("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");
// v1 since Kubernetes 1.36; `mutating_kinds` in `scenarios/refusals.rs` asks for the version.
pub(crate) const MUTATING_POLICY: KubeKind =
    kind("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies");
pub(crate) const MUTATING_POLICY_BINDING: KubeKind =
    kind("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings");
pub(crate) const DEFINITION: KubeKind =
    kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");

/// Our workload kinds, which have Pods.
pub(crate) const WORKLOADS: [KubeKind; 3] = [AGENT, FLOW, FLOW_SET];
/// All kinds of `agents.recif.dev`.
pub(crate) const OURS: [KubeKind; crds::KINDS.len()] = {
    let mut ours = [AGENT; crds::KINDS.len()];
    let mut index = 0;
    while index < ours.len() {
        ours[index] = kind(crds::GROUP, crds::VERSION, crds::KINDS[index].name, crds::KINDS[index].plural);
        index += 1;
    }
    ours
};
/// Kinds of the children of every workload.
pub(crate) const CHILDREN: [KubeKind; 6] = [SERVICE_ACCOUNT, CONFIG_MAP, SECRET, SERVICE, NETWORK_POLICY, DEPLOYMENT];

const OTHERS: [KubeKind; 19] = [
    DEPLOYMENT,
    REPLICA_SET,
    HORIZONTAL_POD_AUTOSCALER,
    SERVICE,
    CONFIG_MAP,
    SECRET,
    SERVICE_ACCOUNT,
    POD,
    EVENT,
    NAMESPACE,
    RESOURCE_QUOTA,
    LEASE,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEFINITION,
    NETWORK_POLICY,
    DISRUPTION_BUDGET,
];

impl KubeKind {
    /// Returns the kind of a manifest.
    pub(crate) fn of(manifest: &serde_json::Value) -> Option<Self> {
        OURS.into_iter().chain(OTHERS).find(|kind| manifest["kind"] == kind.kind)
    }

    /// Returns the kind in another version of its group.
    pub(crate) fn at_version(self, version: &'static str) -> Self {
        Self { version, ..self }
    }

    /// Returns the `apiVersion` in manifests.
    pub(crate) fn api_version(self) -> String {
        if self.group.is_empty() { self.version.into() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the [`ApiResource`] for the client.
    pub(crate) fn resource(self) -> ApiResource {
        ApiResource {
            group: self.group.into(),
            version: self.version.into(),
            api_version: self.api_version(),
            kind: self.kind.into(),
            plural: self.plural.into(),
        }
    }

    /// Returns the name of the child of this kind of an agent.
    pub(crate) fn child_of(self, agent: &str) -> String {
        match self {
            CONFIG_MAP | SECRET => format!("{agent}-config"),
            NETWORK_POLICY => format!("{agent}-sidecar"),
            DISRUPTION_BUDGET => format!("{agent}-budget"),
            _ => agent.into(),
        }
    }
}
