//! Tool definition in an element of `CORAIL_TOOLS`: one flat object, whose `type` selects the fields that are used.

use std::collections::BTreeMap;

use crds::digest;
use serde::Deserialize;
use serde_json::Value;

use super::{
    CallableTool,
    approval::ApprovalRule,
    definition::{ToolParts, ToolTarget, describe_error},
    parameters::Parameter,
    tls::Tls,
};

/// Element of the array, not yet validated.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Element {
    #[serde(rename = "type")]
    type_: String,
    #[serde(default)]
    description: String,
    endpoint: Option<String>,
    agent_protocol: Option<String>,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    forward_headers: Vec<String>,
    binary: Option<String>,
    #[serde(default)]
    allowed_commands: Vec<String>,
    allowed_flags: Option<Vec<String>>,
    #[serde(default)]
    allowed_env: Vec<String>,
    mcp_endpoint: Option<String>,
    mcp_tool: Option<String>,
    mcp_transport: Option<String>,
    #[serde(default)]
    mcp_tls: Tls,
    #[serde(default)]
    mcp_server: String,
    #[serde(default)]
    parameters: Vec<Parameter>,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    timeout: Option<u64>,
    approval: Option<ApprovalRule>,
}

impl CallableTool {
    /// Parses the whole array.
    ///
    /// # Errors
    /// The first invalid tool, and its problem.
    pub(crate) fn read_all(json: &str) -> Result<Vec<Self>, String> {
        let list: Vec<Value> = serde_json::from_str(json)
            .map_err(|error| format!("not a JSON array (line {}, column {})", error.line(), error.column()))?;
        let mut tools: Vec<Self> = Vec::with_capacity(list.len());
        for (index, element) in list.into_iter().enumerate() {
            let Some(name) = element.get("name").and_then(Value::as_str).filter(|name| !name.is_empty()) else {
                return Err(format!("the tool at index {index} has no name"));
            };
            let name = name.to_owned();
            if tools.iter().any(|tool| tool.name == name) {
                return Err(format!("two tools are named `{name}`"));
            }
            let digest = digest::sha256_hex(element.to_string().as_bytes());
            let tool = serde_json::from_value(element)
                .map_err(|error| describe_error(&error))
                .and_then(|element: Element| element.parts(name.clone()))
                .and_then(Self::build);
            let tool = tool.map_err(|problem| format!("tool `{name}`: {problem}"))?;
            tools.push(Self { digest, ..tool });
        }
        Ok(tools)
    }
}

