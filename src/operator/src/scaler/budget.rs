//! Condition `WithinLimits` of workloads with a budget of tokens or cost for all callers (`limits[workload].tokensPerDay`,
//! `costPerDay`), by what the gateways report.
//!
//! It becomes False when the budget of today is spent, and True when it is not any more: it was raised, or the next day has begun. What no
//! gateway reports changes nothing until then. So there is one write when it begins, and one when it ends; before it is absent, and
//! without a budget it is removed. While the prices of the models cannot be counted by and no budget is spent, it is Unknown.

use std::{cmp::Ordering, collections::HashMap};

use crds::{
    Limit,
    limit::PER_WORKLOAD,
    reason,
    usage::{ModelPrices, day_of, millionths},
};
use jiff::Timestamp;
use meta::{CommonStatus, condition_type};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    WorkloadId,
    cost::{EffectivePrices, PriceProblem},
    status::replace_condition,
    unreported::{self, ReportingChange, ReportingState},
};

/// Tokens that a gateway reports for a workload. Of several reports the latest day counts, and of that the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ReportedTokens {
    /// Days since 1970, UTC.
    pub day: i64,
    /// Tokens of that day.
    pub spent: u64,
    /// Their cost, in 10⁻⁹ of the currency.
    #[serde(default)]
    pub cost: u64,
    /// Whether responses report what the models used; unknown of older gateways.
    #[serde(default)]
    pub reporting: Option<ReportingState>,
}

impl ReportedTokens {
    fn merge(&mut self, other: Self) {
        let reporting = [self.reporting, other.reporting].into_iter().flatten().reduce(ReportingState::merge);
        match self.day.cmp(&other.day) {
            Ordering::Less => *self = other,
            Ordering::Equal => (self.spent, self.cost) = (self.spent.max(other.spent), self.cost.max(other.cost)),
            Ordering::Greater => {}
        }
        self.reporting = reporting;
    }
}

/// Returns of each workload the report that counts.
pub(super) fn latest<'a>(
    reports: impl Iterator<Item = (&'a WorkloadId, &'a ReportedTokens)>,
) -> HashMap<WorkloadId, ReportedTokens> {
    let mut latest: HashMap<WorkloadId, ReportedTokens> = HashMap::new();
    for (id, tokens) in reports {
        latest.entry(id.clone()).or_insert(*tokens).merge(*tokens);
    }
    latest
}

/// Change of the condition.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BudgetChange {
    /// There is no budget any more.
    Remove,
    /// Nothing is spent.
    Within,
    /// A budget is spent, as this message says.
    Spent(String),
    /// Cost cannot be counted, for this reason and with this message.
    Unknown(&'static str, String),
}

/// What has to change in a status.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BudgetNote {
    /// Change of the condition.
    pub(super) change: Option<BudgetChange>,
    /// Other prices than those that are there, or none any more.
    pub(super) prices: Option<Option<String>>,
    /// Change of the condition `LimitsEnforced`, which is written after one of the other condition.
    pub(super) reporting: Option<ReportingChange>,
}

/// Returns the change of the condition that a report asks for; `None`: the status says so already.
pub(super) fn change(
    status: &CommonStatus,
    limits: &[Limit],
    EffectivePrices { prices, problem }: &EffectivePrices,
    reported: Option<ReportedTokens>,
    now: Timestamp,
) -> Option<BudgetChange> {
    let stored = status.condition(condition_type::WITHIN_LIMITS);
    let of_workload = limits.iter().find(|limit| limit.per == PER_WORKLOAD);
    let tokens = of_workload.and_then(|limit| limit.tokens_per_day).and_then(|tokens| u64::try_from(tokens).ok());
    let cost = of_workload.and_then(|limit| limit.cost_per_day.as_deref()).zip(prices.as_ref());
    let is_limited = tokens.is_some() || cost.is_some();
    if !is_limited && problem.is_none() {
        return stored.map(|_| BudgetChange::Remove);
    }
    let today = day_of(now.as_second());
    let reported = reported.filter(|tokens| tokens.day == today);
    let spent = reported.and_then(|reported| {
        let tokens = tokens.filter(|budget| reported.spent >= *budget).map(message);
        let cost = cost.filter(|(budget, _)| reported.cost >= nanos(budget));
        tokens.or(cost.map(|(budget, prices)| cost_message(budget, prices)))
    });
    if let Some(spent) = spent {
        let is_said = stored.is_some_and(|stored| stored.status == "False" && stored.message == spent);
        return (!is_said).then_some(BudgetChange::Spent(spent));
    }
    let was_spent_today = stored
        .is_some_and(|stored| stored.status == "False" && day_of(stored.last_transition_time.0.as_second()) >= today);
    if was_spent_today && is_limited && reported.is_none() {
        return None;
    }
    match problem {
        Some(PriceProblem { reason, message }) => {
            let is_said = stored.is_some_and(|stored| stored.status == "Unknown" && stored.message == *message);
            (!is_said).then(|| BudgetChange::Unknown(reason, message.clone()))
        }
        None => stored.is_some_and(|stored| stored.status != "True").then_some(BudgetChange::Within),
    }
}

