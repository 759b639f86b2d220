//! `forwardHeaders`: names of headers of a caller that the calls of a tool have too.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

use crate::tool_server::{RESERVED, is_forwarded_header, is_reserved_header};

/// Header with the user that a gateway has vouched for, which no other sidecar passes on.
const USER: &str = "x-recif-user";

/// Further headers that belong to the connection or to the protocol of a call, in lower case. Those of an MCP server's own may have such
/// names: objects that already have one stay valid.
const CONNECTION: &[&str] =
    &["a2a-version", "accept-encoding", "expect", "keep-alive", "proxy-authorization", "te", "trailer", "upgrade"];

/// Reports whether the calls of a tool may have this header of the caller.
pub fn may_forward(name: &str) -> bool {
    let is_of_connection = || CONNECTION.iter().any(|known| name.eq_ignore_ascii_case(known));
    name.eq_ignore_ascii_case(USER) || !is_reserved_header(name) && !is_forwarded_header(name) && !is_of_connection()
}

/// Returns the schema of the list.
// The API server limits the estimated cost of the rules, and a FlowSet has 64 flows with 32 servers each: so there are no more
// rules than the pattern and the lengths leave open, and names are shorter than those of other headers.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    let reserved = [RESERVED, CONNECTION].concat();
    let reserved = json!(reserved).to_string().replace('"', "'");
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "maxLength": 56,
            "pattern": "^[A-Za-z0-9!#$%&*+.^_|~-]+$",
            "x-kubernetes-validations": [
                {
                    "rule": format!("!(self.lowerAscii() in {reserved})"),
                    "message": "is set by the protocol itself: leave it out",
                },
                {
                    "rule": format!(
                        "!self.matches('(?i)^(x[-_](recif|forwarded)[-_].*|cookie)$') || self.lowerAscii() == '{USER}'"
                    ),
                    "message": "tells who calls, which only the gateway may: leave it out",
                },
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_the_caller_is_forwarded_unless_it_is_the_protocols_or_tells_who_calls() {
        for name in ["Authorization", "X-Tenant", "x-recif-user", "X-Recif-User", "traceparent"] {
            assert!(may_forward(name), "{name}");
        }
        for name in ["X-Recif-Caller", "X_Recif_User", "x-recif-authorization", "X-Forwarded-For", "Cookie", "Host"] {
            assert!(!may_forward(name), "{name}");
        }
        for name in RESERVED.iter().chain(CONNECTION).chain(&["Upgrade", "A2A-Version"]) {
            assert!(!may_forward(name), "{name}");
        }
    }
}
