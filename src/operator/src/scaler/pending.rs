//! Condition `ApprovalsPending` of Agents: whether calls of tools wait for a person, by what the gateways report.
//!
//! The gateways repeat what the runtime of an agent says with its responses, so that the condition holds while there is no Pod. Calls
//! that have expired do not wait any more, also where no response says so. What no gateway reports changes nothing, so that a condition
//! that is True holds until the next response where all gateways have restarted.

use std::sync::Arc;

use actions::workload::SCALER;
use cluster::{CustomObjects, ObjectMap, Transport};
use crds::{Agent, pending_calls::PendingCalls, reason, usage::day_of};
use jiff::Timestamp;
use machine::{ApiError, Clock, ObjectClient as _};
use meta::{CommonStatus, Key, PhasedObject as _, condition_type};
use serde_json::{Value, json};

use super::status::replace_condition;

/// Writer of the condition.
pub(super) struct PendingConditions {
    agents: Arc<ObjectMap<Agent>>,
    clock: Arc<dyn Clock>,
    objects: CustomObjects<Agent>,
}

impl PendingConditions {
    /// Creates a writer that reads this cache.
    pub(super) fn new(agents: &Arc<ObjectMap<Agent>>, transport: &Arc<Transport>, clock: &Arc<dyn Clock>) -> Self {
        let objects = CustomObjects::new(transport.clone(), agents.clone()).managed_by(SCALER);
        Self { agents: agents.clone(), clock: clock.clone(), objects }
    }

    /// Reports whether these calls change the condition of an agent.
    pub(super) fn is_due(&self, key: &Key, pending: &PendingCalls) -> bool {
        self.agents.get(key).is_some_and(|agent| next_of(&agent, key, pending, self.clock.now()).is_some())
    }

    /// Writes the condition of an agent, if these calls change it.
    ///
    /// # Errors
    /// The failure of the request, classified.
    pub(super) async fn write(&self, key: &Key, pending: &PendingCalls) -> Result<(), ApiError> {
        let Some(agent) = self.agents.get(key) else { return Ok(()) };
        let now = self.clock.now();
        let Some(next) = next_of(&agent, key, pending, now) else { return Ok(()) };
        let patch = patch(agent.uid(), agent.generation(), &agent.status_json(), &next, now);
        self.objects.patch_status(key, patch).await.map(drop)
    }
}

/// State of the condition.
#[derive(Debug, PartialEq, Eq)]
enum PendingState {
    /// Calls wait, as this message says.
    Waiting(String),
    /// None waits.
    Nothing,
}

/// Returns the state that is to be written for an agent with these calls.
fn next_of(agent: &Agent, key: &Key, pending: &PendingCalls, now: Timestamp) -> Option<PendingState> {
    let status = agent.common().filter(|status| !agent.is_deleting() && !status.is_initial())?;
    next_state(status, &key.name, pending, now)
}

/// Returns the state that these calls ask for; `None` if the status says so already, or says nothing and none waits.
fn next_state(status: &CommonStatus, name: &str, pending: &PendingCalls, now: Timestamp) -> Option<PendingState> {
    let stored = status.condition(condition_type::APPROVALS_PENDING);
    let was_waiting = stored.is_some_and(|stored| stored.status == "True");
    if !pending.wait_at(now.as_second()) {
        return was_waiting.then_some(PendingState::Nothing);
    }
    let message = message(name, pending, now);
    let is_said = was_waiting && stored.is_some_and(|stored| stored.message == message);
    (!is_said).then_some(PendingState::Waiting(message))
}

fn message(name: &str, pending: &PendingCalls, now: Timestamp) -> String {
    let PendingCalls { calls, since, .. } = pending;
    let begun = Timestamp::from_second(*since).unwrap_or_default();
    let is_today = day_of(*since) == day_of(now.as_second());
    let begun = begun.strftime(if is_today { "%H:%M" } else { "%Y-%m-%d %H:%M" });
    let wait = if *calls == 1 { "call waits" } else { "calls wait" };
    format!("{calls} {wait} since {begun} UTC: decide with recif approve agent/{name}, or see recif approvals")
}

