//! Traffic settings of a workload: the fields that Agent, Flow and FlowSet share.

use std::time::Duration;

use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use crate::{
    egress,
    limit::{self, Limit},
    period::Period,
    readiness::Readiness,
    schema::{rule, transition_rule},
    sidecar::PROXY_PORT,
};

/// Traffic settings of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Traffic {
    /// Autoscaling of the Pods by load. While it is set, replicas is ignored, except for 0, which always stops the
    /// Pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// Sidecar of every Pod: it caps the requests in flight, drains a Pod that terminates, and reports the load.
    pub proxy: Proxy,
    /// Target of the container's probes, for images that do not answer at the default paths. Empty object: a TCP
    /// connection to the port is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// Longest time until an answer begins, from 1s to 1h, such as 90s or 5m; a stream may last longer. Default: 60s.
    #[schemars(transform = Period::between("1s", "1h", "90s or 5m"))]
    pub timeout: Period,
    /// Longest time for requests in flight to end when a Pod terminates, from 0s to 1h. Default: 25s.
    #[schemars(transform = Period::between("0s", "1h", "25s or 5m"))]
    pub drain_timeout: Period,
    /// Paths that the gateway forwards without authentication.
    #[serde(skip_serializing_if = "Expose::is_empty")]
    pub expose: Expose,
    /// Addresses to which the Pods may connect, at most 64: a host, *.domain, an address or a CIDR, each with a port if it is not 443,
    /// such as api.example.com, *.example.com:8443 or 10.1.0.0/16:5432. Addresses of the model, tools,
    /// databases and DNS are added. Empty list: those alone. No list: no restriction.
    #[schemars(schema_with = "egress::schema")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Vec<String>>,
    /// Limits of the requests that come by the gateway, and of the tokens of models: of all callers together, of each
    /// caller, or both. An edit restarts no Pod.
    #[schemars(schema_with = "limit::list")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
}

impl Traffic {
    /// Returns the longest time until an answer begins.
    pub fn timeout(&self) -> Duration {
        self.timeout.length_or(|| Self::default().timeout)
    }

    /// Returns the longest time for requests in flight to end when a Pod terminates.
    pub fn drain_timeout(&self) -> Duration {
        self.drain_timeout.length_or(|| Self::default().drain_timeout)
    }

    /// Returns the most requests that one Pod takes at a time; 0 means no cap.
    pub fn concurrency(&self) -> i32 {
        self.scaling.as_ref().map_or(self.proxy.concurrency, |scaling| scaling.concurrency)
    }
}

/// Adds the rules on these fields to the schema of a kind. They do not stand on [`Traffic`], because the rules of two
/// structs that are flattened into one do not add up.
pub(crate) fn rules(schema: &mut Schema) {
    rule(
        "!has(self.scaling) || self.proxy.enabled",
        "scaling needs the sidecar, which tells the load: leave out scaling, or proxy.enabled",
    )(schema);
    rule(
        "!has(self.proxy.requireIdentity) || !self.proxy.requireIdentity || self.proxy.enabled",
        "requireIdentity needs the sidecar, which knows who calls: leave out proxy.requireIdentity, or proxy.enabled",
    )(schema);
    rule(
        "!has(self.limits) || size(self.limits) == 0 || self.proxy.enabled",
        "limits need the sidecar, which vouches for the caller: leave out limits, or proxy.enabled",
    )(schema);
    // Objects stored before the sidecar existed pass as long as these two fields stay unchanged.
    transition_rule(
        format!(
            "self.port != {PROXY_PORT} || !self.proxy.enabled || (oldSelf.hasValue() \
             && oldSelf.value().port == {PROXY_PORT} && oldSelf.value().proxy.enabled)"
        ),
        format!(
            "port {PROXY_PORT} is the sidecar's: let the container listen on another one, or set proxy.enabled to false"
        ),
    )(schema);
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            scaling: None,
            proxy: Proxy::default(),
            readiness: None,
            timeout: "60s".into(),
            drain_timeout: "25s".into(),
            expose: Expose::default(),
            egress: None,
            limits: Vec::new(),
        }
    }
}

/// Autoscaling of the Pods by load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = rule(
    "self.minReplicas <= self.maxReplicas",
    "minReplicas is more than maxReplicas: lower the one or raise the other",
))]
pub struct Scaling {
    /// Fewest Pods, 0 to 10. With 0 the last Pod is removed while no requests come, and the next request waits for a
    /// new one. Default: 1.
    #[schemars(range(min = 0, max = 10))]
    pub min_replicas: i32,
    /// Most Pods, 1 to 100 and not below minReplicas. Default: 10.
    #[schemars(range(min = 1, max = 100))]
    pub max_replicas: i32,
    /// Most requests that one Pod takes at a time, 1 to 100000: the cap, and the divisor of the load. Default: 8.
    #[schemars(range(min = 1, max = 100000))]
    pub concurrency: i32,
    /// Time for which the load must stay low before Pods are removed, from 1s to 1h. Default: 60s.
    #[schemars(transform = Period::between("1s", "1h", "60s or 5m"))]
    pub stable_window: Period,
    /// Time without requests before the last Pod is removed, from 1s to 24h; used with minReplicas 0. Default: 5m.
    #[schemars(transform = Period::between("1s", "24h", "5m or 1h30m"))]
    pub scale_to_zero_after: Period,
}

impl Scaling {
    /// Returns the time for which the load must stay low before Pods are removed.
    pub fn stable_window(&self) -> Duration {
        self.stable_window.length_or(|| Self::default().stable_window)
    }

    /// Returns the time without requests before the last Pod is removed.
    pub fn scale_to_zero_after(&self) -> Duration {
        self.scale_to_zero_after.length_or(|| Self::default().scale_to_zero_after)
    }
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            min_replicas: 1,
            max_replicas: 10,
            concurrency: 8,
            stable_window: "60s".into(),
            scale_to_zero_after: "5m".into(),
        }
    }
}

/// Sidecar of the Pods of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Proxy {
    /// Adds the sidecar to the Pods. Without it there is no cap, no draining and no scaling. Default: true.
    pub enabled: bool,
    /// Most requests that one Pod takes at a time, 0 to 100000; 0 means no cap. While scaling is set,
    /// scaling.concurrency is used instead. Default: 0.
    #[schemars(range(min = 0, max = 100000))]
    pub concurrency: i32,
    /// Answers 401 to all requests that no gateway vouches for. Tools then reach the workload through the gateway
    /// only, and not by agentRef or flowRef. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub require_identity: bool,
}

impl Default for Proxy {
    fn default() -> Self {
        Self { enabled: true, concurrency: 0, require_identity: false }
    }
}

/// Paths that the gateway forwards without authentication.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expose {
    /// Paths of the workload that need no authentication, each beginning with '/': exactly this path, or with '/*' at
    /// the end all paths below it, such as /.well-known/agent-card.json or /oauth/*. '/*' alone is every path, '/'
    /// included, and the only one that opens WebSockets. At most 32.
    #[schemars(
        length(max = 32),
        extend("x-kubernetes-list-type" = "set", "items" = {
            "type": "string",
            "maxLength": 1024,
            "x-kubernetes-validations": [
                { "rule": "self.startsWith('/')", "message": "must begin with '/', such as /public or /public/*" },
                {
                    "rule": "self.matches('^[^*?#]*(/[*])?$')",
                    "message": "is a path, exactly or with '/*' at its end: use no other '*', and no '?' or '#'",
                },
            ],
        })
    )]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anonymous_paths: Vec<String>,
}

impl Expose {
    fn is_empty(&self) -> bool {
        self.anonymous_paths.is_empty()
    }
}
