//! How requests reach a workload: the fields that Agent, Flow and FlowSet share.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Period, schema};

/// The port of the sidecar in every Pod that has one.
pub const PROXY_PORT: i32 = 8888;
/// Where the sidecar tells a gateway whether its Pod can serve, before the kubelet says so.
pub const READY_PATH: &str = "/_recif/ready";

/// What is said of a workload's traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Lets the number of Pods follow the load. With it, replicas is not used, except for 0, which always stops them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// The sidecar that every Pod gets: it caps what is in flight, drains a Pod that goes, and tells the load.
    #[serde(default)]
    pub proxy: Proxy,
    /// How long an answer may take to begin, from 1s to 1h, such as 90s or 5m; a stream may last longer. Default: 60s.
    #[schemars(schema_with = "schema::timeout")]
    #[serde(default = "timeout")]
    pub timeout: Period,
    /// How long requests in flight may take to end when a Pod goes, at most 1h. Default: 25s.
    #[schemars(schema_with = "schema::drain_timeout")]
    #[serde(default = "drain_timeout")]
    pub drain_timeout: Period,
    /// What the gateway lets through without asking who calls.
    #[serde(default, skip_serializing_if = "Expose::is_empty")]
    pub expose: Expose,
}

impl Traffic {
    /// How long an answer may take to begin.
    pub fn timeout(&self) -> Duration {
        self.timeout.length().unwrap_or(Duration::from_secs(60))
    }

    /// How long requests in flight may take to end when a Pod goes.
    pub fn drain_timeout(&self) -> Duration {
        self.drain_timeout.length().unwrap_or(Duration::from_secs(25))
    }

    /// Requests that one Pod takes at a time; 0: without a cap.
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

/// How the number of Pods follows the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::scaling_rules)]
pub struct Scaling {
    /// Fewest Pods, 0 to 10. 0 lets the last one go when nobody calls; the next request waits for it. Default: 1.
    #[schemars(range(min = 0, max = 10))]
    #[serde(default = "min_replicas")]
    pub min_replicas: i32,
    /// Most Pods, 1 to 10 and not below minReplicas. Default: 10.
    #[schemars(range(min = 1, max = 10))]
    #[serde(default = "max_replicas")]
    pub max_replicas: i32,
    /// Requests that one Pod takes at a time, at least 1: the cap, and what the load is divided by. Default: 8.
    #[schemars(range(min = 1, max = 100000))]
    #[serde(default = "concurrency")]
    pub concurrency: i32,
    /// How long the load must stay low before Pods go, from 1s to 1h. Default: 60s.
    #[schemars(schema_with = "schema::stable_window")]
    #[serde(default = "stable_window")]
    pub stable_window: Period,
    /// How long nobody may have called before the last Pod goes, from 1s to 24h; used with minReplicas 0. Default: 5m.
    #[schemars(schema_with = "schema::scale_to_zero_after")]
    #[serde(default = "scale_to_zero_after")]
    pub scale_to_zero_after: Period,
}

impl Scaling {
    /// How long the load must stay low before Pods go.
    pub fn stable_window(&self) -> Duration {
        self.stable_window.length().unwrap_or(Duration::from_secs(60))
    }

    /// How long nobody may have called before the last Pod goes.
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

/// The sidecar of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proxy {
    /// Whether Pods get it. Without it there is no cap, no draining and no scaling. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Requests that one Pod takes at a time, 0 for no cap; scaling.concurrency is used instead where scaling is set.
    /// Default: 0.
    #[schemars(range(min = 0, max = 100000))]
    #[serde(default)]
    pub concurrency: i32,
    /// Whether only requests that a gateway vouches for are answered, others with 401: then tools reach the workload by the
    /// gateway alone, and not by agentRef or flowRef. Default: false.
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

/// What the gateway lets through without asking who calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expose {
    /// Paths below the workload's own, each beginning with '/': exactly this one, or with '/*' at the end all below it, such
    /// as /.well-known/agent-card.json or /oauth/*. '/*' alone is every path, '/' included, and the only one that opens
    /// WebSockets.
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
