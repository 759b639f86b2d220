//! Condition `WithinLimits` of workloads with a budget of tokens for all callers (`limits[workload].tokensPerDay`), by what the gateways
//! report.
//!
//! It becomes False when the budget of today is spent, and True when it is not any more: it was raised, or the next day has begun. What no
//! gateway reports changes nothing until then. So there is one write when it begins, and one when it ends; before it is absent, and
//! without a budget it is removed.

use std::collections::HashMap;

use crds::{Limit, limit::PER_WORKLOAD, reason, usage::day_of};
use jiff::Timestamp;
use meta::{CommonStatus, condition_type};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{WorkloadId, status::replace_condition};

/// Tokens that a gateway reports for a workload. Of several reports the latest day counts, and of that the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct ReportedTokens {
    /// Days since 1970, UTC.
    pub day: i64,
    /// Tokens of that day.
    pub spent: u64,
}

/// Returns of each workload the report that counts.
pub(super) fn latest<'a>(
    reports: impl Iterator<Item = (&'a WorkloadId, &'a ReportedTokens)>,
) -> HashMap<WorkloadId, ReportedTokens> {
    let mut latest: HashMap<WorkloadId, ReportedTokens> = HashMap::new();
    for (id, tokens) in reports {
        let known = latest.entry(id.clone()).or_insert(*tokens);
        *known = (*known).max(*tokens);
    }
    latest
}

/// Change of the condition.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BudgetChange {
    /// There is no budget any more.
    Remove,
    /// Tokens are left.
    Within,
    /// The budget of so many tokens is spent.
    Spent(u64),
}

/// Returns the change of the condition that a report asks for; `None`: the status says so already.
pub(super) fn change(
    status: &CommonStatus,
    limits: &[Limit],
    reported: Option<ReportedTokens>,
    now: Timestamp,
) -> Option<BudgetChange> {
    let stored = status.condition(condition_type::WITHIN_LIMITS);
    let of_workload = limits.iter().find(|limit| limit.per == PER_WORKLOAD);
    let budget = of_workload.and_then(|limit| limit.tokens_per_day).and_then(|tokens| u64::try_from(tokens).ok());
    let Some(budget) = budget else { return stored.map(|_| BudgetChange::Remove) };
    let today = day_of(now.as_second());
    let is_spent = reported.filter(|tokens| tokens.day == today).map(|tokens| tokens.spent >= budget);
    let refused = stored.filter(|stored| stored.status == "False");
    match (refused, is_spent) {
        (None, Some(true)) => Some(BudgetChange::Spent(budget)),
        (Some(stored), Some(true)) => (stored.message != message(budget)).then_some(BudgetChange::Spent(budget)),
        (Some(_), Some(false)) => Some(BudgetChange::Within),
        (Some(stored), None) => {
            let since = day_of(stored.last_transition_time.0.as_second());
            (since < today).then_some(BudgetChange::Within)
        }
        (None, _) => None,
    }
}

/// Returns the JSON Patch of a change.
pub(super) fn patch(uid: &str, generation: i64, status: &Value, change: &BudgetChange, now: Timestamp) -> Value {
    let (word, reason, message) = match change {
        BudgetChange::Remove => return replace_condition(uid, status, condition_type::WITHIN_LIMITS, None),
        BudgetChange::Within => ("True", reason::WITHIN_BUDGET, "tokens are left today".to_owned()),
        BudgetChange::Spent(budget) => ("False", reason::BUDGET_SPENT, message(*budget)),
    };
    let condition = json!({
        "type": condition_type::WITHIN_LIMITS, "status": word, "reason": reason, "message": message,
        "observedGeneration": generation,
        // The API server stores whole seconds.
        "lastTransitionTime": Timestamp::from_second(now.as_second()).unwrap_or(now).to_string(),
    });
    replace_condition(uid, status, condition_type::WITHIN_LIMITS, Some(condition))
}

fn message(budget: u64) -> String {
    let tokens = grouped(budget);
    format!("its token budget of today ({tokens}) is spent, 429 until 00:00 UTC: raise limits[workload].tokensPerDay")
}

