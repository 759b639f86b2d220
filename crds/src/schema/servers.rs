//! The schema of what servers of tools have: where they are, and what is sent to them.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

use super::{add_rules, list_map, traffic::period};
use crate::{
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

/// An http or https URL without user and password.
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
        ],
    })
}

pub(crate) fn value_source_type(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["Secret", "ConfigMap"] })
}

/// Exactly one of `value` and `valueFrom`.
pub(crate) fn one_value(schema: &mut Schema) {
    super::one_of(schema, "value", "valueFrom");
}

/// A certificate is either checked or not.
pub(crate) fn tls_rule(schema: &mut Schema) {
    let rule = json!({
        "rule": "!self.insecureSkipVerify || !has(self.caSecretRef)",
        "message": "insecureSkipVerify takes any certificate, so caSecretRef says nothing: set only one of them",
    });
    add_rules(schema, [rule]);
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

/// The kinds of servers that a Tool may refer to.
pub(crate) fn server_kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ServerRef::KINDS })
}
