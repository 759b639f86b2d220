//! Condition `ModelFallback` of Agents: whether models that stand in answer for an agent's own, by what the gateways report.
//!
//! It becomes True when they answer at least half of the responses of a minute, and False when they answer less than a quarter. A minute
//! without responses changes nothing, nor does another fallback, so that there is one write when it begins, and one when it ends. The
//! runtime says with the failure of the first model that another one answers, which may be the same model at another provider. Only models
//! that `fallbackRefs` names count: the report repeats headers that the workload sets.

use std::sync::Arc;

use actions::{ports::CacheReader, workload::SCALER};
use cluster::{CustomObjects, ObjectMap, Transport};
use crds::{Agent, Model, PluginConfig, reason};
use jiff::Timestamp;
use machine::{ApiError, Clock, ObjectClient as _};
use meta::{CommonStatus, Key, PhasedObject as _, condition_type};
use serde_json::{Value, json};

use super::{gateways::ModelCounts, status::replace_condition};

/// The condition becomes True when fallbacks answer at least one of this many responses.
const BEGIN: u64 = 2;
/// It becomes False when they answer less than one of this many.
const END: u64 = 4;

/// Writer of the condition.
pub(super) struct FallbackConditions {
    agents: Arc<ObjectMap<Agent>>,
    caches: Arc<dyn CacheReader>,
    clock: Arc<dyn Clock>,
    objects: CustomObjects<Agent>,
}

impl FallbackConditions {
    /// Creates a writer that reads these caches.
    pub(super) fn new(
        agents: &Arc<ObjectMap<Agent>>,
        transport: &Arc<Transport>,
        caches: &Arc<dyn CacheReader>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let objects = CustomObjects::new(transport.clone(), agents.clone()).managed_by(SCALER);
        Self { agents: agents.clone(), caches: caches.clone(), clock: clock.clone(), objects }
    }

    /// Writes the condition of an agent, if these responses change it.
    ///
    /// # Errors
    /// The failure of the request, classified.
    pub(super) async fn write(&self, key: &Key, answered: &ModelCounts) -> Result<(), ApiError> {
        let Some(agent) = self.agents.get(key).filter(|agent| !agent.is_deleting()) else { return Ok(()) };
        let status = agent.status.as_ref();
        let Some((machine, first)) = status.and_then(|status| Some((&status.machine, status.model.as_deref()?))) else {
            return Ok(());
        };
        let now = self.clock.now();
        let Some(next) = next_state(machine, first, &self.fallbacks(&agent), answered, now) else { return Ok(()) };
        let patch = patch(agent.uid(), agent.generation(), &agent.status_json(), &next, now);
        self.objects.patch_status(key, patch).await.map(drop)
    }

    /// Returns the names of the models that stand in for that of the agent, as its runtime reports them.
    fn fallbacks(&self, agent: &Agent) -> Vec<String> {
        let namespace = agent.metadata.namespace.as_deref().unwrap_or_default();
        let model = |name: &str| self.caches.get::<Model>(namespace, name);
        let Some(first) = agent.spec.model_ref.as_ref().and_then(|named| model(&named.name)) else { return Vec::new() };
        let names = first.spec.fallback_refs.iter().filter_map(|named| {
            let model = model(&named.name)?;
            let plugin = self.caches.get::<PluginConfig>(namespace, &model.spec.plugin_config_ref.name)?;
            Some(format!("{}/{}", plugin.spec.type_, model.spec.model))
        });
        names.collect()
    }
}

/// State of the condition.
#[derive(Debug, PartialEq)]
struct FallbackState {
    is_active: bool,
    reason: &'static str,
    message: String,
}

/// Returns the state that these responses ask for; `None` if the status says so already, or none of them counts.
fn next_state(
    status: &CommonStatus,
    first: &str,
    fallbacks: &[String],
    answered: &ModelCounts,
    now: Timestamp,
) -> Option<FallbackState> {
    let (mut own, mut fell_back) = (0_u64, 0_u64);
    let mut most: Option<(u64, &str, &str)> = None;
    for (answer, count) in answered {
        match split(answer) {
            (model, None) if model == first => own += count,
            (model, Some(failure)) if fallbacks.iter().any(|fallback| fallback == model) => {
                fell_back += count;
                if most.is_none_or(|(known, ..)| known < *count) {
                    most = Some((*count, model, failure));
                }
            }
            _ => {}
        }
    }
    let all = own + fell_back;
    if all == 0 {
        return None;
    }
    let was_active = status.condition(condition_type::MODEL_FALLBACK).is_some_and(|stored| stored.status == "True");
    let one_of = if was_active { END } else { BEGIN };
    let is_active = fell_back * one_of >= all;
    if is_active == was_active {
        return None;
    }
    if !is_active {
        let message = format!("{first} answers");
        return Some(FallbackState { is_active, reason: reason::FIRST_MODEL, message });
    }
    let (_, model, failure) = most?;
    let which = if model == first { "the fallback " } else { "" };
    let since = now.strftime("%H:%M");
    let message = format!("{which}{model} answers for {first} since {since} UTC ({failure})");
    Some(FallbackState { is_active, reason: reason::FALLBACK_ACTIVE, message })
}

/// Splits the name of a model and the failure for which it answered: `stub/echo (HTTP 503)`.
fn split(answer: &str) -> (&str, Option<&str>) {
    match answer.split_once(" (") {
        Some((model, failure)) => (model, failure.strip_suffix(')')),
        None => (answer, None),
    }
}

