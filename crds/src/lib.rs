//! The API `agents.recif.dev/v1`: its types, and pure functions over them that operator, CLI and gateway share.
//!
//! One file per kind. No client, no I/O: whoever has an object can ask this crate what it means.

pub mod agent;
mod agent_model;
pub mod cycle;
pub mod diagnosis;
pub mod digest;
pub mod flow;
pub mod flow_set;
pub mod json_schema;
pub mod kinds;
pub mod mcp_server;
pub mod model;
mod object_ref;
pub mod period;
pub mod phase;
mod phased_object;
pub mod plugin_config;
pub mod postgres_url;
pub mod prompt;
pub mod provider;
pub mod references;
pub mod remote_mcp_server;
pub mod schema;
pub mod status;
pub mod tool;
pub mod tool_server;
pub mod traffic;
pub mod why;

pub use agent::{Agent, AgentSpec};
pub use agent_model::agent_model;
pub use flow::{Flow, FlowSpec};
pub use flow_set::{FlowSet, FlowSetSpec};
pub use kinds::{ApiKind, KINDS, Role, manifests};
pub use mcp_server::{MCPServer, MCPServerSpec};
pub use model::{Model, ModelSpec};
pub use object_ref::ObjectRef;
pub use period::Period;
pub use phase::{ReferencePhase, WorkloadPhase};
pub use plugin_config::{PluginConfig, PluginConfigSpec};
pub use prompt::{Prompt, PromptSpec};
pub use references::{HasReferences, RefKind, Reference};
pub use remote_mcp_server::{RemoteMCPServer, RemoteMCPServerSpec};
pub use status::{ChildRecord, ENDED_BY_READY_PODS, ReferenceStatus, WorkloadStatus, is_ended_by_ready_pods};
pub use tool::{Tool, ToolSpec};
pub use tool_server::ToolServerStatus;
pub use traffic::{Expose, PROXY_PORT, Proxy, READY_PATH, Scaling, Traffic};
pub use why::StatusExplanation;

/// The API group of every kind.
pub const GROUP: &str = "agents.recif.dev";
/// The only version served.
pub const VERSION: &str = "v1";
/// The field manager of every write of the operator.
pub const FIELD_MANAGER: &str = "recif-operator";
/// The value of `app.kubernetes.io/managed-by` on every child.
pub const MANAGED_BY: &str = "recif-operator";
/// The finalizer of the workload kinds.
pub const FINALIZER: &str = "recif.dev/cleanup";
/// The annotation by which a rollout is asked for: when, RFC 3339. It also stands on the Pod template, so that Pods are
/// replaced, and it renews the images that came from the operator.
pub const ROLLOUT_AT: &str = "recif.dev/rollout-at";
