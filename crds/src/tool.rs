//! `Tool`: a tool that an agent or flow may call.
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
    ObjectRef,
    approval::Approval,
    forward_headers,
    references::{HasReferences, RefKind, ReferenceSet},
    schema,
    status::ReferenceStatus,
    tool_server::{ServerHeader, ServerTls},
};

pub use crate::tool_server_ref::ServerRef;

/// Desired state of a Tool: its type, its target and its parameters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
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
#[schemars(
    // A Tool that was stored with both before the rule existed stays valid: its schema takes precedence.
    transform = schema::transition_rule(
        "!(has(self.inputSchema) && has(self.parameters) && size(self.parameters) > 0) || (oldSelf.hasValue() \
         && has(oldSelf.value().inputSchema) && has(oldSelf.value().parameters) && size(oldSelf.value().parameters) > 0)",
        "parameters and inputSchema both say what the tool takes: set only one of them",
    ),
    transform = schema::rule(
        "!has(self.mcpServerRef) || !has(self.mcpEndpoint) || self.mcpEndpoint == ''",
        "mcpEndpoint and mcpServerRef both say where the tool is: set only one of them",
    ),
    // The endpoint of a Tool that was stored with both before the rule existed is ignored, as it was then.
    transform = schema::transition_rule(
        "!(self.type == 'agent' && has(self.agentRef) && has(self.endpoint) && self.endpoint != '') || \
         (oldSelf.hasValue() && oldSelf.value().type == 'agent' && has(oldSelf.value().agentRef) \
         && has(oldSelf.value().endpoint) && oldSelf.value().endpoint != '')",
        "agentRef and endpoint both say which agent is asked: set only one of them",
    )
)]
pub struct ToolSpec {
    /// Name that the model sees: 1 to 64 letters, digits, '_' and '-'.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Type of the tool: http (needs endpoint), cli (needs binary), mcp (needs mcpEndpoint or mcpServerRef), builtin,
    /// flow (needs flowRef) or agent (needs agentRef or endpoint).
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ToolType::ALL))]
    pub type_: String,
    /// Free category of the tool, for people. Default: general.
    #[serde(default = "general")]
    pub category: String,
    /// Description of the tool for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// URL of an http tool, in which {name} is replaced by the parameter of that name; or of an agent that speaks
    /// Agent2Agent, anywhere, instead of agentRef: its card is at /.well-known/agent-card.json below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// HTTP method of an http tool. Empty: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Headers of an http, mcp or agent tool. $NAME in a value is replaced by that variable of the agent's own env or envFrom,
    /// or by one of this tool's headersFrom. Variables that begin with CORAIL_, MODEL_, RECIF_, OTEL_ or MCP_, and those
    /// of other tools, are not replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers of an http, mcp or agent tool whose values are in Secrets of the same namespace.
    #[schemars(schema_with = "schema::by_name::<HeaderSource>")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers_from: Vec<HeaderSource>,
    /// Names of headers of the request that began a turn, which calls of an http, mcp, flow or agent tool have too, at
    /// most 16, such as X-Tenant. Other headers of the same name go first. Authorization comes through the gateway only
    /// if callers sign in by X-Recif-Authorization.
    #[schemars(schema_with = "forward_headers::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward_headers: Vec<String>,
    /// Program of a cli tool. It must be in the agent's image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<String>,
    /// First arguments with which a cli tool may be called. Empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_commands: Vec<String>,
    /// Words beginning with - with which a cli tool may be called, such as -o or --output, which also admits
    /// --output=json; any other is refused. Empty list: all are refused. No list: all are admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_flags: Option<Vec<String>>,
    /// Names of variables of the agent's environment that the program of a cli tool gets. Without them it gets PATH,
    /// HOME and the like, and no credentials. Variables that begin with CORAIL_, MODEL_, RECIF_, OTEL_, TOOL_ or MCP_
    /// belong to the runtime and are never passed on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_env: Vec<String>,
    /// URL of the MCP server that has the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_endpoint: Option<String>,
    /// Tool that was discovered at a server; instead of mcpEndpoint. Fields that are not set here (description,
    /// parameters, schemas) come from the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_server_ref: Option<ServerRef>,
    /// Flow in the same namespace that a flow tool calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_ref: Option<ObjectRef>,
    /// Agent that an agent tool asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_ref: Option<AgentRef>,
    /// Parameters of the tool; instead of inputSchema.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<ToolParameter>,
    /// JSON Schema of the tool's input; instead of parameters, where they cannot express it.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// JSON Schema of the tool's output.
    #[schemars(schema_with = "schema::opaque_object")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Longest time for one call, in seconds, at least 1. Default: 30.
    #[schemars(range(min = 1))]
    #[serde(default = "thirty")]
    pub timeout: i32,
    /// Lets calls wait until a person approves them. Only an Agent can ask one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Offers the tool to agents. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Access to the server of a discovered tool, or to an Agent. No object holds it: it is added for rendering.
    #[serde(skip)]
    pub call: ServerAccess,
}

crate::phased_object::phased_object!(reference Tool "tools");

