//! Status of the tools of an MCP server: those in use, and those whose definition waits for a person.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Discovered tools of an MCP server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolServerStatus {
    /// Tools of the server as of its last answer, by name. Their definitions are in a ConfigMap of the server's own.
    #[schemars(schema_with = "schema::by_name::<DiscoveredTool>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discovered_tools: Vec<DiscoveredTool>,
    /// Number of tools in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_count: Option<i32>,
    /// Number of tools whose definition at the server waits until it is accepted; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_count: Option<i32>,
    /// SHA-256 (hex) of the definitions in use, in the ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_digest: Option<String>,
    /// SHA-256 (hex) of the definitions that wait, in the ConfigMap; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_tools_digest: Option<String>,
    /// Accepted tools that the server no longer has, by name: one that comes back unchanged is in use again.
    #[schemars(schema_with = "schema::by_name::<GoneTool>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone_tools: Vec<GoneTool>,
    /// Number of Tools that were published from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_tools: Option<i32>,
    /// Time of the last change of the tools in use, not of the last discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_changed_at: Option<Time>,
    /// Name and version that the server reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_info: Option<ServerInfo>,
    /// MCP handshake that the server speaks: initialize (revisions up to 2025-11-25) or discover (from 2026-07-28 on).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub era: Option<String>,
}

impl ToolServerStatus {
    /// Returns the tool of this name, if it is in use.
    pub fn tool(&self, name: &str) -> Option<&DiscoveredTool> {
        self.in_use().find(|tool| tool.name == name)
    }

    /// Returns the tool of this name, if its definition at the server waits until it is accepted.
    pub fn held_tool(&self, name: &str) -> Option<&DiscoveredTool> {
        self.held().find(|tool| tool.name == name)
    }

    /// Returns the tools in use, by name.
    pub fn in_use(&self) -> impl Iterator<Item = &DiscoveredTool> {
        self.discovered_tools.iter().filter(|tool| tool.is_in_use())
    }

    /// Returns the tools whose definition at the server waits until it is accepted, by name.
    pub fn held(&self) -> impl Iterator<Item = &DiscoveredTool> {
        self.discovered_tools.iter().filter(|tool| tool.held_digest.is_some())
    }
}

/// Tool that an MCP server reported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredTool {
    /// Name of the tool at the server.
    pub name: String,
    /// Description of the tool, its first 256 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// SHA-256 (hex) of the tool's definition in use; empty for a tool that was never accepted.
    #[serde(default)]
    pub digest: String,
    /// SHA-256 (hex) of the definition at the server, if it waits until it is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_digest: Option<String>,
    /// Time since which the definition at the server is not the one in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_at: Option<Time>,
    /// Reason why it waits: ToolChanged, ToolNotAccepted (a new tool) or HiddenText.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_reason: Option<String>,
}

impl DiscoveredTool {
    /// Reports whether a definition of the tool was accepted, which agents have.
    pub fn is_in_use(&self) -> bool {
        !self.digest.is_empty()
    }
}

/// Accepted tool that an MCP server no longer has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GoneTool {
    /// Name of the tool at the server.
    pub name: String,
    /// SHA-256 (hex) of its accepted definition.
    #[serde(default)]
    pub digest: String,
}

/// Name and version that an MCP server reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerInfo {
    /// Name that the server reports.
    pub name: String,
    /// Version that the server reports.
    pub version: String,
    /// Revision of the protocol that was agreed on.
    pub protocol_version: String,
}
