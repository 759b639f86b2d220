//! Holds what the statuses of the kinds add to [`CommonStatus`], by life cycle.
//!
//! Any field may be missing: a status written by another build must not make its object unreadable.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use meta::{CommonStatus, Phase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::WorkloadPhase;

/// Reasons of a failure that is over as soon as the Pods are ready.
pub const ENDED_BY_READY_PODS: &[&str] = &["Unhealthy", "ProgressDeadlineExceeded", "ReplicaFailure"];

/// Returns whether the object is Failed for a reason that a ready Pod ends, so that a Pod is worth keeping.
pub fn is_ended_by_ready_pods(status: &CommonStatus) -> bool {
    let failed = status.phase.as_deref() == Some(WorkloadPhase::Failed.as_str());
    let reason = status.failure.as_ref().map(|failure| failure.reason.as_str());
    failed && reason.is_some_and(|reason| ENDED_BY_READY_PODS.contains(&reason))
}

/// A child as it was when it was last applied: the baseline against which drift is judged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChildRecord {
    /// Kind of the child, such as Deployment.
    pub kind: String,
    /// Name of the child, in the namespace of its owner.
    pub name: String,
    /// Its uid; every later apply is bound to it.
    pub uid: String,
    /// Digest of what the apply was made from.
    pub inputs: String,
    /// SHA-256 (hex) of our field manager's entry in managedFields, as the apply left it.
    pub owned: String,
    /// Of a Deployment: the replicas of its owner's spec at that time. Another number there is an edit, by which the number is
    /// taken back from whoever else sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// What the operator last saw and did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// What the state machine keeps.
    #[serde(flatten)]
    pub machine: CommonStatus,
    /// Ready Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Pods, ready or not; what the scale subresource reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,
    /// Pods that the load asks for: the scaler's, while spec.scaling is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// When the gateway last had an answer of it: the gateway's, at most every ten seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_invocation_at: Option<Time>,
    /// The model of an Agent or Flow when it was last rendered, as provider/model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Where the workload is reached inside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Label selector of the Pods, as text; set from Deploying on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// SHA-256 (hex) of the rendered configuration; a change rolls the Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<String>,
    /// The images that came from the operator when the Pods were last rendered, by container: an upgrade of the operator
    /// alone restarts nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
    /// SHA-256 (hex) of the Pod template without those images: when it changes, they are renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The public keys of the gateways that the Pods were last given, base64url: a rotation of the keys alone restarts nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_keys: Option<String>,
    /// Whether the sidecars of the Pods tell gateways themselves that they are ready, without which a request to a workload at
    /// zero waits for the kubelet's probes: Pods of older templates do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tells_ready: bool,
    /// The children as last applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildRecord>,
}

/// What the operator last saw and did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceStatus {
    /// What the state machine keeps.
    #[serde(flatten)]
    pub machine: CommonStatus,
}
