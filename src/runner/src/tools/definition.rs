//! Validated tool, ready to be called.
//!
//! The operator has validated the tool already; here it is parsed into types that cannot be invalid, before the process
//! serves any request. It comes in two forms, an element of `CORAIL_TOOLS` ([`super::element`]) and a file of a flow
//! ([`super::contract`]); both end in [`CallableTool::build`]. Errors name the tool and the field but never quote a
//! value: headers hold credentials.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{
    approval::ApprovalRule,
    builtin::Builtin,
    cli::{CliTool, holds_words},
    headers::{ToolHeaders, server_prefix, tool_prefix},
    http::HttpTool,
    input::Input,
    mcp::McpTool,
    parameters::{Parameter, ParameterType},
    remote_agent::{AgentProtocol, AgentTool, FlowTool},
    schema::Schema,
    template::UrlTemplate,
    tls::Tls,
};
use crate::{Lookup, knowledge::KnowledgeBase, models::ToolSpec};

/// Default timeout of a call, in seconds.
const TIMEOUT: u64 = 30;

/// Tool of an agent or a flow.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallableTool {
    /// Name by which the model calls it.
    pub(crate) name: String,
    /// Description for the model.
    pub(crate) description: String,
    /// JSON Schema of the arguments, for models: always that of an object.
    pub(crate) input_schema: Value,
    /// Declaration of the arguments.
    pub(super) input: Input,
    /// Schema of the result, if it is JSON.
    pub(super) output: Option<Schema>,
    /// Timeout of a call.
    pub(super) timeout: Duration,
    /// Person who has to approve each call before it is made, if one has to.
    pub(super) approval: Option<ApprovalRule>,
    /// Names of headers of the request that began the turn which calls have.
    pub(super) forwarded: Vec<String>,
    /// Digest of the definition in `CORAIL_TOOLS`; empty for a tool of another form, whose calls wait for no approval.
    pub(super) digest: String,
    /// Implementation.
    pub(super) kind: ToolKind,
}

/// Implementation of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ToolKind {
    /// HTTP request.
    Http(HttpTool),
    /// Program, and the order of its arguments.
    Cli(CliTool, Vec<String>),
    /// Function of this runtime.
    Builtin(Builtin),
    /// Tool of an MCP server.
    Mcp(McpTool),
    /// Flow.
    Flow(FlowTool),
    /// Another agent.
    Agent(AgentTool),
    /// Search of a knowledge base.
    Knowledge(KnowledgeBase),
    /// Tool that this runtime cannot call, with the reason for the model.
    Unsupported(String),
}

impl ToolKind {
    /// Returns the value of the metric label `type`.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Cli(..) => "cli",
            Self::Builtin(_) => "builtin",
            Self::Mcp(_) => "mcp",
            Self::Flow(_) => "flow",
            Self::Agent(_) => "agent",
            Self::Knowledge(_) => "knowledge",
            Self::Unsupported(_) => "unsupported",
        }
    }

    /// Returns the values of the headers of its requests, with the variables of this environment.
    pub(super) fn header_values(&self, environment: &Lookup) -> Vec<String> {
        match self {
            Self::Http(http) => http.headers.values(environment),
            Self::Mcp(mcp) => mcp.headers.values(environment),
            Self::Flow(flow) => flow.headers.values(environment),
            Self::Agent(agent) => agent.headers.values(environment),
            Self::Cli(..) | Self::Builtin(_) | Self::Knowledge(_) | Self::Unsupported(_) => Vec::new(),
        }
    }

    /// Returns the standard's type of tool: called by this process elsewhere, run here, or searched.
    pub(super) fn standard_type(&self) -> &'static str {
        match self {
            Self::Http(_) | Self::Mcp(_) | Self::Flow(_) | Self::Agent(_) => "extension",
            Self::Cli(..) | Self::Builtin(_) | Self::Unsupported(_) => "function",
            Self::Knowledge(_) => "datastore",
        }
    }
}

/// Fields of a tool before validation, independent of the form that it came in.
pub(super) struct ToolParts {
    pub(super) name: String,
    pub(super) description: String,
    /// Parameters; ignored when there is a schema.
    pub(super) parameters: Vec<Parameter>,
    /// JSON Schema of the arguments.
    pub(super) input: Option<Value>,
    /// JSON Schema of the result.
    pub(super) output: Option<Value>,
    /// Timeout in seconds.
    pub(super) timeout: Option<u64>,
    pub(super) approval: Option<ApprovalRule>,
    pub(super) target: ToolTarget,
}

