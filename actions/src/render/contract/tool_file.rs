//! Renders `tools/<name>.json`: the description of a tool for the model, and the call for the runner.

use std::collections::BTreeMap;

use crds::{
    ToolSpec,
    agent::A2A,
    tool::{ToolParameter, ToolType},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{files::pretty, parts::FlowTool};
use crate::render::{CallTls, call_tls, headers, sorted::Sorted};

/// Returns the name by which the model knows a tool.
pub(super) fn name<'a>(object: &'a str, tool: &'a FlowTool) -> &'a str {
    match tool {
        FlowTool::Object { tool, .. } => &tool.spec.name,
        FlowTool::Builtin => object,
    }
}

/// Renders the file of a tool that is called `object` in the spec.
pub(super) fn tool_file(object: &str, tool: &FlowTool) -> String {
    match tool {
        FlowTool::Builtin => pretty(&File {
            name: object,
            description: "",
            input_schema: None,
            output_schema: None,
            timeout: None,
            implementation: Implementation::Builtin(object),
        }),
        FlowTool::Object { tool, url, .. } => {
            let spec = &tool.spec;
            let declared = (!spec.parameters.is_empty()).then(|| input_schema(&spec.parameters));
            let input = spec.input_schema.as_ref().or(declared.as_ref());
            pretty(&File {
                name: &spec.name,
                description: or_empty(&spec.description),
                input_schema: input.map(Sorted),
                output_schema: spec.output_schema.as_ref().map(Sorted),
                timeout: Some(spec.timeout),
                implementation: implementation(spec, url.as_deref().unwrap_or_default()),
            })
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    name: &'a str,
    description: &'a str,
    /// Left out if the user declares no input: some types of tools have a schema of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<Sorted<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Sorted<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<i32>,
    implementation: Implementation<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Implementation<'a> {
    Http {
        url: &'a str,
        method: &'a str,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<&'a str, String>,
        #[serde(rename = "forwardHeaders", skip_serializing_if = "<[String]>::is_empty")]
        forward_headers: &'a [String],
    },
    Mcp {
        url: &'a str,
        tool: &'a str,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<&'a str, String>,
        #[serde(rename = "forwardHeaders", skip_serializing_if = "<[String]>::is_empty")]
        forward_headers: &'a [String],
        /// `sse` if its server speaks the HTTP+SSE transport of the protocol's first revision.
        #[serde(skip_serializing_if = "str::is_empty")]
        transport: &'a str,
        /// Verification of its server's TLS certificate, if it differs from the system's root certificates.
        #[serde(skip_serializing_if = "Option::is_none")]
        tls: Option<CallTls>,
        /// Server of an entry of `toolServers`, whose variables the headers may refer to.
        #[serde(skip_serializing_if = "str::is_empty")]
        server: &'a str,
    },
    Flow {
        url: &'a str,
        #[serde(rename = "forwardHeaders", skip_serializing_if = "<[String]>::is_empty")]
        forward_headers: &'a [String],
    },
    Agent {
        url: &'a str,
        /// `a2a` if the agent is asked in Agent2Agent.
        #[serde(skip_serializing_if = "str::is_empty")]
        protocol: &'a str,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<&'a str, String>,
        #[serde(rename = "forwardHeaders", skip_serializing_if = "<[String]>::is_empty")]
        forward_headers: &'a [String],
    },
    #[serde(rename_all = "camelCase")]
    Cli {
        binary: &'a str,
        allowed_commands: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        allowed_flags: Option<&'a [String]>,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        allowed_env: &'a [String],
    },
    Builtin(&'a str),
}

fn implementation<'a>(spec: &'a ToolSpec, url: &'a str) -> Implementation<'a> {
    let forward_headers = spec.forward_headers.as_slice();
    match spec.tool_type() {
        Some(ToolType::Http) => Implementation::Http {
            url: or_empty(&spec.endpoint),
            method: spec.method.as_deref().filter(|method| !method.is_empty()).unwrap_or("GET"),
            headers: headers(spec),
            forward_headers,
        },
        Some(ToolType::Mcp) => {
            let tool = spec.served_by().map_or(spec.name.as_str(), |(_, name)| name);
            let transport = if spec.call.sse { "sse" } else { "" };
            let (url, tls) = (or_empty(&spec.mcp_endpoint), call_tls(spec));
            let server = spec.call.variables.as_ref().map_or("", |variables| variables.server.as_str());
            Implementation::Mcp { url, tool, headers: headers(spec), forward_headers, transport, tls, server }
        }
        Some(ToolType::Flow) => Implementation::Flow { url, forward_headers },
        Some(ToolType::Agent) => {
            let protocol = if spec.asks_by_a2a() { A2A } else { "" };
            Implementation::Agent { url, protocol, headers: headers(spec), forward_headers }
        }
        Some(ToolType::Cli) => Implementation::Cli {
            binary: or_empty(&spec.binary),
            allowed_commands: &spec.allowed_commands,
            allowed_flags: spec.allowed_flags.as_deref(),
            allowed_env: &spec.allowed_env,
        },
        // A Tool of a type that this build does not know is never Available, and so never rendered.
        Some(ToolType::Builtin) | None => Implementation::Builtin(&spec.name),
    }
}

/// Returns parameters as a JSON Schema.
fn input_schema(parameters: &[ToolParameter]) -> Value {
    let property = |parameter: &ToolParameter| {
        let mut property = json!({ "type": parameter.type_ });
        if let Some(description) = parameter.description.as_ref().filter(|text| !text.is_empty()) {
            property["description"] = json!(description);
        }
        if let Some(default) = parameter.typed_default() {
            property["default"] = default;
        }
        (parameter.name.clone(), property)
    };
    let properties: serde_json::Map<_, _> = parameters.iter().map(property).collect();
    let required: Vec<_> = parameters.iter().filter(|one| one.required).map(|one| &one.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn or_empty(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}
