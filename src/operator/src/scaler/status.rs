//! Scaler's part of a status: one field and one condition, written by JSON Patch.
//!
//! The rest belongs to the state machine, which leaves these alone. The list of conditions can only be replaced as a whole, so the patch
//! tests that it is as it was read (optimistic concurrency).

use jiff::Timestamp;
use meta::{CommonStatus, condition_type};
use serde::Deserialize;
use serde_json::{Value, json};

/// Scaling part of a workload's status.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScalingStatus {
    /// `desiredReplicas`.
    pub desired: Option<i32>,
    /// The condition `ScalingActive`.
    pub active: Option<ScalingCondition>,
}

/// The condition `ScalingActive`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalingCondition {
    /// True if the number of Pods follows the load.
    pub status: bool,
    /// The reason, a CamelCase word.
    pub reason: String,
    /// The message, one sentence.
    pub message: String,
}

/// Returns the condition `ScalingActive` of a decoded status.
pub(super) fn active(status: &CommonStatus) -> Option<ScalingCondition> {
    let found = status.condition(condition_type::SCALING_ACTIVE)?;
    Some(ScalingCondition {
        status: found.status == "True",
        reason: found.reason.clone(),
        message: found.message.clone(),
    })
}

/// Returns the scaling part of a stored status.
fn scaling_status(status: &Value) -> ScalingStatus {
    let active = condition(status).map(|found| ScalingCondition {
        status: found["status"] == "True",
        reason: found["reason"].as_str().unwrap_or_default().to_owned(),
        message: found["message"].as_str().unwrap_or_default().to_owned(),
    });
    let desired = status["desiredReplicas"].as_i64().and_then(|desired| i32::try_from(desired).ok());
    ScalingStatus { desired, active }
}

/// Returns the JSON Patch that makes the stored status equal to `next`; `None`: it is, or the state machine has not begun the status.
pub(super) fn patch(uid: &str, generation: i64, status: &Value, next: &ScalingStatus, now: Timestamp) -> Option<Value> {
    if status.is_null() || CommonStatus::deserialize(status).is_ok_and(|status| status.is_initial()) {
        return None;
    }
    let before = self::scaling_status(status);
    let mut steps = vec![json!({"op": "test", "path": "/metadata/uid", "value": uid})];
    if let Some(active) = next.active.as_ref().filter(|_| next.active != before.active) {
        let stored = &status["conditions"];
        let mut conditions: Vec<Value> = stored.as_array().cloned().unwrap_or_default();
        let old = condition(status);
        let word = if active.status { "True" } else { "False" };
        // The API server stores whole seconds.
        let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
        let since = old.filter(|old| old["status"] == word).map(|old| old["lastTransitionTime"].clone());
        let new = json!({
            "type": condition_type::SCALING_ACTIVE, "status": word, "reason": active.reason, "message": active.message,
            "lastTransitionTime": since.unwrap_or_else(|| seconds.into()), "observedGeneration": generation,
        });
        match conditions.iter_mut().find(|found| found["type"] == condition_type::SCALING_ACTIVE) {
            Some(found) => *found = new,
            None => conditions.push(new),
        }
        steps.push(json!({"op": "test", "path": "/status/conditions", "value": stored}));
        steps.push(json!({"op": "add", "path": "/status/conditions", "value": conditions}));
    }
    if next.desired.is_some() && next.desired != before.desired {
        steps.push(json!({"op": "add", "path": "/status/desiredReplicas", "value": next.desired}));
    }
    (steps.len() > 1).then_some(Value::Array(steps))
}

/// Returns the JSON Patch that replaces a condition of a stored status, or removes it. The list of conditions can only be replaced as a
/// whole, so it tests that it is as it was read.
pub(super) fn replace_condition(uid: &str, status: &Value, type_: &str, next: Option<Value>) -> Value {
    let stored = &status["conditions"];
    let mut conditions: Vec<Value> = stored.as_array().cloned().unwrap_or_default();
    conditions.retain(|known| known["type"] != type_);
    conditions.extend(next);
    json!([
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/status/conditions", "value": stored},
        {"op": "add", "path": "/status/conditions", "value": conditions},
    ])
}

fn condition(status: &Value) -> Option<&Value> {
    status["conditions"].as_array()?.iter().find(|found| found["type"] == condition_type::SCALING_ACTIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05.678Z".parse().unwrap()
    }

    fn say(desired: i32, status: bool, reason: &str) -> ScalingStatus {
        let active = ScalingCondition { status, reason: reason.into(), message: "m".into() };
        ScalingStatus { desired: Some(desired), active: Some(active) }
    }

    #[test]
    fn the_conditions_of_others_are_carried_over_and_tested() {
        let stored = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let new = json!({"type": "ScalingActive", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 3});
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/status/conditions", "value": stored["conditions"]},
            {"op": "add", "path": "/status/conditions", "value": [stored["conditions"][0], new]},
            {"op": "add", "path": "/status/desiredReplicas", "value": 2},
        ]);
        assert_eq!(patch("u", 3, &stored, &say(2, true, "R"), now()), Some(expected));
    }

    #[test]
    fn what_is_said_already_is_not_written_and_a_number_needs_no_conditions() {
        let mut stored = json!({"phase": "Running", "conditions": [{"type": "ScalingActive", "status": "True",
            "reason": "R", "message": "m", "lastTransitionTime": "2020-01-01T00:00:00Z"}], "desiredReplicas": 2});
        assert_eq!(patch("u", 3, &stored, &say(2, true, "R"), now()), None);
        assert_eq!(scaling_status(&stored), say(2, true, "R"));
        let number = patch("u", 3, &stored, &say(5, true, "R"), now()).unwrap();
        assert_eq!(number.as_array().unwrap().len(), 2, "{number}");
        stored["desiredReplicas"] = json!(5);
        let words = patch("u", 3, &stored, &say(5, true, "Other"), now()).unwrap();
        assert_eq!(words[2]["value"][0]["lastTransitionTime"], "2020-01-01T00:00:00Z", "still True");
        let conditions = words[2]["value"].as_array().unwrap();
        assert_eq!((conditions.len(), &conditions[0]["reason"]), (1, &json!("Other")));
        let fell = patch("u", 3, &stored, &say(5, false, "Other"), now()).unwrap();
        assert_eq!(fell[2]["value"][0]["lastTransitionTime"], "2026-01-02T03:04:05Z", "no longer True");
        assert_eq!(patch("u", 3, &Value::Null, &say(5, true, "R"), now()), None, "the state machine begins the status");
        let new = CommonStatus::initial();
        assert_eq!(patch("u", 3, &new, &say(5, true, "R"), now()), None, "the state machine begins the status");
    }
}
