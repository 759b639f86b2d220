//! References to tools of MCP servers: `mcpServerRef` of a Tool, and `toolServers[]` of an agent or flow, which has tools of a
//! server by one line, without a Tool object for each.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    approval::{NEVER, ServerApproval},
    digest, forward_headers,
    references::{RefKind, ReferenceSet},
    schema,
    tool_server::ServerHeader,
};

pub use crate::tool_choice::{ToolChoice, Unmatched};

/// Longest name of a tool that a model sees.
const MAX_NAME: usize = 64;

/// Reference to a tool of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rule(
    "self.kind == 'RemoteMCPServer' || !has(self.__namespace__)",
    "an MCPServer is used in its own namespace only: leave out namespace",
))]
pub struct ServerRef {
    /// Kind of the server: RemoteMCPServer or MCPServer. Default: RemoteMCPServer.
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[schemars(extend("enum" = ServerRef::KINDS))]
    #[serde(default = "remote_server")]
    pub kind: String,
    /// Namespace of a RemoteMCPServer, whose allowedNamespaces must admit the Tool's namespace. Empty: the same
    /// namespace.
    #[schemars(length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the server.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Name of the tool at the server. Empty: spec.name of the Tool.
    #[schemars(length(max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Digest of the only definition with which the tool may be used. The Tool is in Error while another one is accepted.
    #[schemars(
        length(max = 71),
        transform = schema::rule(
            "self.matches('^sha256:[0-9a-f]{64}$')",
            "must be the digest that recif tools shows, such as sha256:…",
        )
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl ServerRef {
    /// Kinds of servers.
    pub const KINDS: &'static [&'static str] = &["RemoteMCPServer", "MCPServer"];
}

/// MCP server whose tools an agent or flow may call, as if it listed a Tool for each of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rule(
    "self.kind == 'RemoteMCPServer' || !has(self.__namespace__)",
    "an MCPServer is used in its own namespace only: leave out namespace",
))]
pub struct ToolServerRef {
    /// Kind of the server: RemoteMCPServer or MCPServer. Default: RemoteMCPServer.
    // A string and not an enum, as in `ServerRef`.
    #[schemars(extend("enum" = ServerRef::KINDS))]
    #[serde(default = "remote_server")]
    pub kind: String,
    /// Namespace of a RemoteMCPServer, whose allowedNamespaces must admit this one. Empty: the same namespace.
    #[schemars(length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the server.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Names of the tools to take, with * for any text and ? for any character. A name without these must exist. Empty:
    /// all.
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Names of the tools not to take, with the same wildcards.
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Text before the name of each tool, for the model: at most 32 letters, digits, '_' and '-'.
    #[schemars(regex(pattern = "^[a-zA-Z0-9_-]{0,32}$"))]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Headers of every call, each name once, at most 8. They take the place of the server's own headers of the same
    /// names. Secrets and ConfigMaps are those of this namespace.
    // The API server limits the estimated cost of the rules on a header, and a FlowSet has 64 flows with 32 servers each.
    #[schemars(schema_with = "headers", length(max = 8))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers_from: Vec<ServerHeader>,
    /// Names of headers of the request that began a turn, which calls have too, at most 16, such as X-Tenant. Other
    /// headers of the same name go first. Authorization comes through the gateway only if callers sign in by
    /// X-Recif-Authorization.
    #[schemars(schema_with = "forward_headers::schema")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward_headers: Vec<String>,
    /// Lets calls wait until a person approves them. Only an Agent can ask one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ServerApproval>,
}

impl ToolServerRef {
    /// Returns the kind of the server; `None` for one that this version does not know.
    pub fn server_kind(&self) -> Option<RefKind> {
        RefKind::parse(&self.kind).filter(|kind| matches!(kind, RefKind::RemoteMCPServer | RefKind::MCPServer))
    }

    /// Returns the namespace of the server, if the entry names one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }

    /// Returns which tools of the server are taken, and calls of which of them wait for a person.
    pub fn choice(&self) -> ToolChoice {
        let asks = self.approval.as_ref().filter(|found| found.approval.when != NEVER);
        let asking = asks.map(|found| found.tools.clone()).unwrap_or_default();
        let prefix = if asking.is_empty() { String::new() } else { self.prefix.clone() };
        ToolChoice { include: self.include.clone(), exclude: self.exclude.clone(), asking, prefix }
    }

    /// Returns the name by which the model knows a tool of the server: the prefix and the tool's own name, with `_` for every
    /// character that a model does not take. A name that is too long ends in a digest in place of its end.
    pub fn tool_name(&self, tool: &str) -> String {
        let whole = format!("{}{tool}", self.prefix);
        let name = readable(&whole);
        match name.len() > MAX_NAME {
            false => name,
            true => format!("{}_{}", &name[..MAX_NAME - 9], short_digest(&whole)),
        }
    }
}

/// Returns a text with `_` for every character but ASCII letters, digits, `_` and `-`.
pub fn readable(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' }).collect()
}

/// Returns the first 8 hexadecimal digits of the SHA-256 of a text.
pub fn short_digest(text: &str) -> String {
    digest::sha256_hex(text.as_bytes()).chars().take(8).collect()
}

