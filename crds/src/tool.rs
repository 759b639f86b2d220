//! `Tool`: something an agent or flow may call.
#![expect(
    clippy::duplicated_attributes,
    reason = "the lint takes the parts of two `printcolumn(…)` for the same attribute"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ObjectRef, schema,
    status::ReferenceStatus,
    tool_server::{ServerHeader, ServerTls},
};

/// What a tool is, how it is called and what it takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "agents.recif.dev",
    version = "v1",
    kind = "Tool",
    plural = "tools",
    singular = "tool",
    shortname = "tl",
    category = "recif",
    namespaced,
    status = "ReferenceStatus",
    derive = "PartialEq",
    doc = "Something that an agent may call.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Category", type_ = "string", json_path = ".spec.category"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::tool_rules)]
pub struct ToolSpec {
    /// The name the model sees: 1 to 64 letters, digits, '_' and '-'.
    #[schemars(length(min = 1))]
    pub name: String,
    /// How the tool is called: http (needs endpoint), cli (needs binary), mcp (needs mcpEndpoint or mcpServerRef), builtin,
    /// flow (needs flowRef) or agent (needs agentRef).
    // Text and not an enum: a value of another build must not make the object unreadable.
    #[serde(rename = "type")]
    #[schemars(schema_with = "schema::tool_type")]
    pub type_: String,
    /// Free grouping, for people. Default: general.
    #[serde(default = "general")]
    pub category: String,
    /// What the model is told about the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// URL of an http tool. {name} in it is replaced by that parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// HTTP method of an http tool. Default of the runtime: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Headers of an http or mcp tool. $NAME in a value is replaced by that variable of the agent's own env or envFrom, or by
    /// one of this tool's headersFrom; not by those that begin with CORAIL_, RECIF_ or OTEL_, nor by other tools'.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers of an http or mcp tool whose values are in Secrets.
    #[schemars(schema_with = "schema::headers_from")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers_from: Vec<HeaderSource>,
    /// Program of a cli tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// First arguments a cli tool may be called with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_commands: Vec<String>,
    /// The words that begin with - with which a cli tool may be called, such as -o or --output, of which --output=json is one
    /// too; all others that begin with - are refused. Without this list, which may be empty, any is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_flags: Option<Vec<String>>,
    /// Names of variables of the agent's environment that the program of a cli tool gets. Without them it gets PATH, HOME
    /// and the like, and no credentials. Those that begin with CORAIL_, RECIF_, OTEL_ or TOOL_ are the runtime's own, and
    /// no program's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_env: Vec<String>,
    /// URL of an MCP server that has the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_endpoint: Option<String>,
    /// A tool that was discovered at a server; instead of mcpEndpoint. What is not set here (description, parameters,
    /// schemas) is as the server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_server_ref: Option<ServerRef>,
    /// The Flow that a flow tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_ref: Option<ObjectRef>,
    /// The Agent that an agent tool asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_ref: Option<ObjectRef>,
    /// What the tool takes; instead of inputSchema.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<ToolParameter>,
    /// What the tool takes, as a JSON Schema; instead of parameters, where they are not enough to say it.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// What the tool answers, as a JSON Schema.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Longest time a call may take, in seconds, at least 1. Default: 30.
    #[schemars(range(min = 1))]
    #[serde(default = "thirty")]
    pub timeout: i32,
    /// Whether agents get the tool. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How the server of a discovered tool is called. No object holds it: it is added for rendering.
    #[serde(skip)]
    pub call: ServerAccess,
}

crate::phased_object::phased_object!(reference Tool "tools");

/// How the server of a discovered tool is called.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerAccess {
    /// The server's headers, those of the Tool itself left out.
    pub headers: Vec<ServerHeader>,
    /// Whether it speaks the transport of the protocol's first revision, over a stream of events.
    pub sse: bool,
    /// How it proves who it is.
    pub tls: ServerTls,
}

impl ToolSpec {
    /// The server whose tool this is, and the name of the tool there.
    pub fn served_by(&self) -> Option<(&ServerRef, &str)> {
        let server = self.mcp_server_ref.as_ref().filter(|_| self.tool_type() == Some(ToolType::Mcp))?;
        Some((server, server.tool_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&self.name)))
    }

    /// How it is called; `None` for a type that this build does not know.
    pub fn tool_type(&self) -> Option<ToolType> {
        ToolType::ALL.iter().copied().find(|known| known.as_str() == self.type_)
    }
}

/// How a tool is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolType {
    /// An HTTP request.
    Http,
    /// A program in the agent's image.
    Cli,
    /// A tool of an MCP server.
    Mcp,
    /// Built into the runtime.
    Builtin,
    /// A Flow.
    Flow,
    /// An Agent.
    Agent,
}

impl ToolType {
    /// Every type.
    pub const ALL: &'static [Self] = &[Self::Http, Self::Cli, Self::Mcp, Self::Builtin, Self::Flow, Self::Agent];

    /// The name as written in a manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Cli => "cli",
            Self::Mcp => "mcp",
            Self::Builtin => "builtin",
            Self::Flow => "flow",
            Self::Agent => "agent",
        }
    }
}

/// Whether the runtime knows a tool of this name without a Tool object.
pub fn is_builtin(name: &str) -> bool {
    matches!(name, "datetime" | "calculator" | "web_search" | "web-search" | "fetch_url" | "fetch-url")
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::server_ref_rule)]
pub struct ServerRef {
    /// Kind of the server: RemoteMCPServer or MCPServer. Default: RemoteMCPServer.
    // Text and not an enum: a value of another build must not make the object unreadable.
    #[schemars(schema_with = "schema::server_kind")]
    #[serde(default = "remote_server")]
    pub kind: String,
    /// Namespace of the server, which must allow this one. Empty: the same.
    #[schemars(length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the server.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Name of the tool at the server. Empty: the tool's own name.
    #[schemars(length(max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
}

impl ServerRef {
    /// The kinds of servers.
    pub const KINDS: &'static [&'static str] = &["RemoteMCPServer", "MCPServer"];
}

/// A header whose value is in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderSource {
    /// Name of the header, such as Authorization.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Where its value is.
    pub secret_key_ref: SecretKey,
}

/// A key of a Secret in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// One parameter of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolParameter {
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// JSON type of its value. Default: string.
    // Text and not an enum, as the tool's own type.
    #[serde(rename = "type", default = "string")]
    #[schemars(schema_with = "schema::parameter_type")]
    pub type_: String,
    /// What the model is told about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether a call without it is refused. Default: false.
    #[serde(default)]
    pub required: bool,
    /// Value used when a call leaves it out.
    #[schemars(schema_with = "schema::any_value")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

impl ToolParameter {
    /// The default as a value of its type: what stands as text, such as `"3"` of an integer, is read. `None` without a
    /// default, and for one that is no value of its type.
    pub fn typed_default(&self) -> Option<Value> {
        let default = self.default.as_ref()?;
        let read = || default.as_str().and_then(|text| serde_json::from_str(text).ok());
        let fits = |value: &Value| match self.type_.as_str() {
            "string" => value.is_string(),
            "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            _ => false,
        };
        if fits(default) { Some(default.clone()) } else { read().filter(fits) }
    }
}

/// The types that a parameter may have, as in JSON Schema.
pub const PARAMETER_TYPES: &[&str] = &["string", "integer", "number", "boolean"];

fn string() -> String {
    "string".into()
}
fn remote_server() -> String {
    "RemoteMCPServer".into()
}
fn general() -> String {
    "general".into()
}
fn thirty() -> i32 {
    30
}
fn yes() -> bool {
    true
}
