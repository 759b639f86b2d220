//! Status fields that the life cycles add to [`CommonStatus`].
//!
//! Any field may be missing: a status written by another version must not make its object unreadable.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use meta::{CommonStatus, Phase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{WorkloadPhase, reason};

/// Reasons of failures that end as soon as the Pods are ready.
pub const ENDED_BY_READY_PODS: &[&str] =
    &[reason::UNHEALTHY, reason::PROGRESS_DEADLINE_EXCEEDED, reason::REPLICA_FAILURE];

/// Reports whether the object is Failed for a reason that a ready Pod ends, so that a Pod is worth keeping.
pub fn is_ended_by_ready_pods(status: &CommonStatus) -> bool {
    let failed = status.phase.as_deref() == Some(WorkloadPhase::Failed.as_str());
    let reason = status.failure.as_ref().map(|failure| failure.reason.as_str());
    failed && reason.is_some_and(|reason| ENDED_BY_READY_PODS.contains(&reason))
}

/// Record of a child object as of its last apply: the baseline for the detection of drift.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChildRecord {
    /// Kind of the child, such as Deployment.
    pub kind: String,
    /// Name of the child, in the namespace of its owner.
    pub name: String,
    /// UID of the child; every later apply is bound to it.
    pub uid: String,
    /// Digest of the inputs of the last apply.
    pub inputs: String,
    /// SHA-256 (hex) of the operator's entry in managedFields, as the last apply left it.
    pub owned: String,
    /// Replicas in the spec of the owner at the last apply, for a Deployment. Another number in the spec is an edit, by
    /// which the operator takes the number back from any other writer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// Observed state of a workload, as the operator last wrote it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Status fields of every kind.
    #[serde(flatten)]
    pub machine: CommonStatus,
    /// Number of ready Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Number of Pods, ready or not, as the scale subresource reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_replicas: Option<i32>,
    /// Number of Pods that the load requires, written by the scaler while spec.scaling is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_replicas: Option<i32>,
    /// Time of the last answer through the gateway, which writes it at most every ten seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_invocation_at: Option<Time>,
    /// Model of an Agent or Flow as last rendered, as provider/model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Prices by which costPerDay counts, for each million tokens in millionths of the currency, written by the scaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<String>,
    /// True if calls of a tool of an Agent, as last rendered, wait for a person. Gateways then review who may approve them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approvals: bool,
    /// Address of the workload inside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Label selector of the Pods, as text; set from phase Deploying on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// SHA-256 (hex) of the rendered configuration; a change rolls the Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<String>,
    /// Images that the operator chose when the Pods were last rendered, by container. An upgrade of the operator alone
    /// restarts no Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, String>,
    /// SHA-256 (hex) of the Pod template without those images. They are renewed when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Public keys of the gateways that the Pods were last given, base64url. A rotation of the keys alone restarts no
    /// Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_keys: Option<String>,
    /// Variables of OpenTelemetry that the Pods were last given. A change of those of the operator alone restarts no Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub telemetry: BTreeMap<String, String>,
    /// True if the sidecars of the Pods report their readiness to gateways themselves. Pods of older templates do not,
    /// and a request to a workload at zero waits for the kubelet's probes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tells_ready: bool,
    /// True if the workload's container declares the port of the sidecar, by whose name the Service finds it: before
    /// Kubernetes 1.33 Services do not see the ports of sidecars. Pods of older templates declare it at the sidecar.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declares_port: bool,
    /// Child objects, as last applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildRecord>,
}

/// Observed state of an object that others refer to, as the operator last wrote it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceStatus {
    /// Status fields of every kind.
    #[serde(flatten)]
    pub machine: CommonStatus,
}
