//! Condition `LimitsEnforced` of workloads with a budget of tokens or cost whose image reports no usage of models, by what the gateways
//! report.
//!
//! It is False once many responses had no report, and none had one; the first report removes it. What no gateway reports changes nothing.

use crds::{Limit, reason};
use jiff::Timestamp;
use meta::{CommonStatus, condition_type};
use serde::Deserialize;
use serde_json::{Value, json};

use super::status::replace_condition;

/// Responses without a report after which an image reports none: some of its paths may ask no model.
const MANY: u64 = 20;
/// Message of the condition.
const MESSAGE: &str =
    "its image reports no usage of models, so its budgets have no effect: let it answer with the header x-recif-usage";

/// Responses of a workload that reported what its models used, as gateways count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ReportingState {
    /// True if any did.
    pub any: bool,
    /// Number of those that should have.
    pub without: u64,
}

/// Change of the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReportingChange {
    /// The image reports, or there is no budget any more.
    Remove,
    /// The image reports nothing.
    Missing,
}

impl ReportingState {
    /// Returns what two gateways know.
    pub(super) fn merge(self, other: Self) -> Self {
        Self { any: self.any || other.any, without: self.without.max(other.without) }
    }
}

/// Returns the change of the condition that a report asks for; `None`: the status says so already.
pub(super) fn change(
    status: &CommonStatus,
    limits: &[Limit],
    reported: Option<ReportingState>,
) -> Option<ReportingChange> {
    let is_noted = status.condition(condition_type::LIMITS_ENFORCED).is_some();
    let has_budget = limits.iter().any(|limit| limit.tokens_per_day.is_some() || limit.cost_per_day.is_some());
    if !has_budget || reported?.any {
        return is_noted.then_some(ReportingChange::Remove);
    }
    (!is_noted && reported?.without >= MANY).then_some(ReportingChange::Missing)
}

/// Returns the JSON Patch of a change.
pub(super) fn patch(uid: &str, generation: i64, status: &Value, change: ReportingChange, now: Timestamp) -> Value {
    // The API server stores whole seconds.
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let condition = (change == ReportingChange::Missing).then(|| {
        json!({
            "type": condition_type::LIMITS_ENFORCED, "status": "False", "reason": reason::NO_USAGE_REPORTED, "message": MESSAGE,
            "observedGeneration": generation, "lastTransitionTime": seconds,
        })
    });
    replace_condition(uid, status, condition_type::LIMITS_ENFORCED, condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T00:00:04.678Z".parse().unwrap()
    }

    #[test]
    fn it_begins_after_many_responses_without_any_report_and_ends_with_the_first_report() {
        let budget = json!([{"per": "caller", "tokensPerDay": 1}]);
        let cost = json!([{"per": "workload", "costPerDay": "1"}]);
        let rate = json!([{"per": "workload", "requestsPerMinute": 1}]);
        let state = |any, without| Some(ReportingState { any, without });
        for (is_noted, limits, reported, expected) in [
            (false, &budget, state(false, 19), None),
            (false, &budget, state(false, 20), Some(ReportingChange::Missing)),
            (false, &cost, state(false, 20), Some(ReportingChange::Missing)),
            (false, &budget, state(true, 20), None),
            (false, &rate, state(false, 20), None),
            (false, &budget, None, None),
            (true, &budget, state(false, 21), None),
            (true, &budget, state(false, 0), None),
            (true, &budget, None, None),
            (true, &budget, state(true, 21), Some(ReportingChange::Remove)),
            (true, &rate, None, Some(ReportingChange::Remove)),
        ] {
            let condition = json!({"type": "LimitsEnforced", "status": "False", "reason": "R", "message": "m",
                "lastTransitionTime": "2026-01-02T00:00:01Z"});
            let conditions: Vec<Value> = is_noted.then_some(condition).into_iter().collect();
            let status = serde_json::from_value(json!({"phase": "Running", "conditions": conditions})).unwrap();
            let specified: Vec<Limit> = serde_json::from_value(limits.clone()).unwrap();
            assert_eq!(change(&status, &specified, reported), expected, "{is_noted} {limits} {reported:?}");
        }
    }

    #[test]
    fn it_is_written_beside_the_conditions_of_others_and_removed() {
        let ready = json!({"type": "Ready", "status": "True"});
        let written = patch("u", 3, &json!({"conditions": [ready]}), ReportingChange::Missing, now());
        let condition = json!({"type": "LimitsEnforced", "status": "False", "reason": "NoUsageReported", "message": MESSAGE,
            "observedGeneration": 3, "lastTransitionTime": "2026-01-02T00:00:04Z"});
        assert_eq!(written[2]["value"], json!([ready, condition]));
        let removed = patch("u", 3, &json!({"conditions": [ready, condition]}), ReportingChange::Remove, now());
        assert_eq!(removed[2]["value"], json!([ready]));
    }

    #[test]
    fn any_gateway_that_has_a_report_knows_that_there_are_some() {
        let state = |any, without| ReportingState { any, without };
        assert_eq!(state(false, 30).merge(state(true, 2)), state(true, 30));
    }
}
