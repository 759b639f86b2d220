//! `MCPServer`: an MCP server that runs in the cluster, as a Deployment behind a Service.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use std::collections::BTreeMap;

use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ObjectRef, Period, schema,
    status::WorkloadStatus,
    tool_server::{AllowedNamespaces, Publish, ToolServerStatus},
};

/// What one server is, and how it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "agents.recif.dev",
    version = "v1",
    kind = "MCPServer",
    plural = "mcpservers",
    singular = "mcpserver",
    shortname = "mcp",
    category = "recif",
    namespaced,
    status = "MCPServerStatus",
    derive = "PartialEq",
    doc = "An MCP server that runs in the cluster: its tools are discovered, and Tools refer to them.",
    scale(
        spec_replicas_path = ".spec.deployment.replicas",
        status_replicas_path = ".status.currentReplicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Transport", type_ = "string", json_path = ".spec.transportType"),
    printcolumn(name = "Tools", type_ = "integer", json_path = ".status.toolCount"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas", description = "Ready Pods."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready, or not.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::mcp_server_rules)]
pub struct MCPServerSpec {
    /// How the program speaks: stdio (over its standard input and output: a bridge serves it over HTTP) or http (it serves
    /// Streamable HTTP itself).
    // Text and not an enum: a value of another build must not make the object unreadable.
    #[schemars(schema_with = "schema::transport_type")]
    pub transport_type: String,
    /// What runs.
    pub deployment: ServerDeployment,
    /// Where the program serves; of type http.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_transport: Option<HttpTransport>,
    /// The sidecar of its Pods, which is always there.
    #[serde(default, skip_serializing_if = "ServerProxy::is_default")]
    pub proxy: ServerProxy,
    /// How long all of a discovery of its tools may take, from 1s to 10m. Default: 30s.
    #[schemars(schema_with = "schema::discovery_timeout")]
    #[serde(default = "timeout")]
    pub timeout: Period,
    /// How often its tools are looked at again, from 1s to 24h, spread by a fifth; also when its Pods change. Default: 10m.
    #[schemars(schema_with = "schema::resync")]
    #[serde(default = "resync")]
    pub resync: Period,
    /// Makes a Tool of each of its tools, for kubectl and for agents that list them by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<Publish>,
    /// Which namespaces may have a RemoteMCPServer whose URL leads to its Service. Default: its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<AllowedNamespaces>,
}

crate::phased_object::phased_object!(workload MCPServer "mcpservers", in workload, offers server.tools_digest);

/// What of a server runs as Pods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerDeployment {
    /// Container image. A name without a slash is never pulled: load it onto the nodes.
    #[schemars(length(min = 1))]
    pub image: String,
    /// Port of the Service, and of the container unless httpTransport.targetPort says another, 1 to 65535. Default: 3000.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default = "port")]
    pub port: i32,
    /// The program. Required of type stdio; of type http empty means the image's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment. Not for credentials: keep those in a Secret. Of type stdio the bridge reads RECIF_MAX_SESSIONS, how many
    /// sessions a Pod has at a time (16), and RECIF_ALLOWED_ORIGINS, from which origins web pages may call (none).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Secrets in the same namespace whose keys become its environment.
    #[schemars(schema_with = "schema::tool_refs")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_refs: Vec<ObjectRef>,
    /// ConfigMaps in the same namespace whose keys become its environment.
    #[schemars(schema_with = "schema::tool_refs")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_map_refs: Vec<ObjectRef>,
    /// ServiceAccount of the Pods. Empty: one of the server's own, called like it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Number of Pods, 0 to 10. 0 stops the server. Default: 1.
    #[schemars(range(min = 0, max = 10))]
    #[serde(default = "one")]
    pub replicas: i32,
    /// Compute resources of the container, as in a Pod.
    #[schemars(schema_with = "schema::resources")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Overlay on the Pod template (labels, nodeSelector, tolerations, volumes, more containers …), merged by name. Checked
    /// by the API server before anything is deployed.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<serde_json::Value>,
}

/// What may be said of the sidecar of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerProxy {
    /// Whether only requests that a gateway vouches for are answered, and the operator's own for its tools; others get 401: then
    /// agents reach it by the gateway alone, and not by mcpServerRef. Default: false.
    #[serde(default)]
    pub require_identity: bool,
}

impl ServerProxy {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Where a program serves Streamable HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpTransport {
    /// The port it listens on, 1 to 65535. Empty: deployment.port.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<i32>,
    /// The path of its endpoint. Default: /mcp.
    #[schemars(schema_with = "schema::server_path")]
    #[serde(default = "path")]
    pub path: String,
}

impl MCPServerSpec {
    /// Whether the program speaks over its standard input and output.
    pub fn is_stdio(&self) -> bool {
        self.transport_type == "stdio"
    }

    /// The port of the container.
    pub fn container_port(&self) -> i32 {
        let http = self.http_transport.as_ref().filter(|_| !self.is_stdio());
        http.and_then(|http| http.target_port).unwrap_or(self.deployment.port)
    }

    /// The path of its endpoint.
    pub fn path(&self) -> &str {
        let http = self.http_transport.as_ref().filter(|_| !self.is_stdio());
        http.map_or("/mcp", |http| http.path.as_str())
    }

    /// How long all of a discovery may take.
    pub fn timeout(&self) -> Duration {
        self.timeout.length().unwrap_or(Duration::from_secs(30))
    }

    /// How often its tools are looked at again.
    pub fn resync(&self) -> Duration {
        self.resync.length().unwrap_or(Duration::from_secs(600))
    }
}

/// What the operator last saw and did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MCPServerStatus {
    /// What every workload's status holds.
    #[serde(flatten)]
    pub workload: WorkloadStatus,
    /// What is known of its tools.
    #[serde(flatten)]
    pub server: ToolServerStatus,
}

fn timeout() -> Period {
    "30s".into()
}
fn resync() -> Period {
    "10m".into()
}
fn port() -> i32 {
    3000
}
fn one() -> i32 {
    1
}
fn path() -> String {
    "/mcp".into()
}
