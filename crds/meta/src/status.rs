//! Common part of the status of every kind: [`CommonStatus`]. The kinds add their own fields.
//!
//! Any field may be missing: a status written by another version must not make its object unreadable.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time},
    jiff::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{condition_type, schema};

/// Status fields of every kind, which the state machine writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonStatus {
    /// Phase of the object's life cycle: Pending, Resolving, then Available or Error for objects that others refer to,
    /// and Rendering, Deploying, Running, Failed, Terminated, Terminating for workloads.
    // Kept as text, so that a phase written by a newer version survives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions for machines: Ready, Reconciling, Stalled, Available and, for workloads, ReferencesResolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// SHA-256 (hex) of the admitted spec, without the fields that only change the number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<String>,
    /// Version of the rendering at admission; a newer operator that renders differently starts over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub render_version: Option<i64>,
    /// Resolved references: each reference (Tool/weather) with the digest of what was read from it. Absent while not
    /// yet resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<BTreeMap<String, String>>,
    /// Failure of the object, or cause of its retry; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Last 20 moves, waits and retries of the object, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// Operator that wrote this status last, as namespace and name of its Lease. By it an operator detects another one
    /// that writes the same object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Conditions whose stored form differs from that of this crate, see [`CommonStatus::retain_raw`]. Not part of the
    /// API.
    #[serde(skip)]
    pub raw_conditions: Vec<Value>,
}

impl CommonStatus {
    /// Returns the status that the schema gives to a new object: Pending from the moment it is stored, as a Pod is, and
    /// in progress for kstatus, also while no operator runs. Its time is a placeholder, 1970, as in the Gateway API;
    /// the first write sets it.
    pub fn initial() -> Value {
        let condition = |(type_, status): (&str, &str)| {
            json!({
                "type": type_, "status": status, "reason": "Pending", "message": "",
                "lastTransitionTime": UNSET_TIME.to_string(),
            })
        };
        let said = [
            (condition_type::READY, "False"),
            (condition_type::RECONCILING, "True"),
            (condition_type::STALLED, "False"),
            (condition_type::AVAILABLE, "False"),
        ];
        json!({ "phase": FIRST_PHASE, "conditions": said.map(condition) })
    }

    /// Reports whether no operator has written this status: it is missing, or the default of the schema.
    pub fn is_initial(&self) -> bool {
        let new = self.phase.as_deref().is_none_or(|phase| phase == FIRST_PHASE);
        let written = self.observed_generation.is_some() || self.spec_digest.is_some() || !self.history.is_empty();
        new && !written
    }

    /// Returns the condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Returns the phase that an operator wrote; `None` while none has.
    pub fn written_phase(&self) -> Option<&str> {
        self.phase.as_deref().filter(|_| !self.is_initial())
    }
}

/// Phase of every new object of any kind: [`Phase::FIRST`](crate::Phase::FIRST) of each life cycle has this name.
pub const FIRST_PHASE: &str = "Pending";

/// Time of a condition that is not dated yet.
pub const UNSET_TIME: Timestamp = Timestamp::UNIX_EPOCH;

/// Failure of an object, or a retry on the way to one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Failure {
    /// Reason as a CamelCase word for machines, such as ImagePull.
    pub reason: String,
    /// Phase in which it happened.
    pub during: String,
    /// True if time alone may repair it.
    pub retryable: bool,
    /// Number of attempts counted against the limit of 8.
    pub attempts: i32,
    /// Time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
}

/// One entry of the history: a move, or a wait or retry (from = to).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// Number of the entry: grows by one with each entry of this object, never reused.
    #[serde(default)]
    pub seq: i64,
    /// Time of the decision, in microseconds. The first entry, the object's creation, has the API server's precision of
    /// a second; so have all entries of older versions.
    #[serde(default = "epoch")]
    pub at: MicroTime,
    /// Phase before; empty for the first entry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// Phase after.
    #[serde(default)]
    pub to: String,
    /// Action or rule that decided.
    #[serde(default)]
    pub action: String,
    /// Reason, as one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Duration of the step, in milliseconds.
    #[serde(default)]
    pub took_ms: i64,
    /// Id that joins this entry with the operator's phase-trace line: that of its span.
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
