//! What the kinds that have tools to offer share: RemoteMCPServer and MCPServer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A header of requests to a server. Exactly one of value and valueFrom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::one_value)]
pub struct ServerHeader {
    /// Name of the header, such as Authorization.
    #[schemars(schema_with = "schema::server_header_name")]
    pub name: String,
    /// Its value. Not for credentials: keep those in a Secret.
    #[schemars(length(max = 8192))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where its value is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueSource>,
}

/// A key of a Secret or ConfigMap in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ValueSource {
    /// Secret or ConfigMap.
    // Text and not an enum: a value of another build must not make the object unreadable.
    #[serde(rename = "type")]
    #[schemars(schema_with = "schema::value_source_type")]
    pub type_: String,
    /// Name of the Secret or ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

impl ValueSource {
    /// Whether the value is in a Secret.
    pub fn is_secret(&self) -> bool {
        self.type_ == "Secret"
    }
}

/// How a server proves who it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::tls_rule)]
pub struct ServerTls {
    /// Takes any certificate. Whoever is on the way then reads the headers: only for tests. Default: false.
    #[serde(default)]
    pub insecure_skip_verify: bool,
    /// A Secret with the certificates (PEM) of authorities that are trusted besides the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<CaSecret>,
}

/// A Secret with certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaSecret {
    /// Name of the Secret, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key. Default: ca.crt.
    #[schemars(length(min = 1, max = 253))]
    #[serde(default = "ca_key")]
    pub key: String,
}

/// What is known of a server's tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolServerStatus {
    /// The server's tools when it last told them, by name. Their definitions are in the ConfigMap <name>.mcp-tools.
    #[schemars(schema_with = "schema::discovered_tools")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discovered_tools: Vec<DiscoveredTool>,
    /// How many they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<i32>,
    /// SHA-256 (hex) of the definitions in the ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_digest: Option<String>,
    /// When they last changed; not when they were last looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_changed_at: Option<Time>,
    /// What the server says that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_info: Option<ServerInfo>,
    /// The protocol it speaks: initialize (revisions up to 2025-11-25) or discover (from 2026-07-28 on).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub era: Option<String>,
}

impl ToolServerStatus {
    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Option<&DiscoveredTool> {
        self.discovered_tools.iter().find(|tool| tool.name == name)
    }
}

/// A tool that a server told of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiscoveredTool {
    /// Its name at the server.
    pub name: String,
    /// What it is for: the first 256 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// SHA-256 (hex) of its definition.
    #[serde(default)]
    pub digest: String,
}

/// What a server says that it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The revision of the protocol that was agreed on.
    pub protocol_version: String,
}

/// Name of the ConfigMap with the definitions of a server's tools. An object's name has no dot, so it meets no other.
pub fn tools_config_map(server: &str) -> String {
    format!("{server}.mcp-tools")
}

/// The key in it.
pub const TOOLS_KEY: &str = "tools.json";

fn ca_key() -> String {
    "ca.crt".into()
}
