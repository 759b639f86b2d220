//! Types that RemoteMCPServer and MCPServer share: headers, certificates, access, publication and discovered tools.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use meta::schema::brief;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::schema::{self, rule, transition_rule};
pub use crate::tool_server_status::{DiscoveredTool, GoneTool, ServerInfo, ToolServerStatus};

/// Headers that belong to the protocol or to the connection, in lower case.
pub(crate) const RESERVED: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

/// Header of the requests to an MCP server. Set exactly one of value and valueFrom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::one_of("value", "valueFrom"))]
pub struct ServerHeader {
    /// Name of the header, such as Authorization.
    #[schemars(
        length(max = 128),
        transform = rule(
            "self.matches('^[A-Za-z0-9!#$%&*+.^_|~-]+$')",
            "is no name of a header: use letters, digits and '-'",
        ),
        transform = rule(
            format!("!(self.lowerAscii() in {})", json!(RESERVED).to_string().replace('"', "'")),
            "is set by the protocol itself: leave it out",
        ),
        // The headers of `is_forwarded_header`; objects that already have such a header stay valid.
        transform = transition_rule(
            "(oldSelf.hasValue() && oldSelf.value() == self) || \
             !self.lowerAscii().replace('_', '-').matches('^(x-recif-.*|x-forwarded-.*|cookie)$')",
            "tells who calls, which only the gateway may: leave it out",
        )
    )]
    pub name: String,
    /// Value of the header, at most 8192 characters. Keep credentials in a Secret (valueFrom) instead.
    #[schemars(length(max = 8192))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Key of a Secret or ConfigMap that holds the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<ValueSource>,
}

/// Reports whether a header belongs to the protocol of MCP or to the connection.
pub fn is_reserved_header(name: &str) -> bool {
    RESERVED.contains(&name.to_ascii_lowercase().as_str())
}

/// Reports whether a header names the caller or the way of a request, which only a gateway may, or is a browser's
/// cookie. `_` in a name counts as `-`, as some servers read it.
pub fn is_forwarded_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    name.starts_with("x-recif-") || name.starts_with("x-forwarded-") || name == "cookie"
}

/// A key of a Secret or ConfigMap in the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ValueSource {
    /// Kind of the object: Secret or ConfigMap.
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["Secret", "ConfigMap"]))]
    pub type_: String,
    /// Name of the Secret or ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret or ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

impl ValueSource {
    /// Reports whether the value is in a Secret.
    pub fn is_secret(&self) -> bool {
        self.type_ == "Secret"
    }
}

/// Verification of the certificate of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    transform = rule(
        "!self.insecureSkipVerify || !has(self.caSecretRef)",
        "insecureSkipVerify takes any certificate, so caSecretRef says nothing: set only one of them",
    ),
    transform = rule(
        "self.systemCAs || has(self.caSecretRef)",
        "without the system's authorities only those of caSecretRef are trusted: set it",
    )
)]
pub struct ServerTls {
    /// Accepts any certificate. A third party on the network path can then read the headers: only for tests.
    /// Default: false.
    #[serde(default)]
    pub insecure_skip_verify: bool,
    /// Secret with the certificates (PEM) of authorities that are trusted in addition to the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<CaSecret>,
    /// Trusts the system's authorities; false: only those of caSecretRef. Default: true.
    // Not written where it is the default, so that the digest of an older object stays as it is.
    #[schemars(extend("default" = true))]
    #[serde(rename = "systemCAs", default = "yes", skip_serializing_if = "is_true")]
    pub system_cas: bool,
}

impl Default for ServerTls {
    fn default() -> Self {
        Self { insecure_skip_verify: false, ca_secret_ref: None, system_cas: true }
    }
}

/// Key of a Secret that holds certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaSecret {
    /// Name of the Secret, in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret. Default: ca.crt.
    #[schemars(length(min = 1, max = 253))]
    #[serde(default = "ca_key")]
    pub key: String,
}

impl From<CaSecret> for ValueSource {
    fn from(CaSecret { name, key }: CaSecret) -> Self {
        Self { type_: "Secret".into(), name, key }
    }
}

/// Namespaces whose objects may refer to an MCP server or an Agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = rule(
    "(self.from == 'Selector') == has(self.selector)",
    "selector goes with from: Selector, and only with it",
))]
pub struct AllowedNamespaces {
    /// Namespaces whose objects may refer to this one: Same (its own), All, or Selector (those whose labels match
    /// selector). Default: Same.
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[schemars(extend("enum" = ["Same", "All", "Selector"]))]
    #[serde(default = "same")]
    pub from: String,
    /// Labels of the namespaces. Required with from: Selector, and only allowed with it.
    #[schemars(schema_with = "brief::<LabelSelector>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

impl Default for AllowedNamespaces {
    fn default() -> Self {
        Self { from: same(), selector: None }
    }
}

impl AllowedNamespaces {
    /// Reports whether objects of another namespace may refer to this one. `labels` are those of that namespace, if known.
    pub fn admits(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        match (self.from.as_str(), &self.selector) {
            ("All", _) => true,
            ("Selector", Some(selector)) => {
                let selector = Selector::try_from(selector.clone());
                labels.zip(selector.ok()).is_some_and(|(labels, selector)| selector.matches(labels))
            }
            _ => false,
        }
    }
}

/// Publication of a server's tools as Tool objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Publish {
    /// Creates a Tool, which the server owns, for each discovered tool. Default: false.
    #[serde(default)]
    pub enabled: bool,
    /// Prefix of the names of the Tools, in lower case.
    #[schemars(
        length(max = 63),
        transform = rule(
            "self == '' || self.matches('^[a-z0-9][-a-z0-9]*$')",
            "the names of the Tools begin with it: use lower-case letters, digits and '-'",
        )
    )]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Names of the tools to publish, with * for any text and ? for any character. Empty: all.
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Names of the tools not to publish, with the same wildcards.
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

