//! `MCPServer`: an MCP server that runs in the cluster, as a Deployment behind a Service.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::CustomResource;
use meta::schema::brief;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Limit, ObjectRef, PROXY_PORT, Period, egress, limit,
    references::{HasReferences, RefKind, ReferenceSet},
    schema,
    status::WorkloadStatus,
    tool_pins::{ADOPT, ON_CHANGE},
    tool_server::{AllowedNamespaces, Publish, ToolServerStatus},
};

/// Desired state of an MCP server that runs in the cluster.
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
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether all is as the spec says."
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.replicas", description = "Ready Pods."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        json_path = ".status.desiredReplicas",
        description = "Pods that the spec or the load requires.",
        priority = 1
    ),
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".status.endpoint", priority = 1),
    printcolumn(
        name = "Held",
        type_ = "integer",
        json_path = ".status.heldCount",
        description = "Tools whose definition waits until it is accepted.",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready, or not.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = schema::rule(
        "self.transportType != 'stdio' || (has(self.deployment.cmd) && self.deployment.cmd != '')",
        "a server of type stdio needs the program to run: set deployment.cmd",
    ),
    transform = schema::rule(
        "self.transportType != 'stdio' || !has(self.httpTransport)",
        "a server of type stdio is served by the bridge: leave out httpTransport, or set transportType to http",
    ),
    transform = schema::rule(
        format!(
            "(has(self.httpTransport) && has(self.httpTransport.targetPort) ? self.httpTransport.targetPort \
             : self.deployment.port) != {PROXY_PORT}"
        ),
        format!("port {PROXY_PORT} is the sidecar's: let the container listen on another one"),
    ),
    transform = schema::rule(
        "!has(self.limits) || self.limits.all(limit, !has(limit.tokensPerDay) && !has(limit.costPerDay))",
        "an MCP server has no model: set requestsPerMinute alone",
    )
)]
pub struct MCPServerSpec {
    /// Transport of the program: stdio (standard input and output, which a bridge serves over HTTP) or http (the
    /// program serves Streamable HTTP itself).
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[schemars(extend("enum" = ["stdio", "http"]))]
    pub transport_type: String,
    /// Container and Pods of the server.
    pub deployment: ServerDeployment,
    /// Endpoint of the program's own HTTP server. Only with transportType http.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_transport: Option<HttpTransport>,
    /// Settings of the sidecar, which every Pod of the server has.
    #[serde(default, skip_serializing_if = "ServerProxy::is_default")]
    pub proxy: ServerProxy,
    /// Longest time for a whole discovery of the server's tools, from 1s to 10m. Default: 30s.
    #[schemars(transform = Period::between("1s", "10m", "30s or 2m"))]
    #[serde(default = "timeout")]
    pub timeout: Period,
    /// Interval between discoveries of the server's tools, from 1s to 24h, with a jitter of a fifth. A change of its
    /// Pods starts a discovery, too. Default: 10m.
    #[schemars(transform = Period::between("1s", "24h", "60s or 1h"))]
    #[serde(default = "resync")]
    pub resync: Period,
    /// Publication of each discovered tool as a Tool object, for kubectl and for agents that list Tools by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<Publish>,
    /// What becomes of tools that the server changes or gains: Adopt (agents have them within a minute), or Hold (agents
    /// keep the accepted definitions, and new tools wait, until recif tools accept). Default: Adopt.
    // Not written where it is the default, so that the digest of an older object stays as it is.
    #[schemars(extend("enum" = ON_CHANGE))]
    #[schemars(extend("default" = ADOPT))]
    #[serde(default = "adopt", skip_serializing_if = "is_adopt")]
    pub on_change: String,
    /// Namespaces whose RemoteMCPServers may have the Service of this server as url. Default: its own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<AllowedNamespaces>,
    /// Limits of the requests that come by the gateway: of all callers together, of each caller, or both. An edit
    /// restarts no Pod.
    #[schemars(schema_with = "limit::list")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
}

crate::phased_object::phased_object!(
    workload MCPServer "mcpservers", in workload, offers server.tools_digest, offers server.held_tools_digest
);

impl HasReferences for MCPServer {
    fn collect(&self, mentions: &mut ReferenceSet) {
        let deployment = &self.spec.deployment;
        deployment.secret_refs.iter().for_each(|secret| mentions.add(RefKind::Secret, &secret.name));
        deployment.config_map_refs.iter().for_each(|map| mentions.add(RefKind::ConfigMap, &map.name));
    }
}