/// Returns the JSON Patch of a note.
pub(super) fn patch(uid: &str, generation: i64, status: &Value, note: &BudgetNote, now: Timestamp) -> Value {
    let mut patch = match (&note.change, note.reporting) {
        (Some(change), _) => condition_patch(uid, generation, status, change, now),
        (None, Some(reporting)) => unreported::patch(uid, generation, status, reporting, now),
        (None, None) => json!([{"op": "test", "path": "/metadata/uid", "value": uid}]),
    };
    if let (Some(steps), Some(prices)) = (patch.as_array_mut(), &note.prices) {
        steps.push(match prices {
            Some(prices) => json!({"op": "add", "path": "/status/prices", "value": prices}),
            None => json!({"op": "remove", "path": "/status/prices"}),
        });
    }
    patch
}

fn condition_patch(uid: &str, generation: i64, status: &Value, change: &BudgetChange, now: Timestamp) -> Value {
    let (word, reason, message) = match change {
        BudgetChange::Remove => return replace_condition(uid, status, condition_type::WITHIN_LIMITS, None),
        BudgetChange::Within => ("True", reason::WITHIN_BUDGET, "tokens are left today"),
        BudgetChange::Spent(message) => ("False", reason::BUDGET_SPENT, message.as_str()),
        BudgetChange::Unknown(reason, message) => ("Unknown", *reason, message.as_str()),
    };
    let mut stored = status["conditions"].as_array().into_iter().flatten();
    let same = stored.find(|known| known["type"] == condition_type::WITHIN_LIMITS && known["status"] == word);
    // The API server stores whole seconds.
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let since = same.map_or_else(|| Value::from(seconds), |same| same["lastTransitionTime"].clone());
    let condition = json!({
        "type": condition_type::WITHIN_LIMITS, "status": word, "reason": reason, "message": message,
        "observedGeneration": generation, "lastTransitionTime": since,
    });
    replace_condition(uid, status, condition_type::WITHIN_LIMITS, Some(condition))
}

fn message(budget: u64) -> String {
    let tokens = grouped(budget);
    format!("its token budget of today ({tokens}) is spent, 429 until 00:00 UTC: raise limits[workload].tokensPerDay")
}

fn cost_message(budget: &str, prices: &ModelPrices) -> String {
    let currency = prices.currency();
    format!(
        "its cost budget of today ({budget} {currency}) is spent, 429 until 00:00 UTC: raise limits[workload].costPerDay"
    )
}

