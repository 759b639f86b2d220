//! Schemas of the fields of MCP servers: address, headers, transport, access and publication.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use meta::schema::{brief, list_map};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::{add_rules, traffic::period};
use crate::{
    PROXY_PORT,
    tool::ServerRef,
    tool_server::{DiscoveredTool, ServerHeader},
};

/// Headers that belong to the protocol or to the connection, in lower case.
const RESERVED: &[&str] = &[
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

/// Returns the schema of an http or https URL without user and password.
pub(crate) fn server_url(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 2048,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^https?://[^/?#@[:space:]]+([/?#][^[:space:]]*)?$')",
            "message": "must be an http or https URL, such as https://mcp.example.com/mcp; credentials go into headersFrom",
        }],
    })
}

pub(crate) fn server_headers(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = list_map::<ServerHeader>(generator, "name");
    schema.insert("maxItems".into(), 32.into());
    schema
}

pub(crate) fn server_header_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 128,
        "x-kubernetes-validations": [
            {
                "rule": "self.matches('^[A-Za-z0-9!#$%&*+.^_|~-]+$')",
                "message": "is no name of a header: use letters, digits and '-'",
            },
            {
                "rule": format!("!(self.lowerAscii() in {})", json!(RESERVED).to_string().replace('"', "'")),
                "message": "is set by the protocol itself: leave it out",
            },
            {
                // The headers of `tool_server::is_forwarded_header`; objects that already have such a header stay
                // valid.
                "rule": "(oldSelf.hasValue() && oldSelf.value() == self) || \
                         !self.lowerAscii().replace('_', '-').matches('^(x-recif-.*|x-forwarded-.*|cookie)$')",
                "optionalOldSelf": true,
                "message": "tells who calls, which only the gateway may: leave it out",
            },
        ],
    })
}

pub(crate) fn value_source_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Secret", "ConfigMap"] })
}

/// Adds the rule that exactly one of `value` and `valueFrom` is set.
pub(crate) fn one_value(schema: &mut Schema) {
    super::one_of(schema, "value", "valueFrom");
}

/// Adds the rule that `insecureSkipVerify` and `caSecretRef` exclude each other.
pub(crate) fn tls_rule(schema: &mut Schema) {
    let rule = json!({
        "rule": "!self.insecureSkipVerify || !has(self.caSecretRef)",
        "message": "insecureSkipVerify takes any certificate, so caSecretRef says nothing: set only one of them",
    });
    add_rules(schema, [rule]);
}

/// Returns the schema of the transport of an MCPServer.
pub(crate) fn transport_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["stdio", "http"] })
}

pub(crate) fn server_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 1024,
        "x-kubernetes-validations": [{
            "rule": "self.matches('^/[^?#[:space:]]*$')",
            "message": "must be a path that begins with '/', such as /mcp, without '?' and '#'",
        }],
    })
}

/// Adds the rules on required and mutually exclusive fields of an MCPServer.
pub(crate) fn mcp_server_rules(schema: &mut Schema) {
    let rules = [
        json!({
            "rule": "self.transportType != 'stdio' || (has(self.deployment.cmd) && self.deployment.cmd != '')",
            "message": "a server of type stdio needs the program to run: set deployment.cmd",
        }),
        json!({
            "rule": "self.transportType != 'stdio' || !has(self.httpTransport)",
            "message": "a server of type stdio is served by the bridge: leave out httpTransport, or set transportType to http",
        }),
        json!({
            "rule": format!(
                "(has(self.httpTransport) && has(self.httpTransport.targetPort) ? self.httpTransport.targetPort \
                 : self.deployment.port) != {PROXY_PORT}"
            ),
            "message": format!("port {PROXY_PORT} is the sidecar's: let the container listen on another one"),
        }),
    ];
    add_rules(schema, rules);
}

/// Returns the schema of the namespaces from which a server may be referred to.
pub(crate) fn allowed_from(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Same", "All", "Selector"] })
}

pub(crate) fn label_selector(generator: &mut SchemaGenerator) -> Schema {
    brief::<LabelSelector>(generator)
}

/// Adds the rule that a selector is set with `from: Selector`, and only then.
pub(crate) fn allowed_namespaces_rule(schema: &mut Schema) {
    let rule = json!({
        "rule": "(self.from == 'Selector') == has(self.selector)",
        "message": "selector goes with from: Selector, and only with it",
    });
    add_rules(schema, [rule]);
}

/// Returns the schema of the prefix of the names of published Tools.
pub(crate) fn publish_prefix(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 63,
        "x-kubernetes-validations": [{
            "rule": "self == '' || self.matches('^[a-z0-9][-a-z0-9]*$')",
            "message": "the names of the Tools begin with it: use lower-case letters, digits and '-'",
        }],
    })
}

/// Returns the schema of a list of glob patterns.
pub(crate) fn globs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": { "type": "string", "minLength": 1, "maxLength": 128 },
    })
}

/// Adds the rule that only a RemoteMCPServer is referred to from other namespaces.
pub(crate) fn server_ref_rule(schema: &mut Schema) {
    let rule = json!({
        "rule": "self.kind == 'RemoteMCPServer' || !has(self.__namespace__)",
        "message": "an MCPServer is used in its own namespace only: leave out namespace",
    });
    add_rules(schema, [rule]);
}

/// Returns the schema of the transport of a RemoteMCPServer.
pub(crate) fn server_protocol(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["STREAMABLE_HTTP", "SSE"] })
}

pub(crate) fn sse_read_timeout(generator: &mut SchemaGenerator) -> Schema {
    period(generator, "1s", "1h", "90s or 5m")
}

pub(crate) fn discovery_timeout(generator: &mut SchemaGenerator) -> Schema {
    period(generator, "1s", "10m", "30s or 2m")
}

pub(crate) fn resync(generator: &mut SchemaGenerator) -> Schema {
    period(generator, "1s", "24h", "60s or 1h")
}

pub(crate) fn discovered_tools(generator: &mut SchemaGenerator) -> Schema {
    list_map::<DiscoveredTool>(generator, "name")
}

/// Returns the schema of the kinds of servers that a Tool may refer to.
pub(crate) fn server_kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ServerRef::KINDS })
}
