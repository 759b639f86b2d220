//! Describes the container of a workload, and the probes by which the kubelet checks it.

use crds::readiness::Readiness;
use serde_json::{Map, Value, json};

/// Container of a workload, as far as its kind decides it.
#[derive(Debug, Clone)]
pub(super) struct Container<'a> {
    pub(super) image: &'a str,
    /// Pull policy; `None`: derived from the name of the image.
    pub(super) pull_policy: Option<&'a str>,
    /// Program; empty: that of the image.
    pub(super) command: Vec<String>,
    /// Arguments of the program.
    pub(super) args: Vec<String>,
    pub(super) port: i32,
    /// Probes of start, liveness and readiness.
    pub(super) probes: Probes<'a>,
    /// Entries of `env`: the operator's, then the user's.
    pub(super) env: Vec<Value>,
    /// Entries of `envFrom`: of two sources with one variable the later one wins.
    pub(super) env_from: Vec<Value>,
    /// Resources as in a Pod; null: none.
    pub(super) resources: Value,
    /// Volumes as in a Pod, each with its mount path.
    pub(super) volumes: Vec<(Value, &'static str)>,
}

/// Probes of a container: the handler of each, and their port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probes<'a> {
    startup: Handler<'a>,
    liveness: Handler<'a>,
    /// Handler of the readiness probe.
    pub(super) readiness: Handler<'a>,
    /// Port that they go to; `None`: the container's own.
    pub(super) port: Option<i32>,
}

/// Handler of a probe.
#[derive(Debug, Clone, Copy)]
pub(super) enum Handler<'a> {
    /// HTTP GET of this path.
    Http(&'a str),
    /// TCP connect: the server is not known to have a path for probes.
    Tcp,
}

impl<'a> Probes<'a> {
    /// Returns the probes of a server that answers at `live` while it lives, and at `ready` when it can serve.
    pub(super) fn http(live: &'a str, ready: &'a str) -> Self {
        let live = Handler::Http(live);
        Self { startup: live, liveness: live, readiness: Handler::Http(ready), port: None }
    }

    /// Returns the probes of a server that is not known to have a path for probes.
    pub(super) fn tcp() -> Self {
        Self { startup: Handler::Tcp, liveness: Handler::Tcp, readiness: Handler::Tcp, port: None }
    }

    /// Returns these probes, or those of the spec where it sets them, for a container that listens on `port`.
    pub(super) fn or_of(self, readiness: Option<&'a Readiness>, port: i32) -> Self {
        let Some(set) = readiness else { return self };
        let probed = set.path.as_deref().map_or(Handler::Tcp, Handler::Http);
        let port = set.port.filter(|probed| *probed != port);
        Self { startup: probed, liveness: Handler::Tcp, readiness: probed, port }
    }

    /// Returns the startup probe; the container's own port has this name.
    pub(super) fn startup(self, port: &str) -> Value {
        self.probe(self.startup, port, json!({ "periodSeconds": 1, "failureThreshold": 360 }))
    }

    /// Returns the liveness probe.
    pub(super) fn liveness(self, port: &str) -> Value {
        self.probe(self.liveness, port, json!({ "initialDelaySeconds": 5, "periodSeconds": 10 }))
    }

    /// Returns the readiness probe.
    pub(super) fn readiness(self, port: &str) -> Value {
        self.probe(self.readiness, port, json!({ "initialDelaySeconds": 3, "periodSeconds": 5 }))
    }

    fn probe(self, handler: Handler<'_>, port: &str, timing: Value) -> Value {
        let port = self.port.map_or_else(|| json!(port), |number| json!(number));
        let mut probe = Map::new();
        match handler {
            Handler::Http(path) => probe.insert("httpGet".to_owned(), json!({ "path": path, "port": port })),
            Handler::Tcp => probe.insert("tcpSocket".to_owned(), json!({ "port": port })),
        };
        if let Value::Object(timing) = timing {
            probe.extend(timing);
        }
        Value::Object(probe)
    }
}

/// Derives the pull policy from the name of an image: one without a registry was loaded into the node and cannot be pulled.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if image.contains('/') { "IfNotPresent" } else { "Never" }
}
