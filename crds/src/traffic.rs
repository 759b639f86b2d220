//! Traffic settings of a workload: the fields that Agent, Flow and FlowSet share.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Period, schema};

/// Port of the sidecar in every Pod that has one.
pub const PROXY_PORT: i32 = 8888;
/// Path at which the sidecar reports to a gateway whether its Pod can serve, before the kubelet does.
pub const READY_PATH: &str = "/_recif/ready";

/// Traffic settings of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Autoscaling of the Pods by load. While it is set, replicas is ignored, except for 0, which always stops the
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// Sidecar of every Pod: it caps the requests in flight, drains a Pod that terminates, and reports the load.
    #[serde(default)]
    pub proxy: Proxy,
    /// Longest time until an answer begins, from 1s to 1h, such as 90s or 5m; a stream may last longer. Default: 60s.
    #[schemars(schema_with = "schema::timeout")]
    #[serde(default = "timeout")]
    pub timeout: Period,
    /// Longest time for requests in flight to end when a Pod terminates, from 0s to 1h. Default: 25s.
    #[schemars(schema_with = "schema::drain_timeout")]
    #[serde(default = "drain_timeout")]
    pub drain_timeout: Period,
    /// Paths that the gateway forwards without authentication.
    #[serde(default, skip_serializing_if = "Expose::is_empty")]
    pub expose: Expose,
}

impl Traffic {
    /// Returns the longest time until an answer begins.
    pub fn timeout(&self) -> Duration {
        self.timeout.length().unwrap_or(Duration::from_secs(60))
    }

    /// Returns the longest time for requests in flight to end when a Pod terminates.
    pub fn drain_timeout(&self) -> Duration {
        self.drain_timeout.length().unwrap_or(Duration::from_secs(25))
    }

    /// Returns the most requests that one Pod takes at a time; 0 means no cap.
    pub fn concurrency(&self) -> i32 {
        self.scaling.as_ref().map_or(self.proxy.concurrency, |scaling| scaling.concurrency)
    }
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            scaling: None,
            proxy: Proxy::default(),
            timeout: timeout(),
            drain_timeout: drain_timeout(),
            expose: Expose::default(),
        }
    }
}

/// Autoscaling of the Pods by load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::scaling_rules)]
pub struct Scaling {
    /// Fewest Pods, 0 to 10. With 0 the last Pod is removed while no requests come, and the next request waits for a
    /// new one. Default: 1.
    #[schemars(range(min = 0, max = 10))]
    #[serde(default = "min_replicas")]
    pub min_replicas: i32,
    /// Most Pods, 1 to 10 and not below minReplicas. Default: 10.
    #[schemars(range(min = 1, max = 10))]
    #[serde(default = "max_replicas")]
    pub max_replicas: i32,
    /// Most requests that one Pod takes at a time, 1 to 100000: the cap, and the divisor of the load. Default: 8.
    #[schemars(range(min = 1, max = 100000))]
    #[serde(default = "concurrency")]
    pub concurrency: i32,
    /// Time for which the load must stay low before Pods are removed, from 1s to 1h. Default: 60s.
    #[schemars(schema_with = "schema::stable_window")]
    #[serde(default = "stable_window")]
    pub stable_window: Period,
    /// Time without requests before the last Pod is removed, from 1s to 24h; used with minReplicas 0. Default: 5m.
    #[schemars(schema_with = "schema::scale_to_zero_after")]
    #[serde(default = "scale_to_zero_after")]
    pub scale_to_zero_after: Period,
}

impl Scaling {
    /// Returns the time for which the load must stay low before Pods are removed.
    pub fn stable_window(&self) -> Duration {
        self.stable_window.length().unwrap_or(Duration::from_secs(60))
    }

    /// Returns the time without requests before the last Pod is removed.
    pub fn scale_to_zero_after(&self) -> Duration {
        self.scale_to_zero_after.length().unwrap_or(Duration::from_secs(300))
    }
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            min_replicas: min_replicas(),
            max_replicas: max_replicas(),
            concurrency: concurrency(),
            stable_window: stable_window(),
            scale_to_zero_after: scale_to_zero_after(),
        }
    }
}

/// Sidecar of the Pods of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proxy {
    /// Adds the sidecar to the Pods. Without it there is no cap, no draining and no scaling. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Most requests that one Pod takes at a time, 0 to 100000; 0 means no cap. While scaling is set,
    /// scaling.concurrency is used instead. Default: 0.
    #[schemars(range(min = 0, max = 100000))]
    #[serde(default)]
    pub concurrency: i32,
    /// Answers 401 to all requests that no gateway vouches for. Tools then reach the workload through the gateway
    /// only, and not by agentRef or flowRef. Default: false.
    #[serde(default, rename = "requireIdentity", skip_serializing_if = "is_false")]
    pub require_identity: bool,
}

impl Default for Proxy {
    fn default() -> Self {
        Self { enabled: true, concurrency: 0, require_identity: false }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// Paths that the gateway forwards without authentication.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expose {
    /// Paths of the workload that need no authentication, each beginning with '/': exactly this path, or with '/*' at
    /// the end all paths below it, such as /.well-known/agent-card.json or /oauth/*. '/*' alone is every path, '/'
    /// included, and the only one that opens WebSockets. At most 32.
    #[schemars(schema_with = "schema::anonymous_paths")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub anonymous_paths: Vec<String>,
}

impl Expose {
    fn is_empty(&self) -> bool {
        self.anonymous_paths.is_empty()
    }
}

fn timeout() -> Period {
    "60s".into()
}
fn drain_timeout() -> Period {
    "25s".into()
}
fn min_replicas() -> i32 {
    1
}
fn max_replicas() -> i32 {
    10
}
fn concurrency() -> i32 {
    8
}
fn stable_window() -> Period {
    "60s".into()
}
fn scale_to_zero_after() -> Period {
    "5m".into()
}
fn yes() -> bool {
    true
}