impl HasReferences for Tool {
    const IS_TRANSITIVE: bool = true;

    fn collect(&self, mentions: &mut ReferenceSet) {
        let spec = &self.spec;
        match spec.tool_type() {
            Some(ToolType::Flow) => spec.flow_ref.iter().for_each(|flow| mentions.add(RefKind::Flow, &flow.name)),
            Some(ToolType::Agent) => {
                spec.agent_ref.iter().for_each(|agent| mentions.add_agent(agent.namespace(), &agent.name));
            }
            _ => {}
        }
        if let Some((server, tool)) = spec.served_by()
            && let Some(kind) = RefKind::parse(&server.kind)
        {
            mentions.add_tool(kind, (server.namespace.as_deref(), &server.name), tool);
        }
        for header in &spec.headers_from {
            mentions.add_key(RefKind::Secret, &header.secret_key_ref.name, &header.secret_key_ref.key);
        }
    }
}

/// Access to the server of a discovered tool, or to the Agent that a tool asks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerAccess {
    /// Headers of the server, without those that the Tool itself sets.
    pub headers: Vec<ServerHeader>,
    /// Set if the server speaks the transport of the protocol's first revision, HTTP with SSE.
    pub sse: bool,
    /// Verification of the server's certificate.
    pub tls: ServerTls,
    /// Set if the Agent that the tool asks speaks Agent2Agent.
    pub a2a: bool,
    /// Names of the variables with its header values, if all tools of the server share them, as those of `toolServers` do.
    pub variables: Option<ServerVariables>,
}

/// Names of the variables that the tools of one entry of `toolServers` share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerVariables {
    /// Name of the server.
    pub server: String,
    /// Digest of the entry, 8 hexadecimal digits.
    pub digest: String,
    /// True if the names end in the digest, because those without it are taken.
    pub is_unique: bool,
}

impl ToolSpec {
    /// Returns the spec of a tool of an MCP server, which the model knows by `name`. All else has its default.
    pub fn of_server(name: String, server: ServerRef) -> Self {
        Self {
            name,
            type_: ToolType::Mcp.as_str().to_owned(),
            category: general(),
            mcp_server_ref: Some(server),
            timeout: thirty(),
            enabled: yes(),
            ..Self::default()
        }
    }

    /// Returns the server that has this tool, and the name of the tool there.
    pub fn served_by(&self) -> Option<(&ServerRef, &str)> {
        let server = self.mcp_server_ref.as_ref().filter(|_| self.tool_type() == Some(ToolType::Mcp))?;
        Some((server, server.tool_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&self.name)))
    }

    /// Reports whether the tool asks an agent in Agent2Agent: one of that protocol, or any agent by its URL.
    pub fn asks_by_a2a(&self) -> bool {
        self.tool_type() == Some(ToolType::Agent) && (self.call.a2a || self.agent_ref.is_none())
    }

    /// Returns the type of the tool; `None` for a type that this version does not know.
    pub fn tool_type(&self) -> Option<ToolType> {
        ToolType::ALL.iter().copied().find(|known| known.as_str() == self.type_)
    }
}

/// Type of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
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
    /// All types.
    pub const ALL: &'static [Self] = &[Self::Http, Self::Cli, Self::Mcp, Self::Builtin, Self::Flow, Self::Agent];

    /// Returns the name as written in a manifest.
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

/// Reports whether the runtime has a tool of this name without a Tool object.
pub fn is_builtin(name: &str) -> bool {
    matches!(name, "datetime" | "calculator" | "web_search" | "web-search" | "fetch_url" | "fetch-url")
}

/// Reference to an Agent that a tool asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRef {
    /// Namespace of the Agent, whose allowedNamespaces must admit the Tool's namespace. Empty: the same namespace.
    #[schemars(length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the Agent.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl AgentRef {
    /// Returns the namespace of the Agent, if the reference names one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }
}

/// Header of a tool whose value is in a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderSource {
    /// Name of the header, such as Authorization.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key of a Secret that holds the value.
    pub secret_key_ref: SecretKey,
}

/// A key of a Secret in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKey {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// One parameter of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolParameter {
    /// Name of the parameter.
    #[schemars(length(min = 1))]
    pub name: String,
    /// JSON type of the value: string, integer, number or boolean. Default: string.
    // A string and not an enum, as the type of the tool.
    #[serde(rename = "type", default = "string")]
    #[schemars(extend("enum" = PARAMETER_TYPES))]
    pub type_: String,
    /// Description of the parameter for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Refuses calls without this parameter. Default: false.
    #[serde(default)]
    pub required: bool,
    /// Value for calls that leave the parameter out.
    #[schemars(schema_with = "schema::any_value")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
}

impl ToolParameter {
    /// Returns the default as a value of the parameter's type: a text such as `"3"` for an integer is parsed. `None`
    /// without a default, and for one that is not a value of the type.
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

/// Types that a parameter may have, as in JSON Schema.
pub const PARAMETER_TYPES: &[&str] = &["string", "integer", "number", "boolean"];

fn string() -> String {
    "string".into()
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