/// Container and Pods of an MCP server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerDeployment {
    /// Container image.
    #[schemars(length(min = 1))]
    pub image: String,
    /// Pull policy of the image: Always, IfNotPresent or Never. Empty: Never for a name without a slash, else
    /// IfNotPresent.
    #[schemars(schema_with = "schema::pull_policy")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Port of the Service, and of the container unless httpTransport.targetPort is set, 1 to 65535. Default: 3000.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default = "port")]
    pub port: i32,
    /// Command of the container. Required with transportType stdio; with http, empty means the image's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<String>,
    /// Arguments of the command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables of the container. Keep credentials in a Secret (secretRefs) instead. With transportType
    /// stdio the bridge reads RECIF_MAX_SESSIONS, the most sessions of a Pod at a time (default 16), and
    /// RECIF_ALLOWED_ORIGINS, the origins from which web pages may call (default none).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Secrets in the same namespace whose keys become environment variables of the container.
    #[schemars(schema_with = "schema::by_name::<ObjectRef>", length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_refs: Vec<ObjectRef>,
    /// ConfigMaps in the same namespace whose keys become environment variables of the container.
    #[schemars(schema_with = "schema::by_name::<ObjectRef>", length(max = 64))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_map_refs: Vec<ObjectRef>,
    /// Addresses to which the Pods may connect, at most 64: a host, *.domain, an address or a CIDR, each with a port if it is not 443,
    /// such as api.example.com, *.example.com:8443 or 10.1.0.0/16:5432. DNS is added. Empty list: DNS
    /// alone. No list: no restriction.
    #[schemars(schema_with = "egress::schema")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<String>>,
    /// ServiceAccount of the Pods. Empty: a ServiceAccount of the server's own, with the server's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Number of Pods, 0 to 10. 0 stops the server. Default: 1.
    #[schemars(range(min = 0, max = 10))]
    #[serde(default = "one")]
    pub replicas: i32,
    /// Compute resources of the container, as in a Pod.
    #[schemars(schema_with = "brief::<ResourceRequirements>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Overlay on the Pod template (labels, nodeSelector, tolerations, volumes, more containers …), merged by name. The
    /// API server checks the result before anything is deployed.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<serde_json::Value>,
}

/// Settings of the sidecar of an MCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerProxy {
    /// Answers 401 to all requests that no gateway vouches for, except the operator's own discovery. Agents then reach
    /// the server through the gateway only, and not by mcpServerRef. Default: false.
    #[serde(default)]
    pub require_identity: bool,
}

impl ServerProxy {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Endpoint of a program that serves Streamable HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpTransport {
    /// Port that the program listens on, 1 to 65535. Empty: deployment.port.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<i32>,
    /// Path of the MCP endpoint. Default: /mcp.
    #[schemars(
        length(max = 1024),
        transform = schema::rule(
            "self.matches('^/[^?#[:space:]]*$')",
            "must be a path that begins with '/', such as /mcp, without '?' and '#'",
        )
    )]
    #[serde(default = "path")]
    pub path: String,
}

impl MCPServerSpec {
    /// Reports whether the program speaks over its standard input and output.
    pub fn is_stdio(&self) -> bool {
        self.transport_type == "stdio"
    }

    /// Returns the port of the container.
    pub fn container_port(&self) -> i32 {
        let http = self.http_transport.as_ref().filter(|_| !self.is_stdio());
        http.and_then(|http| http.target_port).unwrap_or(self.deployment.port)
    }

    /// Returns the path of the MCP endpoint.
    pub fn path(&self) -> &str {
        let http = self.http_transport.as_ref().filter(|_| !self.is_stdio());
        http.map_or("/mcp", |http| http.path.as_str())
    }

    /// Returns the longest time for a whole discovery.
    pub fn timeout(&self) -> Duration {
        self.timeout.length_or(timeout)
    }

    /// Returns the interval between discoveries.
    pub fn resync(&self) -> Duration {
        self.resync.length_or(resync)
    }
}

/// Observed state of an MCP server, as the operator last wrote it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MCPServerStatus {
    /// Status fields of every workload.
    #[serde(flatten)]
    pub workload: WorkloadStatus,
    /// Discovered tools of the server.
    #[serde(flatten)]
    pub server: ToolServerStatus,
}

fn adopt() -> String {
    ADOPT.into()
}
fn is_adopt(on_change: &str) -> bool {
    on_change == ADOPT
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
