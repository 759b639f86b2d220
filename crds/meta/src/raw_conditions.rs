//! Preserves the conditions of other controllers as they are stored.
//!
//! Another controller may write the time of a condition as `12:00:00.123Z` or with an offset; the type of this crate
//! would write the same moment in whole seconds with a `Z`. A patch that is guarded by a test of the conditions must
//! name them as they are stored, and must write those back unchanged that it does not mean to change.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::CommonStatus;

impl CommonStatus {
    /// Keeps the stored form of the conditions that this crate would write in another form; usually none.
    pub fn retain_raw(&mut self, stored: &[&RawValue]) {
        let differing = |(raw, typed): (&&RawValue, &Condition)| {
            // Comparing the texts nearly always suffices: both sides write the fields in the order of their names.
            if serde_json::to_string(typed).is_ok_and(|text| text == raw.get()) {
                return None;
            }
            let value = serde_json::from_str(raw.get()).ok()?;
            (serde_json::to_value(typed).ok().as_ref() != Some(&value)).then_some(value)
        };
        self.raw_conditions = stored.iter().zip(&self.conditions).filter_map(differing).collect();
    }

    /// Puts the kept forms into this status as JSON, in place of the conditions that have not changed since.
    pub fn restore_raw(&self, status: &mut Value) {
        let Some(written) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
        for value in &self.raw_conditions {
            let typed = Condition::deserialize(value).ok();
            let place = self.conditions.iter().position(|condition| Some(condition) == typed.as_ref());
            if let Some(found) = place.and_then(|place| written.get_mut(place)) {
                *found = value.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(type_: &str, time: &str) -> Value {
        json!({ "type": type_, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": time })
    }

    fn read(conditions: &[Value]) -> CommonStatus {
        let mut status: CommonStatus = serde_json::from_value(json!({ "conditions": conditions })).unwrap();
        let text = json!(conditions).to_string();
        status.retain_raw(&serde_json::from_str::<Vec<&RawValue>>(&text).unwrap());
        status
    }

    fn written(status: &CommonStatus) -> Value {
        let mut json = serde_json::to_value(status).unwrap();
        status.restore_raw(&mut json);
        json["conditions"].take()
    }

    #[test]
    fn conditions_are_written_as_they_were_read() {
        let conditions = [
            condition("Ready", "2026-01-01T00:00:00Z"),
            condition("Audited", "2026-01-01T00:00:00.123Z"),
            condition("Scanned", "2026-01-01T00:00:00+00:00"),
        ];
        let status = read(&conditions);
        assert_eq!(status.raw_conditions.len(), 2, "ours needs no second copy");
        assert_eq!(written(&status), json!(conditions));
    }

    #[test]
    fn a_condition_that_was_changed_is_written_as_it_is_now() {
        let mut status =
            read(&[condition("Ready", "2026-01-01T00:00:00.5Z"), condition("Audited", "2026-01-01T00:00:00.5Z")]);
        status.conditions[0].status = "False".into();
        let written = written(&status);
        assert_eq!(written[0]["status"], "False");
        assert_eq!(written[1]["lastTransitionTime"], "2026-01-01T00:00:00.5Z");
    }
}
