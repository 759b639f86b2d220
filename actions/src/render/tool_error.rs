//! Validates Tools.
//!
//! The runtime validates a tool again when it reads it. Errors that are visible in the values alone are reported here, so that
//! the author of the Tool sees them in its status and not in a Pod that does not start.

use crds::{
    ToolSpec,
    forward_headers::may_forward,
    tool::{PARAMETER_TYPES, ServerRef, ToolParameter, ToolType},
};

use super::{header_variables, variables};

/// Methods of http tools.
const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE"];

/// Returns why a Tool cannot be used, with the documented message if a field is missing; `None`: it can be used.
pub fn tool_error(spec: &ToolSpec) -> Option<String> {
    if !is_tool_name(&spec.name) {
        return Some(format!("tool name {:?} must match ^[a-zA-Z0-9_-]{{1,64}}$", spec.name));
    }
    let Some(type_) = spec.tool_type() else { return Some(format!("unknown tool type: {}", spec.type_)) };
    let missing = match type_ {
        ToolType::Http => given(&spec.endpoint).is_none().then_some("HTTP tool requires an endpoint"),
        ToolType::Cli => given(&spec.binary).is_none().then_some("CLI tool requires a binary"),
        ToolType::Mcp => (given(&spec.mcp_endpoint).is_none() && spec.mcp_server_ref.is_none())
            .then_some("MCP tool requires an mcpEndpoint or an mcpServerRef"),
        ToolType::Builtin => None,
        ToolType::Flow => spec.flow_ref.is_none().then_some("flow tool requires a flowRef"),
        ToolType::Agent => (given(&spec.endpoint).is_none() && spec.agent_ref.is_none())
            .then_some("agent tool requires an agentRef or an endpoint"),
    };
    missing
        .map(str::to_owned)
        .or_else(|| match type_ {
            ToolType::Http => given(&spec.endpoint).and_then(bad_endpoint).or_else(|| bad_method(spec)),
            ToolType::Mcp => given(&spec.mcp_endpoint).and_then(|address| bad_address("mcpEndpoint", address)),
            ToolType::Agent if spec.agent_ref.is_none() => {
                given(&spec.endpoint).and_then(|address| bad_address("endpoint", address))
            }
            _ => None,
        })
        .or_else(|| bad_server(spec))
        .or_else(|| bad_header(spec))
        .or_else(|| bad_forwarded(spec, type_))
        .or_else(|| bad_variable(spec))
        .or_else(|| spec.parameters.iter().find_map(bad_parameter))
}

/// Returns the problem of the address in a field. The address may hold a credential, so it is not repeated.
fn bad_address(field: &str, address: &str) -> Option<String> {
    let problem = || format!("{field} must be a URL that begins with http:// or https:// and names a host");
    (!is_web_address(address)).then(problem)
}

/// Reports whether the text is an http or https URL, checked up to the host.
pub(crate) fn is_web_address(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")) && !authority(rest).is_empty()
}

/// Returns the authority of a URL: everything after the scheme up to the path.
fn authority(rest: &str) -> &str {
    rest.split(['/', '?', '#', '\\']).next().unwrap_or_default()
}

fn bad_endpoint(endpoint: &str) -> Option<String> {
    if let Some(problem) = bad_address("endpoint", endpoint) {
        return Some(problem);
    }
    let after_scheme = endpoint.split_once("://").map_or("", |(_, rest)| rest);
    if authority(after_scheme).contains(['{', '}']) {
        return Some("endpoint has a {parameter} in its host: only the path and the query may have one".to_owned());
    }
    let mut rest = endpoint;
    while let Some((_, after)) = rest.split_once('{') {
        let name = after.split_once('}');
        let Some((_, after)) = name.filter(|(name, _)| !name.is_empty() && !name.contains('{')) else {
            return Some("endpoint has a { that does not begin a {parameter}: close it, or write %7B".to_owned());
        };
        rest = after;
    }
    None
}

fn bad_server(spec: &ToolSpec) -> Option<String> {
    let server = spec.mcp_server_ref.as_ref()?;
    (!ServerRef::KINDS.contains(&server.kind.as_str()))
        .then(|| format!("mcpServerRef has the unknown kind: {}", server.kind))
}

fn bad_method(spec: &ToolSpec) -> Option<String> {
    let method = given(&spec.method)?;
    let known = METHODS.iter().any(|known| known.eq_ignore_ascii_case(method));
    (!known).then(|| format!("method {method:?} is none of {}", METHODS.join(", ")))
}

fn bad_header(spec: &ToolSpec) -> Option<String> {
    let mut from = spec.headers_from.iter().map(|from| &from.name);
    if let Some(odd) = spec.headers.keys().chain(from.clone()).find(|name| !is_token(name)) {
        return Some(format!("{odd:?} is not the name of a header: use letters, digits and -"));
    }
    let twice = from.find(|from| spec.headers.keys().any(|name| name.eq_ignore_ascii_case(from)));
    twice.map(|name| format!("header {name} is in headers and in headersFrom: keep one"))
}

/// Rejects headers of the caller that no call can have, and tools that call nothing over HTTP.
fn bad_forwarded(spec: &ToolSpec, type_: ToolType) -> Option<String> {
    if !spec.forward_headers.is_empty() && matches!(type_, ToolType::Cli | ToolType::Builtin) {
        return Some(format!("a tool of type {} has no headers: leave out forwardHeaders", spec.type_));
    }
    let names = || spec.forward_headers.iter();
    let odd = names().find(|name| !is_token(name)).map(|name| format!("{name:?} is not the name of a header"));
    let taken = || names().find(|name| !may_forward(name)).map(|name| format!("header {name} is not passed on"));
    odd.or_else(taken).map(|problem| format!("{problem}: leave it out of forwardHeaders"))
}

/// Rejects headers that refer to variables that the operator renders for the runtime or for other tools: a user who may write
/// only Tools must not be able to send them out. Variables of the Agent's own `env` and `envFrom`, and those of the tool's own
/// `headersFrom`, are allowed.
fn bad_variable(spec: &ToolSpec) -> Option<String> {
    let own: Vec<_> = header_variables(spec).into_iter().map(|variable| variable.name).collect();
    let is_taken = |name: &&str| {
        ["CORAIL_", "MODEL_", "RECIF_", "OTEL_", "MCP_"].iter().any(|prefix| name.starts_with(prefix))
            || name.starts_with("TOOL_") && !own.iter().any(|own| own == name)
    };
    spec.headers.iter().find_map(|(header, value)| {
        let name = variables(value).find(is_taken)?;
        Some(format!(
            "header {header} refers to ${name}, which the operator sets for others than this tool: take the value from a Secret \
             with headersFrom, or from a variable of the agent's own env"
        ))
    })
}

fn bad_parameter(parameter: &ToolParameter) -> Option<String> {
    let ToolParameter { name, type_, default, .. } = parameter;
    if !PARAMETER_TYPES.contains(&type_.as_str()) {
        return Some(format!("parameter {name} has the unknown type: {type_}"));
    }
    if default.is_some() && parameter.typed_default().is_none() {
        return Some(format!("the default of parameter {name} is not of its type {type_}"));
    }
    None
}

/// Reports whether the text is a token ([RFC 9110 section 5.6.2](https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2)), as the
/// name of a header is.
fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Returns the text of a field; an empty text means none.
fn given(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|text| !text.is_empty())
}