/// Returns the JSON Patch that puts the state into a stored status.
fn patch(uid: &str, generation: i64, status: &Value, next: &FallbackState, now: Timestamp) -> Value {
    let condition = json!({
        "type": condition_type::MODEL_FALLBACK, "status": if next.is_active { "True" } else { "False" },
        "reason": next.reason, "message": next.message, "observedGeneration": generation,
        // The API server stores whole seconds.
        "lastTransitionTime": Timestamp::from_second(now.as_second()).unwrap_or(now).to_string(),
    });
    replace_condition(uid, status, condition_type::MODEL_FALLBACK, Some(condition))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T12:04:05.678Z".parse().unwrap()
    }

    fn answered(first: u64, second: u64, third: u64) -> ModelCounts {
        let (two, three) = (("a/two (HTTP 503)", second), ("b/three (no answer)", third));
        [("openai/gpt", first), two, three, ("b/three", 99)].map(|(model, count)| (model.to_owned(), count)).into()
    }

    fn state(stored: Option<(&str, &str)>, answered: &ModelCounts) -> Option<FallbackState> {
        let condition = stored.map(|(status, message)| {
            json!({"type": "ModelFallback", "status": status, "reason": "R", "message": message,
                "lastTransitionTime": "2026-01-02T12:00:00Z"})
        });
        let conditions: Vec<Value> = condition.into_iter().collect();
        let status = serde_json::from_value(json!({"phase": "Running", "conditions": conditions})).unwrap();
        let fallbacks = ["openai/gpt", "a/two", "b/three"].map(str::to_owned);
        next_state(&status, "openai/gpt", &fallbacks, answered, now())
    }

    #[test]
    fn it_begins_with_half_of_the_responses_and_ends_with_less_than_a_quarter() {
        let two = "a/two answers for openai/gpt since 12:04 UTC (HTTP 503)";
        let active = |message: &str| {
            Some(FallbackState { is_active: true, reason: "FallbackActive", message: message.to_owned() })
        };
        let earlier = "a/two answers for openai/gpt since 11:00 UTC (HTTP 401)";
        let ended =
            Some(FallbackState { is_active: false, reason: "FirstModel", message: "openai/gpt answers".to_owned() });
        for (stored, answered, expected) in [
            (None, answered(2, 1, 1), active(two)),
            (None, answered(2, 1, 0), None),
            (None, answered(0, 1, 0), active(two)),
            (Some(("False", "openai/gpt answers")), answered(0, 1, 0), active(two)),
            (Some(("True", earlier)), answered(0, 3, 1), None),
            (Some(("True", earlier)), answered(0, 1, 3), None),
            (Some(("True", earlier)), answered(0, 0, 0), None),
            (Some(("True", earlier)), answered(3, 1, 0), None),
            (Some(("True", earlier)), answered(4, 1, 0), ended),
            (Some(("False", "openai/gpt answers")), answered(2, 1, 0), None),
        ] {
            assert_eq!(state(stored, &answered), expected, "{stored:?} {answered:?}");
        }
    }

    #[test]
    fn each_change_is_written_once() {
        let mut stored: Option<(&str, String)> = None;
        let mut writes = Vec::new();
        for minute in [(1, 1, 0), (2, 0, 1), (1, 0, 2), (2, 1, 0), (5, 1, 0), (2, 1, 0), (9, 0, 0)] {
            let answered = answered(minute.0, minute.1, minute.2);
            let known = stored.as_ref().map(|(status, message)| (*status, message.as_str()));
            if let Some(next) = state(known, &answered) {
                writes.push(next.is_active);
                stored = Some((if next.is_active { "True" } else { "False" }, next.message));
            }
        }
        assert_eq!(writes, [true, false]);
    }

    #[test]
    fn the_same_model_of_another_provider_stands_in() {
        let counts = [("openai/gpt (HTTP 503)", 1), ("forged/model (x)", 99)];
        let answered: ModelCounts = counts.map(|(model, count)| (model.to_owned(), count)).into();
        let message = "the fallback openai/gpt answers for openai/gpt since 12:04 UTC (HTTP 503)";
        assert_eq!(state(None, &answered).map(|state| state.message), Some(message.to_owned()));
    }

    #[test]
    fn an_agent_without_fallbacks_has_no_condition_and_loses_one() {
        let status = CommonStatus::default();
        assert_eq!(next_state(&status, "openai/gpt", &[], &answered(0, 9, 9), now()), None);
        let stored = Some(("True", "a/two answers for openai/gpt since 11:00 UTC (HTTP 503)"));
        assert!(state(stored, &answered(1, 0, 0)).is_some_and(|state| !state.is_active));
    }

    #[test]
    fn the_conditions_of_others_are_carried_over_and_tested() {
        let stored = json!({"phase": "Running", "conditions": [
            {"type": "ModelFallback", "status": "False"}, {"type": "Ready", "status": "True"},
        ]});
        let next = FallbackState { is_active: true, reason: "FallbackActive", message: "m".to_owned() };
        let new = json!({"type": "ModelFallback", "status": "True", "reason": "FallbackActive", "message": "m",
            "observedGeneration": 3, "lastTransitionTime": "2026-01-02T12:04:05Z"});
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/status/conditions", "value": stored["conditions"]},
            {"op": "add", "path": "/status/conditions", "value": [stored["conditions"][1], new]},
        ]);
        assert_eq!(patch("u", 3, &stored, &next, now()), expected);
    }
}
