//! Types of the conditions in a status: those of our kinds, and those of Pods and Deployments that are read.
//!
//! [`READY`], [`RECONCILING`] and [`STALLED`] follow
//! [kstatus](https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus). Every kind has them and [`AVAILABLE`] from its
//! first status on.

/// True if the object is in the desired state (kstatus). A Pod has a condition of this type too: it can take requests.
pub const READY: &str = "Ready";
/// True while the operator works on the object or waits for something (kstatus: abnormal-true).
pub const RECONCILING: &str = "Reconciling";
/// True if the object failed and needs a change to go on (kstatus: abnormal-true).
pub const STALLED: &str = "Stalled";
/// True if the object can be used: a workload has an available Pod or is scaled to zero. Unlike [`READY`] it stays true during a
/// rollout.
pub const AVAILABLE: &str = "Available";
/// True if everything that a workload refers to can be used.
pub const REFERENCES_RESOLVED: &str = "ReferencesResolved";
/// True if an Agent's knowledge bases have a database; absent without knowledge bases.
pub const KNOWLEDGE_BASES_CONFIGURED: &str = "KnowledgeBasesConfigured";
/// True if an agent or flow has every tool that its `toolServers` choose; absent without them. False also if a web search is left
/// out for want of a service, and if a pattern in `approval.tools` matches no tool.
pub const TOOLS_RESOLVED: &str = "ToolsResolved";
/// True if all tools of a server are known.
pub const TOOLS_DISCOVERED: &str = "ToolsDiscovered";
/// True if all Tools that a server is to publish exist; absent if it publishes none.
pub const TOOLS_PUBLISHED: &str = "ToolsPublished";
/// True if the server of a discovered Tool answers; absent for other Tools.
pub const SERVER_REACHABLE: &str = "ServerReachable";
/// False if the definition of a tool at its server is not the accepted one, or was never accepted; absent otherwise. A server has it
/// for all its tools, a Tool for its own.
pub const DEFINITION_CURRENT: &str = "DefinitionCurrent";
/// False if nothing reads some keys of a PluginConfig's `extraConfig`; absent where the type is not one that this build knows.
/// Of an agent or flow: Unknown if its own image has to know a provider of models that Récif's runner does not know, False if
/// fallbacks without credentials are left out; else absent.
pub const CONFIG_UNDERSTOOD: &str = "ConfigUnderstood";
/// True if a NetworkPolicy restricts the addresses to which the Pods of a workload connect; absent without `egress`.
pub const EGRESS_RESTRICTED: &str = "EgressRestricted";
/// True if that policy admits the metadata service from which a model's credentials come; absent otherwise.
pub const METADATA_REACHABLE: &str = "MetadataReachable";
/// False if turns that wait for a person are lost with their Pod; absent where they are stored, and without a tool that asks.
pub const APPROVALS_DURABLE: &str = "ApprovalsDurable";
/// True while calls of an Agent's tools wait for a person, as gateways hear from its runtime; then False, and absent before. Written by
/// the scaler.
pub const APPROVALS_PENDING: &str = "ApprovalsPending";
/// True if the scaler can set the number of Pods; written by the scaler, and absent without `spec.scaling`.
pub const SCALING_ACTIVE: &str = "ScalingActive";
/// True once models that stand in answer at least half of an agent's requests, as gateways see it, and until they answer less than a
/// quarter; then False, and absent before and without fallbacks. Written by the scaler.
pub const MODEL_FALLBACK: &str = "ModelFallback";
/// False while the budget of tokens or cost of all callers of a workload is spent, and Unknown while cost has no prices; absent before
/// that, and without a budget. Written by the scaler.
pub const WITHIN_LIMITS: &str = "WithinLimits";
/// False while budgets of tokens and cost of a workload have no effect, as its image reports no usage of models; absent otherwise. Written
/// by the scaler.
pub const LIMITS_ENFORCED: &str = "LimitsEnforced";
/// True while the API server drops fields of the status, because the CRDs are older than the operator; absent otherwise.
pub const CRD_OUTDATED: &str = "CRDOutdated";

/// Pod: a node was found for it.
pub const POD_SCHEDULED: &str = "PodScheduled";
/// Deployment: False if its rollout passed the deadline.
pub const PROGRESSING: &str = "Progressing";
/// Deployment: True if its Pods cannot be created or deleted.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";
