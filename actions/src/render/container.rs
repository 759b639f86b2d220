//! Holds what a kind says of its container, and how the kubelet looks at it.

use serde_json::{Map, Value, json};

/// The container of a workload, as far as its kind decides it.
#[derive(Debug, Clone)]
pub(super) struct Container<'a> {
    pub(super) image: &'a str,
    /// `None`: by the image's name.
    pub(super) pull_policy: Option<&'a str>,
    /// The program, instead of the image's; empty: the image's.
    pub(super) command: Vec<String>,
    /// Its arguments.
    pub(super) args: Vec<String>,
    pub(super) port: i32,
    /// How it is asked whether it lives and whether it can serve.
    pub(super) probes: Probes,
    /// Variables as in a Pod: ours, then the user's.
    pub(super) env: Vec<Value>,
    /// Sources as in a Pod: of two that have one variable the later one wins.
    pub(super) env_from: Vec<Value>,
    /// As in a Pod; null: none.
    pub(super) resources: Value,
    /// Volumes as in a Pod, each with where it is mounted.
    pub(super) volumes: Vec<(Value, &'static str)>,
}

/// How a container is asked how it is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Probes {
    /// By paths.
    Http { live: &'static str, ready: &'static str },
    /// By whether it takes connections: nothing more is known of it.
    Tcp,
}

impl Probes {
    /// Of a workload that answers at `/healthz`, and at `ready` when it can serve.
    pub(super) fn healthz(ready: &'static str) -> Self {
        Self::Http { live: "/healthz", ready }
    }

    /// Whether the container has started, asked at the port of this name.
    pub(super) fn startup(self, port: &str) -> Value {
        self.probe(|live, _| live, port, json!({ "periodSeconds": 1, "failureThreshold": 360 }))
    }

    pub(super) fn liveness(self, port: &str) -> Value {
        self.probe(|live, _| live, port, json!({ "initialDelaySeconds": 5, "periodSeconds": 10 }))
    }

    /// Whether it can serve.
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

/// When an image is pulled, by its name: without a registry it was loaded into the node, for nowhere could it be pulled from.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if image.contains('/') { "IfNotPresent" } else { "Never" }
}
