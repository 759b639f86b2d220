//! Builds sample objects for the tests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ObjectId;
use crate::render::{Namespaces, PodSecurity, RenderSettings};

/// Namespace of all tests.
pub(crate) const NS: &str = "team";

/// Returns the operator's settings.
pub(crate) fn settings() -> RenderSettings {
    RenderSettings {
        operator_namespace: "recif-system".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        database_url: None,
        database_namespaces: Namespaces::All,
        ollama_base_url: None,
        agent_image: String::new(),
        runner_image: "recif.local/runner:1".to_owned(),
        proxy_image: "recif.local/proxy:1".to_owned(),
        telemetry: BTreeMap::new(),
        network_policies: false,
        cluster_cidrs: Vec::new(),
        pod_security: PodSecurity::Baseline,
    }
}

pub(crate) fn agent_id(name: &str) -> ObjectId {
    id("Agent", name)
}

pub(crate) fn tool_id(name: &str) -> ObjectId {
    id("Tool", name)
}

/// Returns the id of a child of the Agent `a`, or of any other object.
pub(crate) fn child_id(kind: &'static str) -> ObjectId {
    id(kind, if matches!(kind, "ConfigMap" | "Secret") { "a-config" } else { "a" })
}

/// Builds an Agent with these fields in its spec besides the required ones.
pub(crate) fn agent(more: Value) -> Value {
    let mut spec = json!({"name": "A", "framework": "corail", "replicas": 1});
    merge(&mut spec, more);
    json!({"apiVersion": "agents.recif.dev/v1", "kind": "Agent", "metadata": {}, "spec": spec})
}

/// Builds an http Tool that calls this address; without one it is invalid.
pub(crate) fn tool(endpoint: &str) -> Value {
    let spec = json!({"name": "weather", "type": "http", "endpoint": endpoint});
    json!({"apiVersion": "agents.recif.dev/v1", "kind": "Tool", "metadata": {}, "spec": spec})
}

/// Returns the id of an object in the namespace of all tests.
pub(crate) fn id(kind: &'static str, name: &str) -> ObjectId {
    ObjectId { kind, namespace: NS.to_owned(), name: name.to_owned() }
}

/// Builds an object of one of Récif's kinds.
pub(crate) fn object(kind: &str, spec: Value) -> Value {
    json!({"apiVersion": "agents.recif.dev/v1", "kind": kind, "metadata": {}, "spec": spec})
}

/// Builds a Secret with these values.
pub(crate) fn secret(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": data})
}

fn merge(into: &mut Value, from: Value) {
    let Value::Object(from) = from else { return };
    for (key, value) in from {
        into[key] = value;
    }
}
