//! Describes a workload for the rendering of its Service and Deployment.

use k8s_openapi::api::core::v1::LocalObjectReference;
use serde_json::Value;

use super::{container::Container, service::WorkloadPort, sidecar::Sidecar};

/// Parameters of a workload's Service and Deployment.
#[derive(Debug)]
pub(super) struct WorkloadParts<'a> {
    /// Kind in lower case, which is also the name of the container.
    pub(super) kind: &'static str,
    /// Label that names the object on its children.
    pub(super) label: &'static str,
    /// Name of the object.
    pub(super) name: String,
    /// Container of the workload.
    pub(super) container: Container<'a>,
    /// Init containers that end before the container starts.
    pub(super) init_containers: Vec<Value>,
    /// Port of the Service.
    pub(super) port: WorkloadPort<'a>,
    /// Sidecar in front of the container, unless the spec disables it.
    pub(super) sidecar: Option<Sidecar<'a>>,
    /// ServiceAccount of the spec, if it names one.
    pub(super) service_account_name: Option<&'a str>,
    /// Image pull secrets, as in a Pod.
    pub(super) image_pull_secrets: &'a [LocalObjectReference],
    /// Annotation of the Pod template that holds the content hash, and the hash: a new one replaces the Pods.
    pub(super) hash: (&'static str, &'a str),
    /// Time of the last rollout that a user requested.
    pub(super) rollout_at: Option<&'a str>,
    /// The user's overlay on the Pod template.
    pub(super) pod_template: Option<&'a Value>,
    /// Variables of the container that come from the operator, which the overlay may not set.
    pub(super) reserved: &'a dyn ReservedNames,
}

/// Variables of the container that come from the operator.
pub(super) trait ReservedNames: std::fmt::Debug {
    /// Reports whether the variable comes from the operator.
    fn is_reserved(&self, name: &str) -> bool;
}
