//! Tool definition in a file of a flow: the declaration for the model, and `implementation`, which selects how it is
//! called.
//!
//! ```json
//! {
//!   "name": "shop", "description": "Looks up an article.",
//!   "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
//!   "implementation": {"http": {"url": "http://shop/articles/{id}", "method": "GET"}}
//! }
//! ```
//!
//! The other implementations are `{"mcp": {"url", "tool", "headers", "transport", "tls", "server"}}`,
//! `{"flow": {"url"}}`, `{"agent": {"url", "protocol", "headers"}}`, `{"cli": {"binary", "allowedCommands", "allowedEnv"}}`
//! and `{"builtin": "calculator"}`.
//! `http`, `mcp`, `flow` and `agent` may have `forwardHeaders`, names of headers of the caller.

use serde::Deserialize;
use serde_json::Value;

use super::{
    CallableTool,
    approval::ApprovalRule,
    definition::{ToolParts, ToolTarget, describe_error},
    parameters::Parameter,
};

/// Content of the file, not yet validated.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(expecting = "struct Contract")]
struct ToolFile {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Vec<Parameter>,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    timeout: Option<u64>,
    approval: Option<ApprovalRule>,
    implementation: ToolTarget,
}

impl CallableTool {
    /// Parses a file.
    ///
    /// # Errors
    /// The problem, without quoting a value; the caller adds the file's name.
    pub(crate) fn read_contract(json: &str) -> Result<Self, String> {
        let contract: ToolFile = serde_json::from_str(json).map_err(|error| {
            if error.is_data() {
                describe_error(&error)
            } else {
                format!("it is not JSON (line {}, column {})", error.line(), error.column())
            }
        })?;
        if contract.name.is_empty() {
            return Err("it has no name".into());
        }
        Self::build(ToolParts {
            name: contract.name,
            description: contract.description,
            parameters: contract.parameters,
            input: contract.input_schema,
            output: contract.output_schema,
            timeout: contract.timeout,
            approval: contract.approval,
            target: contract.implementation,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(implementation: Value) -> Result<CallableTool, String> {
        let schema = json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
        CallableTool::read_contract(
            &json!({"name": "t", "description": "d", "inputSchema": schema, "timeout": 3, "implementation": implementation})
                .to_string(),
        )
    }

    #[test]
    fn every_implementation_is_read() {
        for (implementation, label) in [
            (json!({"http": {"url": "http://h/{id}", "method": "POST", "headers": {"a": "$B"}}}), "http"),
            (json!({"mcp": {"url": "http://h/mcp", "tool": "x"}}), "mcp"),
            (json!({"mcp": {"url": "http://h/sse", "tool": "x", "headers": {"a": "$B"}, "transport": "sse"}}), "mcp"),
            (json!({"mcp": {"url": "https://h/mcp", "tool": "x", "tls": {"ca": "$CA"}}}), "mcp"),
            (json!({"flow": {"url": "http://h/f", "forwardHeaders": ["X-Tenant"]}}), "flow"),
            (json!({"agent": {"url": "http://h"}}), "agent"),
            (json!({"agent": {"url": "http://h", "protocol": "a2a", "headers": {"a": "$B"}}}), "agent"),
            (json!({"cli": {"binary": "ls", "allowedCommands": ["-l"], "allowedEnv": ["LS_COLORS"]}}), "cli"),
            (json!({"builtin": "calculator"}), "builtin"),
        ] {
            let tool = read(implementation.clone()).unwrap();
            assert_eq!((tool.name.as_str(), tool.description.as_str(), tool.timeout.as_secs()), ("t", "d", 3));
            assert_eq!(tool.kind.label(), label, "{implementation}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_no_value_is_shown() {
        for (json, problem) in [
            ("{", "it is not JSON (line 1, column 1)"),
            ("{}", "missing field `name` at line 1 column 2"),
            (r#"{"name": "", "implementation": {"builtin": "x"}}"#, "it has no name"),
            (r#"{"name": "t"}"#, "missing field `implementation` at line 1 column 13"),
            (
                r#"{"name": "t", "implementation": {"http": {"url": "SECRET"}}}"#,
                "its endpoint is not an http or https URL",
            ),
        ] {
            assert_eq!(CallableTool::read_contract(json).unwrap_err(), problem, "{json}");
        }
        let error = read(json!({"soap": {"url": "SECRET"}})).unwrap_err();
        assert!(!error.contains("SECRET"), "{error}");
        let error = read(json!({"http": {"url": "http://h", "headers": ["SECRET"]}})).unwrap_err();
        assert!(error.starts_with("a field has the wrong type"), "{error}");
    }
}
