//! The Service of a workload, and the address it gives.
//!
//! It leads to the container port *named* `http`, whatever its number: the sidecar's, or in a Pod without one the
//! workload's. So Pods of both sorts serve side by side.

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

/// The Service's side of a workload.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkloadPort<'a> {
    /// `ClusterIP`, `NodePort` or `LoadBalancer`.
    pub(super) type_: &'a str,
    /// The Service's port.
    pub(super) number: i32,
}

/// Where a workload is reached inside the cluster, its Service having this port.
pub fn endpoint<K: Resource<DynamicType = ()>>(owner: &K, port: i32, settings: &RenderSettings) -> String {
    endpoint_of(&owner.namespace().unwrap_or_default(), &owner.name_any(), port, settings)
}

/// Where the workload of this name is reached inside the cluster, its Service having this port.
pub fn endpoint_of(namespace: &str, name: &str, port: i32, settings: &RenderSettings) -> String {
    format!("http://{name}.{namespace}.svc.{}:{port}", settings.cluster_domain)
}

/// The Service of `owner`, whose kind is named by the label `label`.
pub(super) fn service<K: Resource<DynamicType = ()>>(owner: &K, label: &str, port: &WorkloadPort<'_>) -> ChildManifest {
    let name = owner.name_any();
    let spec = json!({
        "type": port.type_,
        "selector": selector_labels(label, &name),
        "ports": [{ "name": "http", "port": port.number, "targetPort": SERVICE_PORT }],
    });
    child(owner, label, ChildKind::Service, name, json!({ "spec": spec }))
}
