//! Declares the edges of the state machine of workloads, used for the driver's check and for the diagram in the documentation.

use crds::WorkloadPhase::{self, Deploying, Failed, Pending, Rendering, Resolving, Running, Terminated, Terminating};
use crds::reason;
use machine::{Edge, EdgeFrom, Rule};
use meta::condition_type;

/// Edges of Agent, Flow, FlowSet and MCPServer.
pub const EDGES: &[Edge<WorkloadPhase>] = &[
    Edge::rule(EdgeFrom::Nothing, Pending, Rule::Admit, "first seen"),
    Edge::rule(
        EdgeFrom::In(Terminating),
        Pending,
        Rule::Admit,
        "the status says deleted, but the object is not being deleted",
    ),
    Edge::new(Pending, Resolving, "accept", "the spec is valid"),
    Edge::new(Pending, Failed, "accept", "the spec is invalid"),
    Edge::new(Resolving, Rendering, "resolve", "every reference is there"),
    Edge::new(Resolving, Failed, "resolve", "a reference can never be used"),
    Edge::new(Rendering, Deploying, "render", "the configuration is written"),
    Edge::new(Rendering, Resolving, "render", "a reference changed"),
    Edge::new(
        Rendering,
        Failed,
        "render",
        "too large, a prompt is refused, a name is taken, or the API server refuses it",
    ),
    Edge::new(Deploying, Running, "deploy", "all Pods are ready"),
    Edge::new(Deploying, Terminated, "deploy", "no Pods are wanted and none is left"),
    Edge::new(Deploying, Failed, "deploy", "the Pods do not come up, or the API server refuses them"),
    Edge::new(Deploying, Resolving, "deploy", "a reference changed"),
    Edge::new(Deploying, Rendering, "deploy", "the configuration is gone or was changed"),
    Edge::new(Running, Resolving, "monitor", "a reference changed"),
    Edge::new(Running, Deploying, "monitor", "the Deployment is gone, or no Pods are wanted"),
    Edge::new(Running, Failed, "monitor", "no Pod was ready for 5 minutes"),
    Edge::new(Terminated, Resolving, "monitor", "Pods are wanted, and a reference changed or was not waited for yet"),
    Edge::new(Terminated, Deploying, "monitor", "Pods are wanted, or the Deployment is gone"),
    Edge::new(Failed, Resolving, "recover", "the cause is gone, or the back-off is over"),
    Edge::rule(EdgeFrom::In(Pending), Failed, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::In(Resolving), Failed, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::In(Rendering), Failed, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::In(Deploying), Failed, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::In(Running), Failed, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::In(Terminated), Failed, Rule::Fail, "failed permanently"),
    Edge::rule(EdgeFrom::Any, Pending, Rule::SpecChanged, "the spec changed"),
    Edge::rule(EdgeFrom::Any, Terminating, Rule::Delete, "deleted"),
];

/// Failure reasons that a later retry does not repair.
pub const NOT_RETRYABLE: &[&str] = &[
    reason::INVALID_SPEC,
    reason::APPROVAL_UNSUPPORTED,
    reason::INVALID_DATABASE_URL,
    reason::MISSING_DATABASE_URL,
    reason::NAME_CONFLICT,
    reason::PROGRESS_DEADLINE_EXCEEDED,
    reason::REPLICA_FAILURE,
    reason::SELECTOR_IMMUTABLE,
    reason::UNHEALTHY,
];

/// Paths in the status that decide on steps, besides those that all kinds have.
pub const DECISION_PATHS: &[&str] = &[
    "contentHash",
    "children",
    "children[].kind",
    "children[].name",
    "children[].uid",
    "children[].inputs",
    "children[].owned",
    "publishedTools",
];

/// Condition types that rendering writes, each for as long as the spec has the fields it is about.
pub(super) const RENDERED_CONDITIONS: &[&str] = &[
    condition_type::KNOWLEDGE_BASES_CONFIGURED,
    condition_type::TOOLS_RESOLVED,
    condition_type::CONFIG_UNDERSTOOD,
    condition_type::MODEL_FALLBACK,
    condition_type::EGRESS_RESTRICTED,
    condition_type::METADATA_REACHABLE,
    condition_type::APPROVALS_DURABLE,
];

/// Condition types that the actions of a workload write.
pub const CONDITIONS: &[&str] = &[
    condition_type::AVAILABLE,
    condition_type::REFERENCES_RESOLVED,
    condition_type::KNOWLEDGE_BASES_CONFIGURED,
    condition_type::TOOLS_RESOLVED,
    condition_type::CONFIG_UNDERSTOOD,
    condition_type::EGRESS_RESTRICTED,
    condition_type::METADATA_REACHABLE,
    condition_type::APPROVALS_DURABLE,
];
