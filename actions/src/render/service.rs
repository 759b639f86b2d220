//! The Service of an agent, and the address it gives.
//!
//! Its port is always 8000, whatever the container listens on: it leads to the container port *named* `http`.

use crds::Agent;
use kube::ResourceExt;
use serde_json::json;

use super::{
    Settings,
    labels::{AGENT_LABEL, child, selector_labels},
};
use crate::ports::{ChildKind, Manifest};

/// Port of every agent's Service.
const PORT: i32 = 8000;

/// Where `agent` is reached inside the cluster.
pub fn endpoint(agent: &Agent, settings: &Settings) -> String {
    let namespace = agent.namespace().unwrap_or_default();
    format!("http://{}.{namespace}.svc.{}:{PORT}", agent.name_any(), settings.cluster_domain)
}

/// The Service of `agent`.
pub(super) fn service(agent: &Agent) -> Manifest {
    let name = agent.name_any();
    let spec = json!({
        "type": "ClusterIP",
        "selector": selector_labels(AGENT_LABEL, &name),
        "ports": [{ "name": "http", "port": PORT, "targetPort": "http" }],
    });
    child(agent, AGENT_LABEL, ChildKind::Service, name, json!({ "spec": spec }))
}
