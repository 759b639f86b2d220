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
    Period,
    references::{HasReferences, ReferenceSet},
    schema,
    tool_pins::{HOLD, ON_CHANGE},
    tool_server::{AllowedNamespaces, Publish, ServerHeader, ServerTls, ToolServerStatus},
};

/// Desired state of an MCP server that runs elsewhere: its address, and how its tools are discovered.
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
pub struct RemoteMCPServerSpec {
    /// Purpose of the server, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Transport of the server: STREAMABLE_HTTP, or SSE (the transport of the protocol's first revision). Default:
    /// STREAMABLE_HTTP.
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[schemars(extend("enum" = ["STREAMABLE_HTTP", "SSE"]))]
    #[serde(default = "streamable_http")]
    pub protocol: String,
    /// URL of the MCP endpoint, such as https://mcp.example.com/mcp. Credentials go into headersFrom.
    #[schemars(
        length(max = 2048),
        transform = schema::rule(
            "self.matches('^https?://[^/?#@[:space:]]+([/?#][^[:space:]]*)?$')",
            "must be an http or https URL, such as https://mcp.example.com/mcp; credentials go into headersFrom",
        )
    )]
    pub url: String,
    /// Headers of every request to the server, each name once, at most 32.
    #[schemars(schema_with = "schema::by_name::<ServerHeader>", length(max = 32))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers_from: Vec<ServerHeader>,
    /// Verification of the server's certificate if its url begins with https, by the operator, and by agents and flows
    /// that call its tools. Those of other namespaces do not read its Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ServerTls>,
    /// Longest time for a whole discovery of the server's tools, from 1s to 10m. Default: 30s.
    #[schemars(transform = Period::between("1s", "10m", "30s or 2m"))]
    #[serde(default = "timeout")]
    pub timeout: Period,
    /// Longest silence of an event stream of the server, from 1s to 1h; the stream is then opened again. Default: 5m.
    #[schemars(transform = Period::between("1s", "1h", "90s or 5m"))]
    #[serde(default = "sse_read_timeout")]
    pub sse_read_timeout: Period,
    /// Ends the session at the server after each discovery. Default: true.
    #[serde(default = "yes")]
    pub terminate_on_close: bool,
    /// Interval between discoveries of the server's tools, from 1s to 24h, with a jitter of a fifth; the server may ask
    /// for a longer one. Default: 60s.
    #[schemars(transform = Period::between("1s", "24h", "60s or 1h"))]
    #[serde(default = "resync")]
    pub resync: Period,
    /// Namespaces whose Tools may refer to this server. Default: its own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<AllowedNamespaces>,
    /// Publication of each discovered tool as a Tool object, for kubectl and for agents that list Tools by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<Publish>,
    /// What becomes of tools that the server changes or gains: Hold (agents keep the accepted definitions, and new tools
    /// wait, until recif tools accept), or Adopt (agents have them within a minute). Default: Hold.
    // Not written where it is the default, so that the digest of an older object stays as it is.
    #[schemars(extend("enum" = ON_CHANGE))]
    #[schemars(extend("default" = HOLD))]
    #[serde(default = "hold", skip_serializing_if = "is_hold")]
    pub on_change: String,
}

crate::phased_object::phased_object!(
    reference RemoteMCPServer "remotemcpservers", offers server.tools_digest, offers server.held_tools_digest
);

impl HasReferences for RemoteMCPServer {
    fn collect(&self, mentions: &mut ReferenceSet) {
        mentions.add_server(&self.spec.headers_from, self.spec.tls.as_ref());
    }
}

impl RemoteMCPServerSpec {
    /// Returns the longest time for a whole discovery.
    pub fn timeout(&self) -> Duration {
        self.timeout.length_or(timeout)
    }

    /// Returns the longest silence of an event stream.
    pub fn sse_read_timeout(&self) -> Duration {
        self.sse_read_timeout.length_or(sse_read_timeout)
    }

    /// Returns the interval between discoveries.
    pub fn resync(&self) -> Duration {
        self.resync.length_or(resync)
    }
}

/// Observed state of a remote MCP server, as the operator last wrote it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemoteMCPServerStatus {
    /// Status fields of every kind.
    #[serde(flatten)]
    pub machine: CommonStatus,
    /// Discovered tools of the server.
    #[serde(flatten)]
    pub server: ToolServerStatus,
}

fn hold() -> String {
    HOLD.into()
}
fn is_hold(on_change: &str) -> bool {
    on_change == HOLD
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
