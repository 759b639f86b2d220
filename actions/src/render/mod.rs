//! Renders the children to apply from a spec and its references, by pure functions without I/O, clock or client.
//!
//! There are two steps, one per phase: [`agent_config`] renders the environment of the containers and its digest
//! ([`agent_config_children`] the objects that hold it), [`agent_workload_children`] the objects that run with it. The same
//! arguments always give the same bytes. An error that is visible in the values alone is a [`RenderError`], which says what to
//! do.

mod agent;
mod card;
mod container;
mod contract;
mod disruption_budget;
pub mod dsn;
mod egress;
mod env;
mod error;
mod flow;
mod hash;
mod headers;
mod labels;
mod mcp_server;
mod model;
mod network_policy;
mod overlay;
mod pod;
mod pod_security;
mod provider;
mod service;
mod sidecar;
mod sizes;
mod sorted;
mod system_prompt;
mod tool_error;
mod tools;
mod tools_file;
mod workload;
mod workload_parts;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crds::egress::AddressRange;

pub use agent::{AGENT, AgentImages, CONFIG_HASH, agent_config_children, agent_workload_children};
pub use contract::{Credentials, FlowContract, FlowModel, FlowParts, FlowTool, check_member, check_names};
pub use disruption_budget::{disruption_budget, disruption_budget_name};
pub use egress::{EgressRules, RenderedAddresses, rendered_addresses};
pub use env::{AgentConfig, AgentParts, agent_config};
pub use error::RenderError;
pub use flow::{CONTENT_HASH, FLOW, FLOW_SET, FlowImages, FlowKind, flow_config_children, flow_workload_children};
pub use headers::{CallTls, HeaderFrom, HeaderVariable, call_tls, header_variables, headers, variables};
pub use labels::{
    AGENT_LABEL, MANAGED_BY_LABEL, child_labels, controller_reference, kind_label, selector_labels, selector_text,
    tool_manifest, tools_manifest,
};
pub use mcp_server::{
    BRIDGE, MCP_SERVER_LABEL, ServerImages, mcp_server_config_children, mcp_server_hash, mcp_server_workload_children,
};
pub use network_policy::{egress_policy_name, network_policy, network_policy_name, with_egress};
pub use pod_security::{PodSecurity, check_pod_security, pod_security_violation};
pub use provider::plugin_variables;
pub use service::{AGENT_PORT, endpoint, endpoint_of};
pub use sidecar::{PROXY, PinnedProxy};
pub(crate) use sizes::MAX_OBJECT;
pub(crate) use tool_error::is_web_address;
pub use tool_error::tool_error;
pub use tools::ToolSlot;
pub use tools_file::ToolsFile;

/// Settings of the operator that rendering uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderSettings {
    /// Namespace of the operator; single-label hosts of its own URLs are in it.
    pub operator_namespace: String,
    /// DNS domain of the cluster, such as `cluster.local`.
    pub cluster_domain: String,
    /// Default database of agents, from `DATABASE_URL`; a valid DSN.
    pub database_url: Option<String>,
    /// Namespaces whose agents inherit that database.
    pub database_namespaces: Namespaces,
    /// Default Ollama, from `OLLAMA_BASE_URL`.
    pub ollama_base_url: Option<String>,
    /// Image of Agents that name none, from `--agent-image`; empty: [`crds::agent::DEFAULT_IMAGE`].
    pub agent_image: String,
    /// Image of Flows and FlowSets that name none.
    pub runner_image: String,
    /// Image of the sidecar.
    pub proxy_image: String,
    /// Variables of OpenTelemetry that Pods get, from the operator's own; none with `--pod-otel=false`.
    pub telemetry: BTreeMap<String, String>,
    /// True if workloads with a sidecar get a NetworkPolicy, from `--network-policies`.
    pub network_policies: bool,
    /// Ranges of the cluster's Pods, Services and nodes, which DNS names in `egress` do not admit, from `--cluster-cidr`.
    pub cluster_cidrs: Vec<AddressRange>,
    /// Least restrictive Pod Security level that an overlay may use.
    pub pod_security: PodSecurity,
}

/// Some or all namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// All namespaces.
    All,
    /// These namespaces.
    These(BTreeSet<String>),
}

impl RenderSettings {
    /// Returns the database that agents of this namespace inherit.
    pub fn database_of(&self, namespace: &str) -> Option<&str> {
        let inherited = match &self.database_namespaces {
            Namespaces::All => true,
            Namespaces::These(names) => names.contains(namespace),
        };
        self.database_url.as_deref().filter(|url| inherited && !url.is_empty())
    }
}
