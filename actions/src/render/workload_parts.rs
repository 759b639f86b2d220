//! Holds what a kind says of how its objects run.

use k8s_openapi::api::core::v1::LocalObjectReference;
use serde_json::Value;

use super::{container::Container, service::WorkloadPort, sidecar::Sidecar};

/// What a kind says of how its objects run.
#[derive(Debug)]
pub(super) struct WorkloadParts<'a> {
    /// The kind in lower case, which is also the name of the container.
    pub(super) kind: &'static str,
    /// The label that names the object on its children.
    pub(super) label: &'static str,
    /// The object's name.
    pub(super) name: String,
    /// Its container.
    pub(super) container: Container<'a>,
    /// Containers that end before it starts.
    pub(super) init_containers: Vec<Value>,
    /// Its Service.
    pub(super) port: WorkloadPort<'a>,
    /// What stands in front of the container, unless it was refused.
    pub(super) sidecar: Option<Sidecar<'a>>,
    /// The ServiceAccount of the spec, if it names one.
    pub(super) service_account_name: Option<&'a str>,
    /// As in a Pod.
    pub(super) image_pull_secrets: &'a [LocalObjectReference],
    /// The annotation of the Pod template that holds the content hash, and the hash: a new one rolls the Pods.
    pub(super) hash: (&'static str, &'a str),
    /// When somebody last asked for a rollout.
    pub(super) rollout_at: Option<&'a str>,
    /// The user's overlay on the Pod template.
    pub(super) pod_template: Option<&'a Value>,
    /// Variables of the container that come from us, which the overlay may not set.
    pub(super) reserved: &'a dyn ReservedNames,
}

/// Which variables of the container are ours.
pub(super) trait ReservedNames: std::fmt::Debug {
    /// Whether this one is.
    fn is_reserved(&self, name: &str) -> bool;
}
