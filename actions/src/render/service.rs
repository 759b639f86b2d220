//! Renders the Service of a workload, and its address.
//!
//! Its target is the container port *named* `http`, whatever its number: the sidecar's, or in a Pod without a sidecar the
//! workload's. So Pods with and without a sidecar serve side by side.

use kube::{Resource, ResourceExt};
use serde_json::json;

use super::{
    RenderSettings,
    labels::{child, selector_labels},
    sidecar::SERVICE_PORT,
};
use crate::ports::{ChildKind, ChildManifest};

/// Port of every agent's Service.
pub const AGENT_PORT: i32 = 8000;

/// Type and port of a workload's Service.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkloadPort<'a> {
    /// `ClusterIP`, `NodePort` or `LoadBalancer`.
    pub(super) type_: &'a str,
    /// Port of the Service.
    pub(super) number: i32,
}

/// Returns the address of a workload inside the cluster, whose Service has this port.
pub fn endpoint<K: Resource<DynamicType = ()>>(owner: &K, port: i32, settings: &RenderSettings) -> String {
    endpoint_of(&owner.namespace().unwrap_or_default(), &owner.name_any(), port, settings)
}

/// Returns the address inside the cluster of the workload of this name, whose Service has this port.
pub fn endpoint_of(namespace: &str, name: &str, port: i32, settings: &RenderSettings) -> String {
    format!("http://{name}.{namespace}.svc.{}:{port}", settings.cluster_domain)
}

/// Renders the Service of `owner`, whose kind is named by the label `label`.
pub(super) fn service<K: Resource<DynamicType = ()>>(owner: &K, label: &str, port: &WorkloadPort<'_>) -> ChildManifest {
    let name = owner.name_any();
    let spec = json!({
        "type": port.type_,
        "selector": selector_labels(label, &name),
        "ports": [{ "name": "http", "port": port.number, "targetPort": SERVICE_PORT }],
    });
    child(owner, label, ChildKind::Service, name, json!({ "spec": spec }))
}
