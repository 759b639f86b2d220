//! Renders tool headers whose values are in Secrets: each value is a variable of the container, and the header refers to it.
//!
//! So no rendered file holds a credential: the kubelet sets the variable from the Secret. The headers of a tool's server are
//! rendered alike, and so are the CA certificates by which the server is verified. The author of a server must not refer to the
//! variables of the workloads that call it: a plain value of such a header that could be read as a reference becomes a variable
//! too.

use std::collections::BTreeMap;

use crds::{
    ToolSpec,
    tool::ServerVariables,
    tool_server::{ServerHeader, ServerTls},
};
use serde::Serialize;
use serde_json::{Value, json};

/// Part of a variable's name that stands for the CA certificates, in place of a header's name.
pub(super) const AUTHORITIES: &str = "TLS_CA";

/// Value of a header, or CA certificates of a server, as a variable of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderVariable {
    /// `TOOL_<TOOL>_<HEADER>` in upper case, every other character an underscore; for CA certificates `TOOL_<TOOL>_TLS_CA`. The
    /// tools of an entry of `toolServers` share `MCP_<SERVER>_<HEADER>`, which ends in a digest where another value has that name.
    pub name: String,
    /// Source of its value.
    pub source: HeaderFrom,
}

/// Source of a header's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderFrom {
    /// A Secret: its name, and the key in it.
    Secret(String, String),
    /// A ConfigMap: its name, and the key in it.
    ConfigMap(String, String),
    /// The value itself.
    Text(String),
}

impl HeaderVariable {
    /// Returns the variable as an entry of a container's `env`.
    pub fn env(&self) -> Value {
        let from = |kind: &str, name: &str, key: &str| json!({ "valueFrom": { kind: { "name": name, "key": key } } });
        let mut env = match &self.source {
            HeaderFrom::Secret(name, key) => from("secretKeyRef", name, key),
            HeaderFrom::ConfigMap(name, key) => from("configMapKeyRef", name, key),
            // The kubelet expands `$(NAME)` in a value, so `$` is escaped.
            HeaderFrom::Text(text) => json!({ "value": text.replace('$', "$$") }),
        };
        env["name"] = json!(self.name);
        env
    }
}

/// Verification of the TLS certificate of a server, if it differs from the system's root certificates.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallTls {
    /// True if any certificate is accepted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    insecure_skip_verify: bool,
    /// Variable with further CA certificates (PEM), as `$NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    /// Unset if the system's authorities are trusted too.
    #[serde(rename = "systemCAs", skip_serializing_if = "Option::is_none")]
    system_cas: Option<bool>,
}

impl CallTls {
    /// Renders the verification of a server, whose CA certificates are in this variable; `None`: by the system's root certificates.
    pub(super) fn new(tls: &ServerTls, variable: &str) -> Option<Self> {
        let ca = tls.ca_secret_ref.as_ref().map(|_| format!("${variable}"));
        let system_cas = (!tls.system_cas).then_some(false);
        let differs = tls.insecure_skip_verify || ca.is_some() || system_cas.is_some();
        differs.then_some(Self { insecure_skip_verify: tls.insecure_skip_verify, ca, system_cas })
    }
}

/// Returns the verification of the TLS certificate of a tool's server; `None`: by the system's root certificates.
pub fn call_tls(tool: &ToolSpec) -> Option<CallTls> {
    CallTls::new(&tool.call.tls, &variable_name(tool, AUTHORITIES))
}

/// Returns the variables of a tool, in the order of its headers.
pub fn header_variables(tool: &ToolSpec) -> Vec<HeaderVariable> {
    let own = tool.headers_from.iter().map(|source| HeaderVariable {
        name: variable_name(tool, &source.name),
        source: HeaderFrom::Secret(source.secret_key_ref.name.clone(), source.secret_key_ref.key.clone()),
    });
    let of_server = server_variables(|part| variable_name(tool, part), &tool.call.headers, Some(&tool.call.tls));
    own.chain(of_server).collect()
}

/// Returns the variables that the headers of a server and the verification of its certificate refer to; `name` names that of a
/// header, or of the certificates ([`AUTHORITIES`]).
pub(super) fn server_variables(
    name: impl Fn(&str) -> String,
    headers: &[ServerHeader],
    tls: Option<&ServerTls>,
) -> Vec<HeaderVariable> {
    let variable = |part: &str, source| HeaderVariable { name: name(part), source };
    let values = headers.iter().filter_map(|header| {
        let source = match &header.value_from {
            Some(from) if from.is_secret() => HeaderFrom::Secret(from.name.clone(), from.key.clone()),
            Some(from) => HeaderFrom::ConfigMap(from.name.clone(), from.key.clone()),
            None => HeaderFrom::Text(named(header)?.to_owned()),
        };
        Some(variable(&header.name, source))
    });
    let authorities = tls.and_then(|tls| tls.ca_secret_ref.as_ref());
    let authorities = authorities.map(|ca| variable(AUTHORITIES, HeaderFrom::Secret(ca.name.clone(), ca.key.clone())));
    values.chain(authorities).collect()
}

/// Returns the headers of a server, those that are variables as `$NAME`, with the name that `name` gives them.
pub(super) fn server_headers(
    name: impl Fn(&str) -> String,
    headers: &[ServerHeader],
) -> impl Iterator<Item = (&str, String)> {
    headers.iter().map(move |header| match (&header.value, &header.value_from, named(header)) {
        (Some(value), None, None) => (header.name.as_str(), value.clone()),
        _ => (header.name.as_str(), format!("${}", name(&header.name))),
    })
}

/// Returns all headers of a tool: those of the spec verbatim, those that are variables as `$NAME`.
pub fn headers(tool: &ToolSpec) -> BTreeMap<&str, String> {
    let name = |header: &str| variable_name(tool, header);
    let plain = tool.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let secret = tool.headers_from.iter().map(|source| (source.name.as_str(), format!("${}", name(&source.name))));
    let servers = server_headers(name, &tool.call.headers);
    plain.chain(secret).chain(servers).collect()
}

/// Returns the names of the variables to which a header's value refers, `$NAME` or `${NAME}`, as the runner reads them.
pub fn variables(value: &str) -> impl Iterator<Item = &str> {
    let after = value.split('$').skip(1);
    after.filter_map(|after| {
        let length = |text: &str| text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
        let braced = after.strip_prefix('{').and_then(|braced| braced.split_once('}')).map(|(name, _)| name);
        let name = braced.filter(|name| length(name) == name.len()).unwrap_or(&after[..length(after)]);
        (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
    })
}

/// Returns the value of a server's header if it contains a `$`, and so could be read as a reference to a variable.
fn named(header: &ServerHeader) -> Option<&str> {
    header.value.as_deref().filter(|value| value.contains('$'))
}

fn variable_name(tool: &ToolSpec, part: &str) -> String {
    match &tool.call.variables {
        None => format!("TOOL_{}_{}", upper_snake(&tool.name), upper_snake(part)),
        Some(ServerVariables { server, digest, is_unique }) => {
            let end = if *is_unique { format!("_{digest}") } else { String::new() };
            format!("MCP_{}_{}{end}", upper_snake(server), upper_snake(part))
        }
    }
}

/// Returns the text in upper case, every character but letters and digits an underscore.
pub(super) fn upper_snake(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}