/// Returns the JSON Patch that puts the state into a stored status.
fn patch(uid: &str, generation: i64, status: &Value, next: &PendingState, now: Timestamp) -> Value {
    let (word, reason, message) = match next {
        PendingState::Waiting(message) => ("True", reason::CALLS_WAIT, message.as_str()),
        PendingState::Nothing => ("False", reason::NOTHING_WAITS, "no call waits for a person"),
    };
    let mut stored = status["conditions"].as_array().into_iter().flatten();
    let same = stored.find(|known| known["type"] == condition_type::APPROVALS_PENDING && known["status"] == word);
    // The API server stores whole seconds.
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let since = same.map_or_else(|| Value::from(seconds), |same| same["lastTransitionTime"].clone());
    let condition = json!({
        "type": condition_type::APPROVALS_PENDING, "status": word, "reason": reason, "message": message,
        "observedGeneration": generation, "lastTransitionTime": since,
    });
    replace_condition(uid, status, condition_type::APPROVALS_PENDING, Some(condition))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "2 calls wait since 12:04 UTC: decide with recif approve agent/a, or see recif approvals";

    fn now() -> Timestamp {
        "2026-01-02T13:00:00.678Z".parse().unwrap()
    }

    fn second(time: &str) -> i64 {
        time.parse::<Timestamp>().unwrap().as_second()
    }

    /// Returns calls that wait since this time of the day, until another one.
    fn waiting(calls: u64, since: &str, until: &str) -> PendingCalls {
        let [since, until] = [since, until].map(|time| second(&format!("2026-01-02T{time}Z")));
        PendingCalls { at: 1, calls, since, until }
    }

    fn state(stored: Option<(&str, &str)>, pending: &PendingCalls) -> Option<PendingState> {
        let condition = stored.map(|(status, message)| {
            json!({"type": "ApprovalsPending", "status": status, "reason": "R", "message": message,
                "lastTransitionTime": "2026-01-02T12:00:00Z"})
        });
        let conditions: Vec<Value> = condition.into_iter().collect();
        let status = serde_json::from_value(json!({"phase": "Running", "conditions": conditions})).unwrap();
        next_state(&status, "a", pending, now())
    }

    #[test]
    fn it_begins_with_the_first_call_and_ends_with_the_last_decision_or_expiry() {
        let (two, none) = (waiting(2, "12:04:59", "13:04:59"), PendingCalls::default());
        let (expired, one) = (waiting(2, "11:00:00", "13:00:00"), waiting(1, "12:59:00", "13:59:00"));
        let single = "1 call waits since 12:59 UTC: decide with recif approve agent/a, or see recif approvals";
        let is_waiting = |message: &str| Some(PendingState::Waiting(message.to_owned()));
        for (stored, pending, expected) in [
            (None, &none, None),
            (None, &expired, None),
            (None, &two, is_waiting(TWO)),
            (Some(("True", TWO)), &two, None),
            (Some(("True", TWO)), &one, is_waiting(single)),
            (Some(("True", TWO)), &expired, Some(PendingState::Nothing)),
            (Some(("True", TWO)), &none, Some(PendingState::Nothing)),
            (Some(("False", "no call waits for a person")), &none, None),
            (Some(("False", "no call waits for a person")), &two, is_waiting(TWO)),
        ] {
            assert_eq!(state(stored, pending), expected, "{stored:?} {pending}");
        }
    }

    #[test]
    fn what_waits_since_another_day_has_its_date() {
        let since = second("2026-01-01T23:59:00Z");
        let pending = PendingCalls { since, ..waiting(3, "00:00:00", "23:00:00") };
        let text = message("a", &pending, now());
        assert!(text.starts_with("3 calls wait since 2026-01-01 23:59 UTC: "), "{text}");
    }

    #[test]
    fn the_conditions_of_others_are_carried_over_and_the_time_of_the_change_stays() {
        let known = json!({"type": "ApprovalsPending", "status": "True", "message": "m",
            "lastTransitionTime": "2026-01-02T12:04:59Z"});
        let stored = json!({"phase": "Running", "conditions": [known, {"type": "Ready", "status": "True"}]});
        let condition = |status: &str, reason: &str, message: &str, since: &str| {
            json!({"type": "ApprovalsPending", "status": status, "reason": reason, "message": message,
                "observedGeneration": 3, "lastTransitionTime": since})
        };
        for (next, new) in [
            (PendingState::Waiting(TWO.to_owned()), condition("True", "CallsWait", TWO, "2026-01-02T12:04:59Z")),
            (
                PendingState::Nothing,
                condition("False", "NothingWaits", "no call waits for a person", "2026-01-02T13:00:00Z"),
            ),
        ] {
            let expected = json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/status/conditions", "value": stored["conditions"]},
                {"op": "add", "path": "/status/conditions", "value": [stored["conditions"][1], new]},
            ]);
            assert_eq!(patch("u", 3, &stored, &next, now()), expected);
        }
    }
}