impl Element {
    fn parts(self, name: String) -> Result<ToolParts, String> {
        let endpoint = self.endpoint.ok_or("it has no endpoint");
        let target = match self.type_.as_str() {
            "http" => {
                let (url, method, headers) = (endpoint?, self.method, self.headers);
                ToolTarget::Http { url, method, headers, forward_headers: self.forward_headers }
            }
            "cli" => ToolTarget::Cli {
                binary: self.binary.unwrap_or_default(),
                allowed_commands: self.allowed_commands,
                allowed_flags: self.allowed_flags,
                allowed_env: self.allowed_env,
            },
            "builtin" => ToolTarget::Builtin(name.clone()),
            "mcp" => ToolTarget::Mcp {
                url: self.mcp_endpoint.ok_or("it has no mcpEndpoint")?,
                tool: self.mcp_tool.unwrap_or_else(|| name.clone()),
                headers: self.headers,
                forward_headers: self.forward_headers,
                transport: self.mcp_transport,
                tls: self.mcp_tls,
                server: self.mcp_server,
            },
            "flow" => ToolTarget::Flow { url: endpoint?, forward_headers: self.forward_headers },
            "agent" => ToolTarget::Agent {
                url: endpoint?,
                headers: self.headers,
                forward_headers: self.forward_headers,
                protocol: self.agent_protocol,
            },
            _ => return Err("its type is none of http, cli, mcp, builtin, flow, agent".into()),
        };
        Ok(ToolParts {
            name,
            description: self.description,
            parameters: self.parameters,
            input: self.input_schema,
            output: self.output_schema,
            timeout: self.timeout,
            approval: self.approval,
            target,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::definition::ToolKind;
    use super::*;

    fn read(element: Value) -> Result<CallableTool, String> {
        CallableTool::read_all(&json!([element]).to_string()).map(|mut tools| tools.remove(0))
    }

    #[test]
    fn what_is_wrong_is_named_and_no_value_is_shown() {
        for (element, problem) in [
            (json!({"type": "http"}), "the tool at index 0 has no name"),
            (json!({"name": "t"}), "tool `t`: missing field `type`"),
            (json!({"name": "t", "type": "http"}), "tool `t`: it has no endpoint"),
            (json!({"name": "t", "type": "cli"}), "tool `t`: it has no binary"),
            (json!({"name": "t", "type": "mcp"}), "tool `t`: it has no mcpEndpoint"),
            (
                json!({"name": "t", "type": "mcp", "mcpEndpoint": "http://h", "mcpTransport": "SECRET"}),
                "tool `t`: its transport is none of sse, streamable-http",
            ),
            (
                json!({"name": "t", "type": "mcp", "mcpEndpoint": "http://h", "headers": {"a b": "SECRET"}}),
                "tool `t`: `a b` is not a header name",
            ),
            (json!({"name": "t", "type": "flow"}), "tool `t`: it has no endpoint"),
            (
                json!({"name": "t", "type": "agent", "endpoint": "SECRET"}),
                "tool `t`: its endpoint is not an http or https URL",
            ),
            (
                json!({"name": "t", "type": "agent", "endpoint": "http://h", "agentProtocol": "SECRET"}),
                "tool `t`: its protocol is none of chat, a2a",
            ),
            (
                json!({"name": "t", "type": "agent", "endpoint": "http://h", "headers": {"a b": "SECRET"}}),
                "tool `t`: `a b` is not a header name",
            ),
            (
                json!({"name": "t", "type": "soap"}),
                "tool `t`: its type is none of http, cli, mcp, builtin, flow, agent",
            ),
            (json!({"name": "t", "type": "builtin", "timeout": 0}), "tool `t`: its timeout must be at least 1 second"),
            (
                json!({"name": "t", "type": "http", "endpoint": "http://h", "method": "TRACE"}),
                "tool `t`: its method is none of GET, DELETE, POST, PUT, PATCH",
            ),
            (
                json!({"name": "t", "type": "http", "endpoint": "http://h", "headers": "SECRET"}),
                "tool `t`: a field has the wrong type; expected a map",
            ),
            (
                json!({"name": "t", "type": "http", "endpoint": "http://h", "headers": {"a b": "SECRET"}}),
                "tool `t`: `a b` is not a header name",
            ),
            (
                json!({"name": "t", "type": "agent", "endpoint": "http://h", "forwardHeaders": ["a b"]}),
                "tool `t`: `a b` is not a header name",
            ),
            (
                json!({"name": "t", "type": "cli", "binary": "b", "parameters": [{"name": "p", "type": "integer", "default": "x"}]}),
                "tool `t`: the default of `p` does not have its type",
            ),
        ] {
            assert_eq!(read(element).unwrap_err(), problem);
        }
        let twice = json!([{"name": "t", "type": "builtin"}, {"name": "t", "type": "builtin"}]).to_string();
        assert_eq!(CallableTool::read_all(&twice).unwrap_err(), "two tools are named `t`");
        assert_eq!(CallableTool::read_all("[").unwrap_err(), "not a JSON array (line 1, column 1)");
    }

    #[test]
    fn a_schema_that_is_none_takes_its_tool_away_and_not_the_agent_down() {
        for (field, schema, problem) in [
            ("inputSchema", json!([]), "its inputSchema is wrong: it must be a JSON object"),
            (
                "outputSchema",
                json!({"type": 1}),
                "its outputSchema is wrong: /type: 1 is not valid under any of the schemas listed in the 'anyOf' keyword",
            ),
            (
                "inputSchema",
                json!({"properties": {"a": {"$ref": "https://x/s.json"}}}),
                "its inputSchema is wrong: it refers to another document by `$ref`: nothing is fetched, put it below `$defs`",
            ),
        ] {
            let tool = read(json!({"name": "t", "type": "flow", "endpoint": "http://h", field: schema})).unwrap();
            assert_eq!(tool.kind, ToolKind::Unsupported(format!("this tool cannot be called: {problem}")));
        }
    }

    #[test]
    fn parameters_that_follow_from_the_tool_are_implied() {
        let required = |element| read(element).unwrap().input_schema["required"].clone();
        let schema = json!({"properties": {"n": {"type": "integer"}}});
        for (element, names) in [
            (json!({"name": "t", "type": "http", "endpoint": "http://h/{id}"}), json!(["id"])),
            (json!({"name": "t", "type": "http", "endpoint": "http://h/{n}", "inputSchema": schema}), json!(["n"])),
            (json!({"name": "t", "type": "cli", "binary": "ls"}), json!(["args"])),
            (json!({"name": "fetch-url", "type": "builtin"}), json!(["url"])),
            (json!({"name": "t", "type": "agent", "endpoint": "http://h"}), json!(["message"])),
            (json!({"name": "t", "type": "flow", "endpoint": "http://h"}), json!(null)),
        ] {
            assert_eq!(required(element.clone()), names, "{element}");
        }
        assert_eq!(read(json!({"name": "t", "type": "builtin"})).unwrap().timeout, Duration::from_secs(30));
    }

    #[test]
    fn every_schema_for_a_model_is_one_of_an_object() {
        for element in [
            json!({"name": "t", "type": "flow", "endpoint": "http://h"}),
            json!({"name": "t", "type": "flow", "endpoint": "http://h", "inputSchema": {"properties": {}}}),
            json!({"name": "datetime", "type": "builtin"}),
        ] {
            assert_eq!(read(element.clone()).unwrap().input_schema["type"], "object", "{element}");
        }
    }
}