/// Adds the servers, and the Secrets and ConfigMaps of their headers.
pub(crate) fn collect(servers: &[ToolServerRef], mentions: &mut ReferenceSet) {
    for server in servers {
        if let Some(kind) = server.server_kind() {
            mentions.add_choice(kind, (server.namespace(), &server.name), server.choice());
        }
        for source in server.headers_from.iter().filter_map(|header| header.value_from.as_ref()) {
            let kind = if source.is_secret() { RefKind::Secret } else { RefKind::ConfigMap };
            mentions.add_key(kind, &source.name, &source.key);
        }
    }
}

/// Returns the schema of the headers: that of a server's own, with a rule for the names that reads no earlier value, because
/// the entries of `toolServers` have no key by which the API server finds one.
fn headers(generator: &mut SchemaGenerator) -> Schema {
    let mut list = schema::by_name::<ServerHeader>(generator);
    if let Some(name) = list.pointer_mut("/items/properties/name").and_then(serde_json::Value::as_object_mut) {
        let pattern = "(?i)^(x[-_](recif|forwarded)[-_].*|cookie)$";
        let callers = json!({
            "rule": format!("!self.matches('{pattern}')"),
            "message": "tells who calls, which only the gateway may: leave it out",
        });
        if let Some(rules) = name.get_mut("x-kubernetes-validations").and_then(serde_json::Value::as_array_mut) {
            rules.retain(|rule| rule.get("optionalOldSelf").is_none());
            rules.push(callers);
        }
    }
    list
}

fn remote_server() -> String {
    "RemoteMCPServer".into()
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use super::*;
    use crate::{Agent, tool_server::DiscoveredTool};

    fn entry(more: serde_json::Value) -> ToolServerRef {
        let mut entry = json!({ "name": "docs" });
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn a_tool_has_the_prefix_and_only_characters_that_a_model_takes() {
        assert_eq!(entry(json!({})).tool_name("search"), "search");
        assert_eq!(entry(json!({ "prefix": "docs-" })).tool_name("files/read.v2 é"), "docs-files_read_v2__");
        let long = entry(json!({ "prefix": "p_" })).tool_name(&"n".repeat(63));
        assert_eq!(long.len(), 64);
        assert_eq!(long, format!("p_{}_{}", "n".repeat(53), short_digest(&format!("p_{}", "n".repeat(63)))));
        assert_eq!(entry(json!({})).tool_name(&"n".repeat(64)), "n".repeat(64));
        let other = entry(json!({})).tool_name(&format!("{}b", "n".repeat(70)));
        assert_ne!(entry(json!({})).tool_name(&format!("{}a", "n".repeat(70))), other, "only their ends differ");
    }

    #[test]
    fn tools_are_chosen_by_globs_and_those_named_in_full_must_exist() {
        let choice = entry(json!({ "include": ["get_*", "put", "old"], "exclude": ["*_secret", "old"] })).choice();
        let chosen = ["get_a", "get_secret", "put", "put_b", "old"].map(|tool| choice.selects(tool));
        assert_eq!(chosen, [true, false, true, false, false]);
        assert_eq!(choice.named().collect::<Vec<_>>(), ["put"]);
        assert!(ToolChoice::default().selects("any"));
    }

    #[test]
    fn patterns_of_an_approval_that_match_no_tool_are_a_mistake_if_they_are_meant_for_one() {
        let tool = |name: &str| DiscoveredTool { name: name.into(), ..DiscoveredTool::default() };
        let listed = ["delete", "move_page", "read"].map(tool);
        let asking = json!(["delete", "docs_delete", "mov?_*", "del_*", "?ead", "Delete"]);
        let unmatched = ["docs_delete", "del_*", "Delete"];
        let entry_of = |when: &str, tools: &serde_json::Value| {
            let approval = json!({ "when": when, "tools": tools });
            entry(json!({ "prefix": "docs_", "include": ["read"], "exclude": ["delete"], "approval": approval }))
        };
        for when in ["Always", "OnWrite", "Sometimes"] {
            let choice = entry_of(when, &asking).choice();
            let found = choice.unmatched(&listed);
            assert_eq!((&found.patterns[..], found.is_mistake), (&unmatched[..], true), "{when}");
            assert_eq!(choice.unmatched(&[]).patterns.len(), 6, "{when}");
        }
        for (pattern, is_mistake) in [("docs_del*", true), ("*_page_*", false), ("wipe_*", false), ("wipe", true)] {
            let choice = entry_of("Always", &json!([pattern])).choice();
            assert_eq!(choice.unmatched(&listed), Unmatched { patterns: vec![pattern], is_mistake }, "{pattern}");
        }
        let silent = [entry_of("Never", &asking), entry_of("Always", &json!([])), entry(json!({}))];
        for entry in silent {
            assert_eq!(entry.choice().unmatched(&listed), Unmatched::default(), "{entry:?}");
        }
    }

    #[test]
    fn no_rule_of_a_header_reads_an_earlier_value() {
        let crd = serde_json::to_value(Agent::crd()).unwrap();
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        let header = spec["toolServers"]["items"]["properties"]["headersFrom"].to_string();
        assert!(!header.contains("oldSelf"), "{header}");
        for message in ["which only the gateway may", "is set by the protocol itself", "is no name of a header"] {
            assert!(header.contains(message), "{message}: {header}");
        }
    }
}