impl Publish {
    /// Reports whether the tool of this name is published as a Tool.
    pub fn selects(&self, tool: &str) -> bool {
        self.enabled && selects(&self.include, &self.exclude, tool)
    }
}

/// Reports whether the name of a tool is in `include`, where an empty list stands for all, and not in `exclude`.
pub(crate) fn selects(include: &[String], exclude: &[String], tool: &str) -> bool {
    let any = |globs: &[String]| globs.iter().any(|glob| matches_glob(glob, tool));
    (include.is_empty() || any(include)) && !any(exclude)
}

/// Reports whether a text matches a glob pattern, in which `*` is any text and `?` any character.
pub(crate) fn matches_glob(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<_>, Vec<_>) = (glob.chars().collect(), text.chars().collect());
    let (mut at, mut seen) = (0, 0);
    // Position of the last star, and of the end of the text that it has taken.
    let mut star: Option<(usize, usize)> = None;
    while seen < text.len() {
        match glob.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || Some(wanted) == text.get(seen) => (at, seen) = (at + 1, seen + 1),
            _ => match star {
                Some((star_at, took)) => {
                    star = Some((star_at, took + 1));
                    (at, seen) = (star_at + 1, took + 1);
                }
                None => return false,
            },
        }
    }
    glob.get(at..).unwrap_or_default().iter().all(|rest| *rest == '*')
}

/// Returns the name of the ConfigMap with the definitions of the tools of a server of this kind. An object's name has
/// no dot, so this name collides with no other, and servers of both kinds may have the same name.
pub fn tools_config_map(kind: &str, server: &str) -> String {
    let suffix = if kind == "MCPServer" { "mcp-server-tools" } else { "mcp-tools" };
    format!("{server}.{suffix}")
}

/// Key of the accepted definitions in that ConfigMap.
pub const TOOLS_KEY: &str = "tools.json";

fn yes() -> bool {
    true
}
fn is_true(value: &bool) -> bool {
    *value
}
fn same() -> String {
    "Same".into()
}
fn ca_key() -> String {
    "ca.crt".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_chosen_by_pattern() {
        for (glob, name, expected) in [
            ("*", "", true),
            ("get_*", "get_weather", true),
            ("get_*", "set_weather", false),
            ("*_w*r", "get_weather", true),
            ("g?t", "get", true),
            ("g?t", "gt", false),
            ("get", "get_weather", false),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("*é?", "caféx", true),
        ] {
            assert_eq!(matches_glob(glob, name), expected, "{glob} {name}");
        }
        let publish = |include: &[&str], exclude: &[&str]| Publish {
            enabled: true,
            include: include.iter().map(|glob| (*glob).into()).collect(),
            exclude: exclude.iter().map(|glob| (*glob).into()).collect(),
            ..Publish::default()
        };
        assert!(publish(&[], &[]).selects("x"));
        assert!(!publish(&["a*"], &[]).selects("x"));
        assert!(!publish(&["a*"], &["*b"]).selects("ab"));
        assert!(!Publish::default().selects("x"));
    }

    #[test]
    fn namespaces_are_admitted_as_the_server_says() {
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let admits = |allowed: serde_json::Value, labels| {
            serde_json::from_value::<AllowedNamespaces>(allowed).unwrap().admits(labels)
        };
        let selector = |selector: serde_json::Value| json!({ "from": "Selector", "selector": selector });
        assert!(!admits(json!({}), Some(&labels)));
        assert!(admits(json!({ "from": "All" }), None));
        assert!(admits(selector(json!({ "matchLabels": { "team": "a" } })), Some(&labels)));
        assert!(!admits(selector(json!({ "matchLabels": { "team": "b" } })), Some(&labels)));
        assert!(!admits(selector(json!({ "matchLabels": { "team": "a" } })), None), "labels that are not known");
        let among = |operator: &str| json!([{ "key": "team", "operator": operator, "values": ["a", "c"] }]);
        assert!(admits(selector(json!({ "matchExpressions": among("In") })), Some(&labels)));
        assert!(!admits(selector(json!({ "matchExpressions": among("NotIn") })), Some(&labels)));
        assert!(!admits(json!({ "from": "Everybody" }), Some(&labels)), "of another build");
    }
}
