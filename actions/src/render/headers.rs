//! Renders tool headers whose values are in Secrets: each value is a variable of the container, and the header refers to it.
//!
//! So no rendered file holds a credential: the kubelet sets the variable from the Secret. The headers of a tool's server are
//! rendered alike, and so are the CA certificates by which the server is verified. The author of a server must not refer to the
//! variables of the workloads that call it: a plain value of such a header that could be read as a reference becomes a variable
//! too.

use std::collections::BTreeMap;

use crds::{ToolSpec, tool::ServerVariables, tool_server::ServerHeader};
use serde::Serialize;
use serde_json::{Value, json};

/// Part of a variable's name that stands for the CA certificates, in place of a header's name.
const AUTHORITIES: &str = "TLS_CA";

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

/// Verification of the TLS certificate of a tool's server, if it differs from the system's root certificates.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallTls {
    /// True if any certificate is accepted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    insecure_skip_verify: bool,
    /// Variable with further CA certificates (PEM), as `$NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    /// True if those are the only ones that are trusted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    only_ca: bool,
}

/// Returns the verification of the TLS certificate of a tool's server; `None`: by the system's root certificates.
pub fn call_tls(tool: &ToolSpec) -> Option<CallTls> {
    let tls = &tool.call.tls;
    let ca = tls.ca_secret_ref.as_ref().map(|_| format!("${}", variable_name(tool, AUTHORITIES)));
    let only_ca = !tls.system_cas && ca.is_some();
    (tls.insecure_skip_verify || ca.is_some()).then_some(CallTls {
        insecure_skip_verify: tls.insecure_skip_verify,
        ca,
        only_ca,
    })
}

/// Returns the variables of a tool, in the order of its headers.
pub fn header_variables(tool: &ToolSpec) -> Vec<HeaderVariable> {
    let own = tool.headers_from.iter().map(|source| HeaderVariable {
        name: variable_name(tool, &source.name),
        source: HeaderFrom::Secret(source.secret_key_ref.name.clone(), source.secret_key_ref.key.clone()),
    });
    let servers = tool.call.headers.iter().filter_map(|header| {
        let source = match &header.value_from {
            Some(from) if from.is_secret() => HeaderFrom::Secret(from.name.clone(), from.key.clone()),
            Some(from) => HeaderFrom::ConfigMap(from.name.clone(), from.key.clone()),
            None => HeaderFrom::Text(named(header)?.to_owned()),
        };
        Some(HeaderVariable { name: variable_name(tool, &header.name), source })
    });
    let authorities = tool.call.tls.ca_secret_ref.iter().map(|ca| HeaderVariable {
        name: variable_name(tool, AUTHORITIES),
        source: HeaderFrom::Secret(ca.name.clone(), ca.key.clone()),
    });
    own.chain(servers).chain(authorities).collect()
}

/// Returns all headers of a tool: those of the spec verbatim, those that are variables as `$NAME`.
pub fn headers(tool: &ToolSpec) -> BTreeMap<&str, String> {
    let variable = |header: &str| format!("${}", variable_name(tool, header));
    let plain = tool.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let secret = tool.headers_from.iter().map(|source| (source.name.as_str(), variable(&source.name)));
    let servers = tool.call.headers.iter().map(|header| match (&header.value, &header.value_from, named(header)) {
        (Some(value), None, None) => (header.name.as_str(), value.clone()),
        _ => (header.name.as_str(), variable(&header.name)),
    });
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

fn variable_name(tool: &ToolSpec, header: &str) -> String {
    let upper = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
    };
    match &tool.call.variables {
        None => format!("TOOL_{}_{}", upper(&tool.name), upper(header)),
        Some(ServerVariables { server, digest, is_unique }) => {
            let end = if *is_unique { format!("_{digest}") } else { String::new() };
            format!("MCP_{}_{}{end}", upper(server), upper(header))
        }
    }
}
