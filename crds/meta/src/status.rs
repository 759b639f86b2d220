//! Holds what the state machine needs in the status of every kind: [`CommonStatus`]. The kinds add their own fields.
//!
//! Any field may be missing: a status written by another build must not make its object unreadable.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time},
    jiff::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::schema;

/// The part of a status that the state machine owns, the same for every kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonStatus {
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
    #[schemars(schema_with = "schema::conditions")]
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
    /// Conditions that are stored in other words than ours, see [`CommonStatus::keep_verbatim`]. Not part of the API.
    #[serde(skip)]
    pub raw_conditions: Vec<Value>,
}

impl CommonStatus {
    /// The status that the schema gives to a new object: Pending from the moment it is stored, as a Pod is, and in progress for
    /// kstatus, also while no operator runs. The time is no time: 1970, as in the Gateway API; the first write dates it.
    pub fn initial() -> Value {
        let condition = |(type_, status): (&str, &str)| {
            json!({
                "type": type_, "status": status, "reason": "Pending", "message": "",
                "lastTransitionTime": UNSET_TIME.to_string(),
            })
        };
        let said = [("Ready", "False"), ("Reconciling", "True"), ("Stalled", "False"), ("Available", "False")];
        json!({ "phase": FIRST_PHASE, "conditions": said.map(condition) })
    }

    /// Whether no operator has written this status: there is none, or the one that the schema gives.
    pub fn is_initial(&self) -> bool {
        let new = self.phase.as_deref().is_none_or(|phase| phase == FIRST_PHASE);
        let written = self.observed_generation.is_some() || self.spec_digest.is_some() || !self.history.is_empty();
        new && !written
    }

    /// The phase that an operator wrote; `None` while none has.
    pub fn written_phase(&self) -> Option<&str> {
        self.phase.as_deref().filter(|_| !self.is_initial())
    }
}

/// The phase of every new object, whatever its kind: [`Phase::FIRST`](crate::Phase::FIRST) of each life cycle has this name.
pub const FIRST_PHASE: &str = "Pending";

/// The time of a condition that nobody has dated.
pub const UNSET_TIME: Timestamp = Timestamp::UNIX_EPOCH;

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
    MicroTime(UNSET_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_seen_once_an_operator_has_written_it() {
        let with = |field: &str, value: Value| {
            let mut status = CommonStatus::initial();
            status[field] = value;
            status
        };
        let is_unseen = |status: &Value| CommonStatus::deserialize(status).unwrap().is_initial();
        let strangers = json!([{ "type": "Audited", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        for unseen in [
            json!({}),
            json!({ "phase": "Pending" }),
            CommonStatus::initial(),
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
