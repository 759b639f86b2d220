//! Types of the API `agents.recif.dev/v1`, and pure functions over them that operator, CLI and gateway share.
//!
//! One file per kind. No client and no I/O.

pub mod advice;
pub mod agent;
pub mod agent_card;
mod agent_model;
pub mod approval;
mod custom_object;
pub mod cycle;
mod definition;
pub mod diagnosis;
pub mod digest;
pub mod egress;
pub mod flow;
pub mod flow_set;
pub mod forward_headers;
pub mod hidden_text;
pub mod json_schema;
pub mod kinds;
pub mod kubernetes;
pub mod limit;
pub mod mcp_server;
pub mod model;
mod needed_approval;
mod object_ref;
pub mod pending_calls;
pub mod period;
pub mod phase;
mod phased_object;
pub mod plugin_config;
pub mod pod_problem;
pub mod postgres_url;
pub mod prompt;
pub mod provider;
pub mod readiness;
pub mod reason;
pub mod references;
pub mod remote_mcp_server;
mod schema;
mod sidecar;
pub mod status;
pub mod system_prompt;
pub mod tool;
mod tool_choice;
pub mod tool_pins;
pub mod tool_server;
pub mod tool_server_ref;
mod tool_server_status;
pub mod traffic;
pub mod usage;
pub mod why;

pub use agent_model::agent_model;
pub use custom_object::CustomObject;
pub use kinds::{ApiKind, KINDS, Role, manifests};
pub use limit::Limit;
pub use mcp_server::MCPServerSpec;
pub use model::ModelSpec;
pub use object_ref::ObjectRef;
pub use period::Period;
pub use phase::{ReferencePhase, WorkloadPhase};
pub use plugin_config::PluginConfigSpec;
pub use references::{HasReferences, RefKind, Reference};
pub use sidecar::{PROXY_CONTAINER, PROXY_PORT, PROXY_PORT_NAME, READY_PATH, UPSTREAM_PORT_NAME, proxy_port};
pub use status::{ChildRecord, ENDED_BY_READY_PODS, ReferenceStatus, WorkloadStatus, is_ended_by_ready_pods};
pub use tool::ToolSpec;
pub use tool_server::ToolServerStatus;
pub use tool_server_ref::ToolServerRef;
pub use traffic::{Expose, Proxy, Scaling, Traffic};
pub use why::StatusExplanation;

/// Re-exports the type of every kind.
macro_rules! kind_types {
    ($($kind:ident $module:ident $plural:literal $short:literal $role:ident $children:ident $($rank:literal)?;)+) => {
        $(pub use $module::$kind;)+
    };
}
crate::for_each_kind!(kind_types);

/// API group of every kind.
pub const GROUP: &str = "agents.recif.dev";
/// Only version that is served.
pub const VERSION: &str = "v1";
/// Annotation of a CustomResourceDefinition with the version of Récif that it comes from, such as `0.2.0`.
pub const CRD_VERSION: &str = "recif.dev/version";
/// Annotation of a CustomResourceDefinition with a digest of its versions and their schemas, 16 hexadecimal digits. It is equal
/// for definitions that accept and keep the same fields.
pub const CRD_SCHEMA: &str = "recif.dev/schema";
/// Field manager of every write of the operator.
pub const FIELD_MANAGER: &str = "recif-operator";
/// Value of the label `app.kubernetes.io/managed-by` on every child.
pub const MANAGED_BY: &str = "recif-operator";
/// Finalizer of the workload kinds.
pub const FINALIZER: &str = "recif.dev/cleanup";
/// Annotation that requests a rollout; its value is the time of the request (RFC 3339). It is also set on the Pod
/// template, so that Pods are replaced, and it renews the images that the operator chose.
pub const ROLLOUT_AT: &str = "recif.dev/rollout-at";