/// Implementation of a tool before validation, in the form of the flows' files.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ToolTarget {
    Http {
        url: String,
        method: Option<String>,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default, rename = "forwardHeaders")]
        forward_headers: Vec<String>,
    },
    Cli {
        binary: String,
        #[serde(default, rename = "allowedCommands")]
        allowed_commands: Vec<String>,
        #[serde(rename = "allowedFlags")]
        allowed_flags: Option<Vec<String>>,
        #[serde(default, rename = "allowedEnv")]
        allowed_env: Vec<String>,
    },
    /// Built-in function by its name.
    Builtin(String),
    Mcp {
        url: String,
        tool: String,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default, rename = "forwardHeaders")]
        forward_headers: Vec<String>,
        /// `streamable-http`, the default, or `sse`.
        transport: Option<String>,
        #[serde(default)]
        tls: Tls,
        /// Server in `toolServers` whose variables the headers may refer to; empty for the tool's own.
        #[serde(default)]
        server: String,
    },
    Flow {
        url: String,
        #[serde(default, rename = "forwardHeaders")]
        forward_headers: Vec<String>,
    },
    Agent {
        url: String,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default, rename = "forwardHeaders")]
        forward_headers: Vec<String>,
        /// `chat`, the default, or `a2a`.
        protocol: Option<String>,
    },
}

impl ToolTarget {
    /// Returns the names of headers of the request that began the turn which calls have. The tool's own of the same name go first.
    fn forwarded(&self) -> Vec<String> {
        let (own, names) = match self {
            Self::Http { headers, forward_headers, .. }
            | Self::Mcp { headers, forward_headers, .. }
            | Self::Agent { headers, forward_headers, .. } => (Some(headers), forward_headers),
            Self::Flow { forward_headers, .. } => (None, forward_headers),
            Self::Cli { .. } | Self::Builtin(_) => return Vec::new(),
        };
        let is_own = |name: &str| own.is_some_and(|own| own.keys().any(|known| known.eq_ignore_ascii_case(name)));
        names.iter().filter(|name| !is_own(name.as_str())).cloned().collect()
    }
}

