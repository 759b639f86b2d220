//! Headers of tools whose values are in Secrets: each value is a variable of the container, and the header refers to it.
//!
//! So a credential is in no rendered file: the variable is made by the kubelet, from the Secret. The headers of a server whose
//! tool it is are no different, nor are the certificates of the authorities by which such a server is judged, but that whoever wrote them is not to refer to the variables of whoever calls the tool: a
//! value of theirs in which a name could be read is such a variable, too.

use std::collections::BTreeMap;

use crds::{ToolSpec, tool_server::ServerHeader};
use serde::Serialize;
use serde_json::{Value, json};

/// What stands in a variable's name in place of a header's.
const AUTHORITIES: &str = "TLS_CA";

/// One header's value, or the authorities of a server, as a variable of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderVariable {
    /// `TOOL_<TOOL>_<HEADER>` in upper case, every other character an underscore; of authorities `TOOL_<TOOL>_TLS_CA`.
    pub name: String,
    /// Where its value is.
    pub source: HeaderFrom,
}

/// Where a header's value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderFrom {
    /// In a Secret: its name, and the key in it.
    Secret(String, String),
    /// In a ConfigMap, likewise.
    ConfigMap(String, String),
    /// Here.
    Text(String),
}

impl HeaderVariable {
    /// The variable as in a Pod.
    pub fn env(&self) -> Value {
        let from = |kind: &str, name: &str, key: &str| json!({ "valueFrom": { kind: { "name": name, "key": key } } });
        let mut env = match &self.source {
            HeaderFrom::Secret(name, key) => from("secretKeyRef", name, key),
            HeaderFrom::ConfigMap(name, key) => from("configMapKeyRef", name, key),
            // Else the kubelet would look for names in it.
            HeaderFrom::Text(text) => json!({ "value": text.replace('$', "$$") }),
        };
        env["name"] = json!(self.name);
        env
    }
}

/// How the server of a tool proves who it is, where it is not by the system's authorities alone.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallTls {
    /// Any certificate is taken.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    insecure_skip_verify: bool,
    /// The variable with the certificates (PEM) of further authorities, as `$NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
}

/// How the server of a tool proves who it is; `None`: by the system's authorities.
pub fn call_tls(tool: &ToolSpec) -> Option<CallTls> {
    let tls = &tool.call.tls;
    let ca = tls.ca_secret_ref.as_ref().map(|_| format!("${}", variable_name(&tool.name, AUTHORITIES)));
    (tls.insecure_skip_verify || ca.is_some()).then_some(CallTls { insecure_skip_verify: tls.insecure_skip_verify, ca })
}

/// The variables of a tool, in the order of its headers.
pub fn header_variables(tool: &ToolSpec) -> Vec<HeaderVariable> {
    let own = tool.headers_from.iter().map(|source| HeaderVariable {
        name: variable_name(&tool.name, &source.name),
        source: HeaderFrom::Secret(source.secret_key_ref.name.clone(), source.secret_key_ref.key.clone()),
    });
    let servers = tool.call.headers.iter().filter_map(|header| {
        let source = match &header.value_from {
            Some(from) if from.is_secret() => HeaderFrom::Secret(from.name.clone(), from.key.clone()),
            Some(from) => HeaderFrom::ConfigMap(from.name.clone(), from.key.clone()),
            None => HeaderFrom::Text(named(header)?.to_owned()),
        };
        Some(HeaderVariable { name: variable_name(&tool.name, &header.name), source })
    });
    let authorities = tool.call.tls.ca_secret_ref.iter().map(|ca| HeaderVariable {
        name: variable_name(&tool.name, AUTHORITIES),
        source: HeaderFrom::Secret(ca.name.clone(), ca.key.clone()),
    });
    own.chain(servers).chain(authorities).collect()
}

/// All headers of a tool: those of the spec verbatim, those that are variables as `$NAME`.
pub fn headers(tool: &ToolSpec) -> BTreeMap<&str, String> {
    let variable = |header: &str| format!("${}", variable_name(&tool.name, header));
    let plain = tool.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let secret = tool.headers_from.iter().map(|source| (source.name.as_str(), variable(&source.name)));
    let servers = tool.call.headers.iter().map(|header| match (&header.value, &header.value_from, named(header)) {
        (Some(value), None, None) => (header.name.as_str(), value.clone()),
        _ => (header.name.as_str(), variable(&header.name)),
    });
    plain.chain(secret).chain(servers).collect()
}

/// The names to which a header's value refers, `$NAME` or `${NAME}`, as the runner reads them.
pub fn variables(value: &str) -> impl Iterator<Item = &str> {
    let after = value.split('$').skip(1);
    after.filter_map(|after| {
        let length = |text: &str| text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
        let braced = after.strip_prefix('{').and_then(|braced| braced.split_once('}')).map(|(name, _)| name);
        let name = braced.filter(|name| length(name) == name.len()).unwrap_or(&after[..length(after)]);
        (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
    })
}

/// The value of a server's header in which the name of a variable could be read.
fn named(header: &ServerHeader) -> Option<&str> {
    header.value.as_deref().filter(|value| value.contains('$'))
}

fn variable_name(tool: &str, header: &str) -> String {
    let upper = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
    };
    format!("TOOL_{}_{}", upper(tool), upper(header))
}
