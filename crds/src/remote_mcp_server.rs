//! `RemoteMCPServer`: an MCP server that runs elsewhere, whose tools are discovered.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use std::time::Duration;

use kube::CustomResource;
use meta::CommonStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Period, schema,
    tool_server::{AllowedNamespaces, Publish, ServerHeader, ServerTls, ToolServerStatus},
};

/// Where a server is, and how it is asked for its tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "agents.recif.dev",
    version = "v1",
    kind = "RemoteMCPServer",
    plural = "remotemcpservers",
    singular = "remotemcpserver",
    shortname = "rmcp",
    category = "recif",
    namespaced,
    status = "RemoteMCPServerStatus",
    derive = "PartialEq",
    doc = "An MCP server that runs elsewhere: its tools are discovered, and Tools refer to them.",
    printcolumn(name = "Protocol", type_ = "string", json_path = ".spec.protocol"),
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "Tools", type_ = "integer", json_path = ".status.toolCount"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "Why it is ready, or not.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RemoteMCPServerSpec {
    /// What the server is for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How it speaks: STREAMABLE_HTTP, or SSE (the transport of the protocol's first revision). Default: STREAMABLE_HTTP.
    // Text and not an enum: a value of another build must not make the object unreadable.
    #[schemars(schema_with = "schema::server_protocol")]
    #[serde(default = "streamable_http")]
    pub protocol: String,
    /// Its endpoint, such as https://mcp.example.com/mcp.
    #[schemars(schema_with = "schema::server_url")]
    pub url: String,
    /// Headers of every request to it, each name once.
    #[schemars(schema_with = "schema::server_headers")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers_from: Vec<ServerHeader>,
    /// How it proves who it is, where its URL begins with https: to the operator, and to agents and flows that call its tools.
    /// Those of other namespaces do not read its Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ServerTls>,
    /// How long all of a discovery may take, from 1s to 10m. Default: 30s.
    #[schemars(schema_with = "schema::discovery_timeout")]
    #[serde(default = "timeout")]
    pub timeout: Period,
    /// How long a stream of events of the server may be silent, from 1s to 1h: it is opened again then. Default: 5m.
    #[schemars(schema_with = "schema::sse_read_timeout")]
    #[serde(default = "sse_read_timeout")]
    pub sse_read_timeout: Period,
    /// Whether a session is ended at the server when a discovery is done. Default: true.
    #[serde(default = "yes")]
    pub terminate_on_close: bool,
    /// How often its tools are looked at again, from 1s to 24h, spread by a fifth; a server may ask for a longer time.
    /// Default: 60s.
    #[schemars(schema_with = "schema::resync")]
    #[serde(default = "resync")]
    pub resync: Period,
    /// Which namespaces may refer to it. Default: its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<AllowedNamespaces>,
    /// Makes a Tool of each of its tools, for kubectl and for agents that list them by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<Publish>,
}

crate::phased_object::phased_object!(reference RemoteMCPServer "remotemcpservers", offers server.tools_digest);

impl RemoteMCPServerSpec {
    /// How long all of a discovery may take.
    pub fn timeout(&self) -> Duration {
        self.timeout.length().unwrap_or(Duration::from_secs(30))
    }

    /// How long a stream of events may be silent.
    pub fn sse_read_timeout(&self) -> Duration {
        self.sse_read_timeout.length().unwrap_or(Duration::from_secs(300))
    }

    /// How often its tools are looked at again.
    pub fn resync(&self) -> Duration {
        self.resync.length().unwrap_or(Duration::from_secs(60))
    }
}

/// What the operator last saw and did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemoteMCPServerStatus {
    /// What the state machine keeps.
    #[serde(flatten)]
    pub machine: CommonStatus,
    /// What is known of its tools.
    #[serde(flatten)]
    pub server: ToolServerStatus,
}

fn streamable_http() -> String {
    "STREAMABLE_HTTP".into()
}
fn sse_read_timeout() -> Period {
    "5m".into()
}
fn yes() -> bool {
    true
}
fn timeout() -> Period {
    "30s".into()
}
fn resync() -> Period {
    "60s".into()
}
