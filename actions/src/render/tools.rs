//! Renders `CORAIL_TOOLS`: the tools of an agent as its runtime reads them.

use std::collections::BTreeMap;

use crds::{
    Tool, ToolSpec,
    agent::A2A,
    tool::{ToolParameter, ToolType},
};
use serde::Serialize;
use serde_json::Value;

use super::{CallTls, call_tls, headers};

/// Resolved name of `spec.tools`.
#[derive(Debug, Clone, Copy)]
pub enum ToolSlot<'a> {
    /// A Tool; left out if it is not enabled.
    Object(&'a Tool),
    /// A Tool that calls the flow or agent at this address.
    Caller(&'a Tool, &'a str),
    /// A builtin of this name, for which there is no Tool.
    Builtin(&'a str),
}

impl<'a> ToolSlot<'a> {
    /// Returns the spec of the Tool, if it is rendered.
    pub(super) fn spec(&self) -> Option<&'a ToolSpec> {
        match *self {
            Self::Object(tool) | Self::Caller(tool, _) => tool.spec.enabled.then_some(&tool.spec),
            Self::Builtin(_) => None,
        }
    }
}

/// Rendered tools of an agent, in the order of its spec.
pub(super) struct Tools {
    /// JSON array; `None` if no tool is left.
    pub(super) json: Option<String>,
    /// True if a tool has headers, which may hold credentials.
    pub(super) has_headers: bool,
}

/// Renders the tools in the order of the spec.
pub(super) fn render(slots: &[ToolSlot<'_>]) -> Tools {
    let tools: Vec<_> = slots.iter().filter_map(rendered).collect();
    Tools {
        has_headers: tools.iter().any(|tool| !tool.headers.is_empty()),
        // Strings, numbers and JSON values under string keys: this cannot fail.
        json: if tools.is_empty() { None } else { serde_json::to_string(&tools).ok() },
    }
}

/// Element of the array, with its fields in the order of the documentation. An empty field is left out, never null.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct RenderedTool<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    type_: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    endpoint: &'a str,
    /// `a2a` if the agent at the endpoint is asked in Agent2Agent.
    #[serde(skip_serializing_if = "str::is_empty")]
    agent_protocol: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    method: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    forward_headers: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    binary: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    allowed_commands: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_flags: Option<&'a [String]>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    allowed_env: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    mcp_endpoint: &'a str,
    /// Name of the tool at its server, if it is another one.
    #[serde(skip_serializing_if = "str::is_empty")]
    mcp_tool: &'a str,
    /// `sse` if its server speaks the HTTP+SSE transport of the protocol's first revision.
    #[serde(skip_serializing_if = "str::is_empty")]
    mcp_transport: &'a str,
    /// Verification of its server's TLS certificate, if it differs from the system's root certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp_tls: Option<CallTls>,
    /// Server of an entry of `toolServers`, whose variables the headers may refer to.
    #[serde(skip_serializing_if = "str::is_empty")]
    mcp_server: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parameters: Vec<Parameter<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<i32>,
    /// Person who has to approve a call before it is made, if one has to.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<RenderedApproval<'a>>,
}

#[derive(Serialize)]
struct RenderedApproval<'a> {
    when: &'a str,
    by: &'a str,
    /// Seconds.
    timeout: u64,
}

#[derive(Serialize)]
struct Parameter<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    type_: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<&'a Value>,
}

fn rendered<'a>(slot: &ToolSlot<'a>) -> Option<RenderedTool<'a>> {
    let address = match *slot {
        ToolSlot::Builtin(name) => {
            return Some(RenderedTool { name, type_: ToolType::Builtin.as_str(), ..RenderedTool::default() });
        }
        ToolSlot::Object(_) => None,
        ToolSlot::Caller(_, address) => Some(address),
    };
    let spec = slot.spec()?;
    Some(RenderedTool {
        name: &spec.name,
        type_: &spec.type_,
        description: or_empty(&spec.description),
        endpoint: address.unwrap_or(or_empty(&spec.endpoint)),
        agent_protocol: if spec.asks_by_a2a() { A2A } else { "" },
        method: or_empty(&spec.method),
        headers: headers(spec),
        forward_headers: &spec.forward_headers,
        binary: or_empty(&spec.binary),
        allowed_commands: &spec.allowed_commands,
        allowed_flags: spec.allowed_flags.as_deref(),
        allowed_env: &spec.allowed_env,
        mcp_endpoint: or_empty(&spec.mcp_endpoint),
        mcp_tool: spec.served_by().map(|(_, name)| name).filter(|name| *name != spec.name).unwrap_or_default(),
        mcp_transport: if spec.call.sse { "sse" } else { "" },
        mcp_tls: call_tls(spec),
        mcp_server: spec.call.variables.as_ref().map_or("", |variables| variables.server.as_str()),
        parameters: spec.parameters.iter().map(parameter).collect(),
        input_schema: spec.input_schema.as_ref(),
        output_schema: spec.output_schema.as_ref(),
        timeout: Some(spec.timeout),
        approval: spec.needed_approval().map(|approval| RenderedApproval {
            when: &approval.when,
            by: &approval.by,
            timeout: approval.patience().as_secs(),
        }),
    })
}

fn parameter(parameter: &ToolParameter) -> Parameter<'_> {
    Parameter {
        name: &parameter.name,
        type_: &parameter.type_,
        description: or_empty(&parameter.description),
        required: parameter.required,
        default: parameter.default.as_ref(),
    }
}

fn or_empty(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}