/// Returns a budget in 10⁻⁹ of the currency. One that cannot be read, which the schema refuses, is never spent.
fn nanos(budget: &str) -> u64 {
    millionths(budget).map_or(u64::MAX, |millionths| millionths.saturating_mul(1000))
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
        let budget = budget.map(|tokens| json!({"per": "workload", "tokensPerDay": tokens}));
        let reported = reported.map(|(days_ago, spent)| (days_ago, spent, 0));
        change_of(stored, budget, &EffectivePrices::default(), reported)
    }

    fn change_of(
        stored: Option<(&str, &str, &str)>,
        budget: Option<Value>,
        prices: &EffectivePrices,
        reported: Option<(i64, u64, u64)>,
    ) -> Option<BudgetChange> {
        let condition = stored.map(|(status, message, since)| {
            json!({"type": "WithinLimits", "status": status, "reason": "R", "message": message,
                "lastTransitionTime": since})
        });
        let conditions: Vec<Value> = condition.into_iter().collect();
        let status = serde_json::from_value(json!({"phase": "Running", "conditions": conditions})).unwrap();
        let limits = [json!({"per": "caller", "tokensPerDay": 1})].into_iter().chain(budget);
        let limits: Vec<Limit> = limits.map(|limit| serde_json::from_value(limit).unwrap()).collect();
        let today = day_of(now().as_second());
        let reported = reported.map(|(days_ago, spent, cost)| ReportedTokens {
            day: today - days_ago,
            spent,
            cost,
            reporting: None,
        });
        change(&status, &limits, prices, reported, now())
    }

    #[test]
    fn it_begins_when_the_budget_is_spent_and_ends_when_it_is_not_or_with_the_day() {
        let budget = Some(2_000_000);
        let spent = Some(("False", SPENT, "2026-01-02T00:00:01Z"));
        let yesterday = Some(("False", SPENT, "2026-01-01T23:59:59Z"));
        let within = Some(("True", "tokens are left today", "2026-01-01T00:00:00Z"));
        let of = |budget: u64| Some(BudgetChange::Spent(message(budget)));
        for (stored, budget, reported, expected) in [
            (None, budget, Some((0, 1_999_999)), None),
            (None, budget, Some((0, 2_000_000)), Some(BudgetChange::Spent(SPENT.to_owned()))),
            (None, budget, Some((1, 9_000_000)), None),
            (None, budget, None, None),
            (within, budget, Some((0, 9_000_000)), of(2_000_000)),
            (within, budget, Some((0, 1)), None),
            (spent, budget, Some((0, 9_000_000)), None),
            (spent, Some(3_000_000), Some((0, 9_000_000)), of(3_000_000)),
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

    const MISSING: &str = "model \"m\" has no spec.price, which costPerDay needs";

    /// Returns these prices, and if so the problem that they are not those of now.
    fn effective(prices: Option<&str>, is_problem: bool) -> EffectivePrices {
        let problem = PriceProblem { reason: "PriceMissing", message: MISSING.to_owned() };
        EffectivePrices { prices: prices.and_then(ModelPrices::read), problem: is_problem.then_some(problem) }
    }

    #[test]
    fn a_budget_of_cost_needs_prices_and_the_last_ones_hold() {
        let one = Some("EUR, p/m 1 1 1 1");
        let spent =
            "its cost budget of today (2.5 EUR) is spent, 429 until 00:00 UTC: raise limits[workload].costPerDay";
        let unknown = Some(("Unknown", MISSING, "2026-01-02T00:00:01Z"));
        let stored = Some(("False", spent, "2026-01-02T00:00:01Z"));
        let lacking = || Some(BudgetChange::Unknown("PriceMissing", MISSING.to_owned()));
        let is_spent = || Some(BudgetChange::Spent(spent.to_owned()));
        for (stored, prices, cost, expected) in [
            (None, effective(None, true), 9_000_000_000, lacking()),
            (unknown, effective(None, true), 9_000_000_000, None),
            (None, effective(one, true), 2_499_999_999, lacking()),
            (None, effective(one, true), 2_500_000_000, is_spent()),
            (unknown, effective(one, true), 2_500_000_000, is_spent()),
            (stored, effective(one, true), 2_500_000_000, None),
            (stored, effective(one, true), 0, lacking()),
            (unknown, effective(one, false), 0, Some(BudgetChange::Within)),
            (None, effective(one, false), 2_499_999_999, None),
            (None, effective(one, false), 2_500_000_000, is_spent()),
            (stored, effective(one, false), 2_500_000_000, None),
            (stored, effective(one, false), 0, Some(BudgetChange::Within)),
            (None, effective(None, false), 9_000_000_000, None),
        ] {
            let budget = json!({"per": "workload", "costPerDay": "2.5"});
            let found = change_of(stored, Some(budget), &prices, Some((0, 0, cost)));
            assert_eq!(found, expected, "{stored:?} {prices:?} {cost}");
        }
    }

    #[test]
    fn tokens_are_spent_whether_there_are_prices_or_not() {
        let both = || Some(json!({"per": "workload", "tokensPerDay": 2_000_000, "costPerDay": "2.5"}));
        let cost = || Some(json!({"per": "workload", "costPerDay": "2.5"}));
        let spent = Some(("False", SPENT, "2026-01-02T00:00:01Z"));
        let yesterday = Some(("False", SPENT, "2026-01-01T23:59:59Z"));
        let lacking = || Some(BudgetChange::Unknown("PriceMissing", MISSING.to_owned()));
        for (stored, budget, reported, expected) in [
            (None, both(), Some((0, 2_000_000, 0)), Some(BudgetChange::Spent(SPENT.to_owned()))),
            (None, both(), Some((0, 1_999_999, 0)), lacking()),
            (spent, both(), Some((0, 2_000_000, 0)), None),
            (spent, both(), Some((0, 1, 0)), lacking()),
            (spent, both(), None, None),
            (yesterday, both(), None, lacking()),
            // Without prices there is no limit which is spent.
            (spent, cost(), None, lacking()),
        ] {
            let found = change_of(stored, budget.clone(), &effective(None, true), reported);
            assert_eq!(found, expected, "{stored:?} {budget:?} {reported:?}");
        }
    }

    #[test]
    fn the_condition_has_its_time_while_its_status_is_the_same() {
        let earlier = "2026-01-02T00:00:01Z";
        let status = json!({"conditions": [
            {"type": "WithinLimits", "status": "False", "message": "other", "lastTransitionTime": earlier},
        ]});
        for (change, since) in [
            (BudgetChange::Spent(SPENT.to_owned()), earlier),
            (BudgetChange::Within, "2026-01-02T00:00:04Z"),
            (BudgetChange::Unknown("PriceMissing", MISSING.to_owned()), "2026-01-02T00:00:04Z"),
        ] {
            let note = BudgetNote { change: Some(change), prices: None, reporting: None };
            let written = patch("u", 3, &status, &note, now());
            assert_eq!(written[2]["value"][0]["lastTransitionTime"], since, "{written}");
        }
    }

    #[test]
    fn the_condition_is_written_beside_those_of_others_and_removed() {
        let status = json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "WithinLimits", "status": "True"},
        ]});
        let others = status["conditions"][0].clone();
        let patched = |change, prices| patch("u", 3, &status, &BudgetNote { change, prices, reporting: None }, now());
        let written = |change: BudgetChange| patched(Some(change), None)[2]["value"].clone();
        let condition = json!({"type": "WithinLimits", "status": "False", "reason": "BudgetSpent", "message": SPENT,
            "observedGeneration": 3, "lastTransitionTime": "2026-01-02T00:00:04Z"});
        assert_eq!(written(BudgetChange::Spent(SPENT.to_owned())), json!([others, condition]));
        assert_eq!(written(BudgetChange::Within)[1]["status"], "True");
        assert_eq!(written(BudgetChange::Unknown("PriceMissing", "m".to_owned()))[1]["reason"], "PriceMissing");
        assert_eq!(written(BudgetChange::Remove), json!([others]));
        let uid = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        let prices = json!({"op": "add", "path": "/status/prices", "value": "EUR, p/m 1 1 1 1"});
        assert_eq!(patched(None, Some(Some("EUR, p/m 1 1 1 1".to_owned()))), json!([uid, prices]));
        assert_eq!(patched(None, Some(None))[1], json!({"op": "remove", "path": "/status/prices"}));
    }

    #[test]
    fn of_the_reports_of_gateways_that_of_the_latest_day_with_the_most_tokens_counts() {
        let id = WorkloadId { kind: "Agent", key: meta::Key::new("ns", "a") };
        let tokens = |(day, spent, cost)| ReportedTokens { day, spent, cost, reporting: None };
        for (reports, expected) in [
            ([(7, 50, 3), (7, 60, 2)], (7, 60, 3)),
            ([(7, 60, 2), (7, 50, 3)], (7, 60, 3)),
            ([(8, 1, 1), (7, 99, 9)], (8, 1, 1)),
            ([(7, 99, 9), (8, 1, 1)], (8, 1, 1)),
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
