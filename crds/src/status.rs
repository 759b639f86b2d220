//! What the statuses hold. [`MachineStatus`] is what the state machine needs of every kind; the kinds add their own.
//!
//! Any field may be missing: a status written by another build must not make its object unreadable.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Phase, WorkloadPhase};

/// The part of a status that the state machine owns, the same for every kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Where the object is in its life cycle: Pending, Resolving, then Available or Error for what others refer to, and
    /// Rendering, Deploying, Running, Failed, Terminated, Terminating for what runs Pods.
    // Kept as text, so that a phase written by a newer build survives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The contract for machines: Ready, Reconciling, Stalled, Available and, for workloads, ReferencesResolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// SHA-256 (hex) of the spec that was admitted, without what only moves the replica count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<String>,
    /// The version of the rendering that was admitted; a newer operator that renders differently starts over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub render_version: Option<i64>,
    /// What was resolved: reference (Tool/weather) to the digest of what was read from it. Absent: not yet resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<BTreeMap<String, String>>,
    /// Why the object failed or is retried; absent while all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The last 20 status writes that said something new, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// The operator that wrote this status last, as namespace and name of its lease: two that write the same object spare each
    /// other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Conditions that are stored in other words than ours, see [`MachineStatus::keep_verbatim`]. Not part of the API.
    #[serde(skip)]
    pub verbatim: Vec<Value>,
}

impl MachineStatus {
    /// The status that the schema gives to a new object: Pending from the moment it is stored, as a Pod is, and in progress for
    /// kstatus, also while no operator runs. The time is no time: 1970, as in the Gateway API; the first write dates it.
    pub fn unseen() -> Value {
        let condition = |(type_, status): (&str, &str)| {
            json!({
                "type": type_, "status": status, "reason": "Pending", "message": "",
                "lastTransitionTime": UNDATED.to_string(),
            })
        };
        let said = [("Ready", "False"), ("Reconciling", "True"), ("Stalled", "False"), ("Available", "False")];
        json!({ "phase": WorkloadPhase::FIRST.as_str(), "conditions": said.map(condition) })
    }

    /// Whether no operator has written this status: there is none, or the one that the schema gives.
    pub fn is_unseen(&self) -> bool {
        let new = self.phase.as_deref().is_none_or(|phase| phase == WorkloadPhase::FIRST.as_str());
        let written = self.observed_generation.is_some() || self.spec_digest.is_some() || !self.history.is_empty();
        new && !written
    }

    /// Whether the object is Failed for a reason that a ready Pod ends, so that a Pod is worth keeping.
    pub fn is_ended_by_ready_pods(&self) -> bool {
        let failed = self.phase.as_deref() == Some(WorkloadPhase::Failed.as_str());
        let reason = self.failure.as_ref().map(|failure| failure.reason.as_str());
        failed && reason.is_some_and(|reason| ENDED_BY_READY_PODS.contains(&reason))
    }

    /// The phase that an operator wrote; `None` while none has.
    pub fn seen_phase(&self) -> Option<&str> {
        self.phase.as_deref().filter(|_| !self.is_unseen())
    }
}

/// Reasons of a failure that is over as soon as the Pods are ready.
pub const ENDED_BY_READY_PODS: &[&str] = &["Unhealthy", "ProgressDeadlineExceeded", "ReplicaFailure"];

/// The time of a condition that nobody has dated.
pub const UNDATED: Timestamp = Timestamp::UNIX_EPOCH;

/// A failure, or a retry on the way to one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Failure {
    /// A CamelCase word for machines, such as ImagePull.
    pub reason: String,
    /// The phase in which it happened.
    pub during: String,
    /// Whether time alone may mend it.
    pub retryable: bool,
    /// How many attempts were counted against the limit of 8.
    pub attempts: i32,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
}

/// One status write that said something new: a move, or a wait or retry (from = to).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// Grows by one with each entry of this object, never reused.
    #[serde(default)]
    pub seq: i64,
    /// When it was decided, in microseconds. Of the first entry, which is the object's creation, the API server knows the
    /// second; so did older builds of every entry.
    #[serde(default = "epoch")]
    pub at: MicroTime,
    /// The phase before; empty for the first entry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// The phase after.
    #[serde(default)]
    pub to: String,
    /// The action or rule that decided.
    #[serde(default)]
    pub action: String,
    /// Why, as one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// How long the step took, in milliseconds.
    #[serde(default)]
    pub took_ms: i64,
    /// Joins this entry with the operator's phase-trace line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
}

fn epoch() -> MicroTime {
    MicroTime(UNDATED)
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
    pub machine: MachineStatus,
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
    pub machine: MachineStatus,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_seen_once_an_operator_has_written_it() {
        let with = |field: &str, value: Value| {
            let mut status = MachineStatus::unseen();
            status[field] = value;
            status
        };
        let is_unseen = |status: &Value| MachineStatus::deserialize(status).unwrap().is_unseen();
        let strangers = json!([{ "type": "Audited", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        for unseen in [
            json!({}),
            json!({ "phase": "Pending" }),
            MachineStatus::unseen(),
            with("conditions", strangers),
            with("lastInvocationAt", json!("2026-01-01T00:00:00Z")),
        ] {
            assert!(is_unseen(&unseen), "{unseen}");
        }
        for seen in [
            with("phase", json!("Running")),
            with("observedGeneration", json!(1)),
            with("specDigest", json!("d")),
            with("history", json!([{ "seq": 1 }])),
        ] {
            assert!(!is_unseen(&seen), "{seen}");
        }
    }
}
