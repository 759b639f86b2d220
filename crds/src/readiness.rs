//! Readiness of a workload: where the kubelet's probes go.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{schema::rule, sidecar::PROXY_PORT};

/// Target of the probes of a workload's container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// Path that answers GET with a status from 200 to 399 while the container can serve, such as /ready. It is asked
    /// every 5 seconds, and up to ten times a second while the container starts. Empty: a TCP connection to the port
    /// is enough.
    #[schemars(
        length(max = 1024),
        transform = rule(
            "self.matches('^/[^?#[:space:]]*$')",
            "must be a path that begins with '/', such as /ready, without '?', '#' and spaces",
        )
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Port of the container that the probes go to, 1 to 65535. Empty: spec.port.
    #[schemars(
        range(min = 1, max = 65535),
        transform = rule(
            format!("self != {PROXY_PORT}"),
            format!("port {PROXY_PORT} is the sidecar's: name a port of the container"),
        )
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}