/// Returns a number with a space between each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPENT: &str =
        "its token budget of today (2 000 000) is spent, 429 until 00:00 UTC: raise limits[workload].tokensPerDay";

    fn now() -> Timestamp {
        "2026-01-02T00:00:04.678Z".parse().unwrap()
    }

    /// Returns what a report of this many tokens changes, with the condition's status and message as stored before.
    fn changed(
        stored: Option<(&str, &str, &str)>,
        budget: Option<i64>,
        reported: Option<(i64, u64)>,
    ) -> Option<BudgetChange> {
        let condition = stored.map(|(status, message, since)| {
            json!({"type": "WithinLimits", "status": status, "reason": "R", "message": message,
                "lastTransitionTime": since})
        });
        let conditions: Vec<Value> = condition.into_iter().collect();
        let status = serde_json::from_value(json!({"phase": "Running", "conditions": conditions})).unwrap();
        let mut limits = vec![json!({"per": "caller", "tokensPerDay": 1})];
        limits.extend(budget.map(|tokens| json!({"per": "workload", "tokensPerDay": tokens})));
        let limits: Vec<Limit> = limits.into_iter().map(|limit| serde_json::from_value(limit).unwrap()).collect();
        let today = day_of(now().as_second());
        let reported = reported.map(|(days_ago, spent)| ReportedTokens { day: today - days_ago, spent });
        change(&status, &limits, reported, now())
    }

    #[test]
    fn it_begins_when_the_budget_is_spent_and_ends_when_it_is_not_or_with_the_day() {
        let budget = Some(2_000_000);
        let spent = Some(("False", SPENT, "2026-01-02T00:00:01Z"));
        let yesterday = Some(("False", SPENT, "2026-01-01T23:59:59Z"));
        let within = Some(("True", "tokens are left today", "2026-01-01T00:00:00Z"));
        for (stored, budget, reported, expected) in [
            (None, budget, Some((0, 1_999_999)), None),
            (None, budget, Some((0, 2_000_000)), Some(BudgetChange::Spent(2_000_000))),
            (None, budget, Some((1, 9_000_000)), None),
            (None, budget, None, None),
            (within, budget, Some((0, 9_000_000)), Some(BudgetChange::Spent(2_000_000))),
            (within, budget, Some((0, 1)), None),
            (spent, budget, Some((0, 9_000_000)), None),
            (spent, Some(3_000_000), Some((0, 9_000_000)), Some(BudgetChange::Spent(3_000_000))),
            (spent, Some(3_000_000), Some((0, 2_000_001)), Some(BudgetChange::Within)),
            (spent, budget, None, None),
            (spent, budget, Some((1, 0)), None),
            (yesterday, budget, None, Some(BudgetChange::Within)),
            (yesterday, budget, Some((1, 9_000_000)), Some(BudgetChange::Within)),
            (spent, None, None, Some(BudgetChange::Remove)),
            (None, None, Some((0, 9_000_000)), None),
        ] {
            assert_eq!(changed(stored, budget, reported), expected, "{stored:?} {budget:?} {reported:?}");
        }
    }

    #[test]
    fn the_condition_is_written_beside_those_of_others_and_removed() {
        let status = json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "WithinLimits", "status": "True"},
        ]});
        let others = status["conditions"][0].clone();
        let written = |change: BudgetChange| patch("u", 3, &status, &change, now())[2]["value"].clone();
        let condition = json!({"type": "WithinLimits", "status": "False", "reason": "BudgetSpent", "message": SPENT,
            "observedGeneration": 3, "lastTransitionTime": "2026-01-02T00:00:04Z"});
        assert_eq!(written(BudgetChange::Spent(2_000_000)), json!([others, condition]));
        assert_eq!(written(BudgetChange::Within)[1]["status"], "True");
        assert_eq!(written(BudgetChange::Remove), json!([others]));
    }

    #[test]
    fn of_the_reports_of_gateways_that_of_the_latest_day_with_the_most_tokens_counts() {
        let id = WorkloadId { kind: "Agent", key: meta::Key::new("ns", "a") };
        let tokens = |(day, spent)| ReportedTokens { day, spent };
        for (reports, expected) in [
            ([(7, 50), (7, 60)], (7, 60)),
            ([(7, 60), (7, 50)], (7, 60)),
            ([(8, 1), (7, 99)], (8, 1)),
            ([(7, 99), (8, 1)], (8, 1)),
        ] {
            let reports = reports.map(tokens);
            let counts = latest(reports.iter().map(|report| (&id, report)));
            assert_eq!(counts, HashMap::from([(id.clone(), tokens(expected))]));
        }
    }

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        let cases = [(1, "1"), (999, "999"), (1000, "1 000"), (12_345_678, "12 345 678")];
        for (number, text) in cases {
            assert_eq!(grouped(number), text);
        }
    }
}
