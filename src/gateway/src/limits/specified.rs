//! Limits as the spec of a workload has them.

use serde::Deserialize;

use super::{LimitPer, RateLimits, TokenBudgets};

/// Limit in a spec. One that another version of the operator knows may lack all that this gateway does.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SpecifiedLimit {
    per: Box<str>,
    #[serde(default)]
    requests_per_minute: Option<u32>,
    #[serde(default)]
    tokens_per_day: Option<u64>,
    #[serde(default)]
    cost_per_day: Option<Box<str>>,
}

impl SpecifiedLimit {
    /// Returns the highest cost of a day, as it is written.
    pub(super) fn cost_per_day(&self) -> Option<&str> {
        self.cost_per_day.as_deref()
    }
}

/// Returns the limit of these requests.
pub(super) fn find(specified: &[SpecifiedLimit], per: LimitPer) -> Option<&SpecifiedLimit> {
    specified.iter().find(|limit| &*limit.per == per.as_str())
}

impl RateLimits {
    /// Reads the limits of requests; `None`: there are none.
    pub(crate) fn read(specified: &[SpecifiedLimit]) -> Option<Self> {
        let of = |per| find(specified, per)?.requests_per_minute.filter(|requests| *requests > 0);
        let limits = Self { per_workload: of(LimitPer::Workload), per_caller: of(LimitPer::Caller) };
        (limits != Self::default()).then_some(limits)
    }
}

impl TokenBudgets {
    /// Reads the budgets of tokens; `None`: there are none.
    pub(crate) fn read(specified: &[SpecifiedLimit]) -> Option<Self> {
        let of = |per| find(specified, per)?.tokens_per_day.filter(|tokens| *tokens > 0);
        let budgets = Self { per_workload: of(LimitPer::Workload), per_caller: of(LimitPer::Caller) };
        (budgets != Self::default()).then_some(budgets)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_kept_by_what_they_count() {
        let rates = |per_workload, per_caller| Some(RateLimits { per_workload, per_caller });
        let budgets = |per_workload, per_caller| Some(TokenBudgets { per_workload, per_caller });
        let minute = |per: &str, requests: u32| json!({ "per": per, "requestsPerMinute": requests });
        let day = |per: &str, tokens: u64| json!({ "per": per, "tokensPerDay": tokens });
        let both = json!({ "per": "caller", "requestsPerMinute": 1, "tokensPerDay": 2 });
        for (specified, expected) in [
            (json!([]), (None, None)),
            (json!([minute("caller", 10), minute("workload", 600)]), (rates(Some(600), Some(10)), None)),
            (json!([day("workload", 10_000_000_000_000)]), (None, budgets(Some(10_000_000_000_000), None))),
            (json!([both, day("workload", 5)]), (rates(None, Some(1)), budgets(Some(5), Some(2)))),
            // Those of a later version.
            (json!([minute("team", 1), { "per": "caller", "costPerDay": "3" }]), (None, None)),
        ] {
            let read: Vec<SpecifiedLimit> = serde_json::from_value(specified.clone()).unwrap();
            assert_eq!((RateLimits::read(&read), TokenBudgets::read(&read)), expected, "{specified}");
        }
    }
}
