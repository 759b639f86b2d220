//! Describes the container of a workload, and the probes by which the kubelet checks it.

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
    /// Probes of liveness and readiness.
    pub(super) probes: Probes,
    /// Entries of `env`: the operator's, then the user's.
    pub(super) env: Vec<Value>,
    /// Entries of `envFrom`: of two sources with one variable the later one wins.
    pub(super) env_from: Vec<Value>,
    /// Resources as in a Pod; null: none.
    pub(super) resources: Value,
    /// Volumes as in a Pod, each with its mount path.
    pub(super) volumes: Vec<(Value, &'static str)>,
}

/// Handlers of a container's probes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Probes {
    /// HTTP GET of these paths.
    Http { live: &'static str, ready: &'static str },
    /// TCP connect: the server is not known to have a path for probes.
    Tcp,
}

impl Probes {
    /// Returns the probes of a workload that answers at `/healthz` while it lives, and at `ready` when it can serve.
    pub(super) fn healthz(ready: &'static str) -> Self {
        Self::Http { live: "/healthz", ready }
    }

    /// Returns the startup probe, at the port of this name.
    pub(super) fn startup(self, port: &str) -> Value {
        self.probe(|live, _| live, port, json!({ "periodSeconds": 1, "failureThreshold": 360 }))
    }

    pub(super) fn liveness(self, port: &str) -> Value {
        self.probe(|live, _| live, port, json!({ "initialDelaySeconds": 5, "periodSeconds": 10 }))
    }

    /// Returns the readiness probe.
    pub(super) fn readiness(self, port: &str) -> Value {
        self.probe(|_, ready| ready, port, json!({ "initialDelaySeconds": 3, "periodSeconds": 5 }))
    }

    pub(super) fn probe(
        self,
        which: impl Fn(&'static str, &'static str) -> &'static str,
        port: &str,
        timing: Value,
    ) -> Value {
        let mut probe = Map::new();
        match self {
            Self::Http { live, ready } => {
                probe.insert("httpGet".to_owned(), json!({ "path": which(live, ready), "port": port }))
            }
            Self::Tcp => probe.insert("tcpSocket".to_owned(), json!({ "port": port })),
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