impl CallableTool {
    /// Returns its declaration for a model.
    pub(super) fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.clone(), description: self.description.clone(), input_schema: self.input.schema() }
    }

    /// Returns the prefix of the variables that are for its headers alone.
    pub(super) fn variable_prefix(&self) -> String {
        match &self.kind {
            ToolKind::Mcp(mcp) if !mcp.server.is_empty() => server_prefix(&mcp.server),
            _ => tool_prefix(&self.name),
        }
    }

    /// Validates the fields and builds the tool.
    ///
    /// # Errors
    /// The problem, without quoting a value.
    pub(super) fn build(mut parts: ToolParts) -> Result<Self, String> {
        let seconds = parts.timeout.unwrap_or(TIMEOUT);
        if seconds == 0 {
            return Err("its timeout must be at least 1 second".into());
        }
        // A schema often comes from an MCP server and not from the user: an invalid one disables its tool, not the
        // whole agent.
        let mut unfit = None;
        let mut compile = |what: &str, json| match Schema::new(json) {
            Ok(schema) => Some(schema),
            Err(problem) => {
                unfit = Some(format!("this tool cannot be called: its {what} is wrong: {problem}"));
                None
            }
        };
        let output = parts.output.and_then(|json| compile("outputSchema", json));
        let declared = !parts.parameters.is_empty() || parts.input.is_some();
        let mut input = match parts.input {
            Some(json) => match compile("inputSchema", object(json)) {
                Some(schema) => Input::Schema(schema),
                None => Input::anything()?,
            },
            None => Input::Parameters(typed(parts.parameters)?),
        };
        let forwarded = parts.target.forwarded();
        let kind = match parts.target {
            ToolTarget::Http { url, method, headers, forward_headers } => {
                let template = UrlTemplate::parse(&url)?;
                for name in template.names() {
                    input.require(name)?;
                }
                let headers = ToolHeaders::read(&headers)?.forwarding(&forward_headers)?;
                ToolKind::Http(HttpTool::new(template, method.as_deref(), headers)?)
            }
            ToolTarget::Cli { binary, allowed_commands, allowed_flags, allowed_env } => {
                if binary.is_empty() {
                    return Err("it has no binary".into());
                }
                if let Input::Parameters(parameters) = &mut input {
                    if parameters.is_empty() {
                        parameters.push(Parameter::required("args", ParameterType::Words));
                    }
                    for list in parameters.iter_mut().filter(|one| holds_words(&one.name)) {
                        list.type_ = ParameterType::Words;
                    }
                }
                ToolKind::Cli(CliTool { binary, allowed_commands, allowed_flags, allowed_env }, input.names())
            }
            ToolTarget::Builtin(name) => match Builtin::named(&name) {
                Some(builtin) => {
                    if parts.description.is_empty() {
                        parts.description = builtin.description().into();
                    }
                    input = Input::Parameters(builtin.parameters());
                    ToolKind::Builtin(builtin)
                }
                None => {
                    ToolKind::Unsupported(format!("builtin tools named `{name}` are not supported by this runtime yet"))
                }
            },
            ToolTarget::Flow { url, forward_headers } => {
                if !declared {
                    input = Input::anything()?;
                }
                let headers = ToolHeaders::default().forwarding(&forward_headers)?;
                ToolKind::Flow(FlowTool { url: absolute(&url)?, headers })
            }
            ToolTarget::Agent { url, headers, forward_headers, protocol } => {
                input = Input::Parameters(AgentTool::parameters());
                let protocol = AgentProtocol::parse(protocol.as_deref());
                let protocol = protocol.ok_or("its protocol is none of chat, a2a")?;
                let headers = ToolHeaders::read(&headers)?.forwarding(&forward_headers)?;
                ToolKind::Agent(AgentTool { url: absolute(&url)?, headers, protocol })
            }
            ToolTarget::Mcp { url, tool, headers, forward_headers, transport, tls, server } => {
                if !declared {
                    input = Input::anything()?;
                }
                let sse = match transport.as_deref() {
                    None | Some("streamable-http") => false,
                    Some("sse") => true,
                    Some(_) => return Err("its transport is none of sse, streamable-http".into()),
                };
                let (url, headers) = (absolute(&url)?, ToolHeaders::read(&headers)?.forwarding(&forward_headers)?);
                ToolKind::Mcp(McpTool { url, tool, headers, sse, tls, server })
            }
        };
        let kind = match unfit {
            Some(why) => {
                tracing::warn!(tool = parts.name, "{why}");
                ToolKind::Unsupported(why)
            }
            None => kind,
        };
        Ok(Self {
            output,
            timeout: Duration::from_secs(seconds),
            approval: parts.approval,
            forwarded,
            ..Self::of_kind(parts.name, parts.description, input, kind)
        })
    }

    /// Creates a tool without an output schema, with the default timeout, whose calls wait for no approval.
    pub(super) fn of_kind(name: String, description: String, input: Input, kind: ToolKind) -> Self {
        let (input_schema, timeout) = (input.schema(), Duration::from_secs(TIMEOUT));
        let (output, approval, forwarded, digest) = (None, None, Vec::new(), String::new());
        Self { name, description, input_schema, input, output, timeout, approval, forwarded, digest, kind }
    }
}

/// Adds `"type": "object"` to a schema without a type, because every provider requires it.
fn object(mut schema: Value) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.entry("type").or_insert_with(|| "object".into());
    }
    schema
}

fn typed(list: Vec<Parameter>) -> Result<Vec<Parameter>, String> {
    let one = |parameter: Parameter| {
        let name = parameter.name.clone();
        parameter.with_typed_default().ok_or_else(|| format!("the default of `{name}` does not have its type"))
    };
    list.into_iter().map(one).collect()
}

fn absolute(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| "its endpoint is not an http or https URL".into())
}

/// Describes an error of serde without the value that it quotes: `missing field …`, or the expected type.
pub(super) fn describe_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("a field has the wrong type; expected {expected}"),
        None if text.starts_with("missing field") => text,
        None => "it does not have the documented shape".into(),
    }
}
