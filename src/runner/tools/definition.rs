//! A tool as `CORAIL_TOOLS` describes it.
//!
//! The operator has judged the tool already; here it becomes a type that cannot be wrong, before the process serves
//! anything. Errors name the tool and the field but never quote a value: headers hold credentials.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::builtin::Builtin;
use super::cli::CliTool;
use super::http::HttpTool;
use super::parameters::{Parameter, ParameterType};
use super::template::Template;

/// A tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Definition {
    /// The name the model calls it by.
    pub(crate) name: String,
    /// What the model is told about it.
    pub(crate) description: String,
    /// What it takes.
    pub(super) parameters: Vec<Parameter>,
    /// Longest time a call may take.
    pub(super) timeout: Duration,
    /// How it is called.
    pub(super) kind: Kind,
}

/// How a tool is called.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// An HTTP request.
    Http(HttpTool),
    /// A program.
    Cli(CliTool),
    /// A function of this runtime.
    Builtin(Builtin),
    /// Something this runtime cannot call yet, in the plural: `mcp tools`.
    Unsupported(String),
}

impl Kind {
    /// The value of the metrics' label `type`.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Cli(_) => "cli",
            Self::Builtin(_) => "builtin",
            Self::Unsupported(_) => "unsupported",
        }
    }
}

/// An element of the array, before it is judged.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Element {
    #[serde(rename = "type")]
    type_: String,
    #[serde(default)]
    description: String,
    endpoint: Option<String>,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    binary: Option<String>,
    #[serde(default)]
    allowed_commands: Vec<String>,
    #[serde(default)]
    parameters: Vec<Parameter>,
    timeout: Option<u64>,
}

impl Definition {
    /// Reads the whole array.
    ///
    /// # Errors
    /// What is wrong with which tool.
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
            let element =
                serde_json::from_value(element).map_err(|error| format!("tool `{name}`: {}", shape(&error)))?;
            tools.push(Self::read(name.clone(), element).map_err(|problem| format!("tool `{name}`: {problem}"))?);
        }
        Ok(tools)
    }

    fn read(name: String, element: Element) -> Result<Self, String> {
        let mut parameters = Vec::with_capacity(element.parameters.len());
        for parameter in element.parameters {
            let name = parameter.name.clone();
            let typed = parameter.with_typed_default();
            parameters.push(typed.ok_or_else(|| format!("the default of `{name}` does not have its type"))?);
        }
        let kind = match element.type_.as_str() {
            "http" => {
                let template = Template::parse(element.endpoint.as_deref().ok_or("it has no endpoint")?)?;
                for name in template.names() {
                    if !parameters.iter().any(|parameter| parameter.name == name) {
                        parameters.push(Parameter::required(name, ParameterType::String));
                    }
                }
                Kind::Http(HttpTool::new(template, element.method.as_deref(), &element.headers)?)
            }
            "cli" => {
                if parameters.is_empty() {
                    parameters.push(Parameter::required("args", ParameterType::Words));
                }
                for list in parameters.iter_mut().filter(|one| matches!(one.name.as_str(), "args" | "command")) {
                    list.type_ = ParameterType::Words;
                }
                Kind::Cli(CliTool {
                    binary: element.binary.filter(|binary| !binary.is_empty()).ok_or("it has no binary")?,
                    allowed_commands: element.allowed_commands,
                })
            }
            "builtin" => match Builtin::named(&name) {
                Some(builtin) => {
                    parameters = builtin.parameters();
                    Kind::Builtin(builtin)
                }
                None => Kind::Unsupported(format!("builtin tools named `{name}`")),
            },
            type_ @ ("mcp" | "flow" | "agent") => Kind::Unsupported(format!("{type_} tools")),
            _ => return Err("its type is none of http, cli, mcp, builtin, flow, agent".into()),
        };
        let seconds = element.timeout.unwrap_or(30);
        if seconds == 0 {
            return Err("its timeout must be at least 1 second".into());
        }
        Ok(Self { name, description: element.description, parameters, timeout: Duration::from_secs(seconds), kind })
    }
}

/// What serde says without the value it quotes: `missing field …`, or what it expected.
fn shape(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("a field has the wrong type; expected {expected}"),
        None if text.starts_with("missing field") => text,
        None => "it does not have the documented shape".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(element: Value) -> Result<Definition, String> {
        Definition::read_all(&json!([element]).to_string()).map(|mut tools| tools.remove(0))
    }

    #[test]
    fn what_is_wrong_is_named_and_no_value_is_shown() {
        for (element, problem) in [
            (json!({"type": "http"}), "the tool at index 0 has no name"),
            (json!({"name": "t"}), "tool `t`: missing field `type`"),
            (json!({"name": "t", "type": "http"}), "tool `t`: it has no endpoint"),
            (json!({"name": "t", "type": "cli"}), "tool `t`: it has no binary"),
            (
                json!({"name": "t", "type": "soap"}),
                "tool `t`: its type is none of http, cli, mcp, builtin, flow, agent",
            ),
            (json!({"name": "t", "type": "mcp", "timeout": 0}), "tool `t`: its timeout must be at least 1 second"),
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
                json!({"name": "t", "type": "cli", "binary": "b", "parameters": [{"name": "p", "type": "integer", "default": "x"}]}),
                "tool `t`: the default of `p` does not have its type",
            ),
        ] {
            assert_eq!(read(element).unwrap_err(), problem);
        }
        let twice = json!([{"name": "t", "type": "mcp"}, {"name": "t", "type": "mcp"}]).to_string();
        assert_eq!(Definition::read_all(&twice).unwrap_err(), "two tools are named `t`");
        assert_eq!(Definition::read_all("[").unwrap_err(), "not a JSON array (line 1, column 1)");
    }

    #[test]
    fn parameters_that_follow_from_the_tool_are_implied() {
        let names = |element| read(element).unwrap().parameters.into_iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(names(json!({"name": "t", "type": "http", "endpoint": "http://h/{id}"})), ["id"]);
        assert_eq!(names(json!({"name": "t", "type": "cli", "binary": "ls"})), ["args"]);
        assert_eq!(names(json!({"name": "fetch-url", "type": "builtin"})), ["url"]);
        assert_eq!(read(json!({"name": "t", "type": "mcp"})).unwrap().timeout, Duration::from_secs(30));
    }
}
