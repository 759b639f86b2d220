//! Budgets of cost (`costPerDay`): what the tokens of a workload may cost in a day (UTC).
//!
//! They hold as those of [tokens](super::budget) do, in 10⁻⁹ of a currency. The operator writes the prices of the models into the status
//! of the workload; each request takes them to its Pod, which reports the cost that it has counted today (`x-recif-cost`).

use crds::{
    digest::sha256_hex,
    usage::{ModelPrices, ReportedUsage, millionths},
};
use serde::Serialize;

use super::{BudgetRefusal, LimitPer, SpecifiedLimit, TokenBudgets, specified};
use crate::local_response::LocalResponse;

/// Digits of the digest of prices in a name: gateways that differ in them count apart.
const DIGEST_DIGITS: usize = 12;

/// Budgets of cost of a workload, with the prices by which it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostBudgets {
    /// Budgets in 10⁻⁹ of the currency.
    pub budgets: TokenBudgets,
    /// Prices of its models.
    pub prices: ModelPrices,
    /// Beginning of the names by which costs at these prices are counted.
    prefix: Box<str>,
}

/// Cost of a request, as its line of audit has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct RequestCost {
    /// Decimal number with at least two digits behind the point.
    amount: String,
    /// Currency, by its three letters.
    currency: String,
}

impl CostBudgets {
    /// Creates budgets in 10⁻⁹ of the currency of the prices.
    pub fn new(budgets: TokenBudgets, prices: ModelPrices) -> Self {
        let digest: String = sha256_hex(prices.to_string().as_bytes()).chars().take(DIGEST_DIGITS).collect();
        Self { budgets, prices, prefix: format!("cost:{digest}:").into() }
    }

    /// Reads the budgets of cost; `None`: there are none, or the status has no prices yet.
    pub(crate) fn read(specified: &[SpecifiedLimit], prices: Option<&str>) -> Option<Self> {
        let of = |per| Some(millionths(specified::find(specified, per)?.cost_per_day()?)?.saturating_mul(1000));
        let budgets = TokenBudgets { per_workload: of(LimitPer::Workload), per_caller: of(LimitPer::Caller) };
        let prices = prices.filter(|_| budgets != TokenBudgets::default()).and_then(ModelPrices::read)?;
        Some(Self::new(budgets, prices))
    }

    /// Returns the name by which the cost of a workload is counted, beside its tokens. Cells only grow, so other prices have another name:
    /// the Pods tell what the tokens of the day cost at these, which may be less, or in another currency.
    pub(crate) fn name(&self, workload: &str) -> String {
        [&*self.prefix, workload].concat()
    }

    /// Returns the cost of the usage that a response reports, in 10⁻⁹ of the currency.
    pub(crate) fn cost(&self, usage: &ReportedUsage) -> u64 {
        self.prices.cost([(usage.model.as_deref().unwrap_or_default(), usage.totals().priced())])
    }

    /// Returns the same as an amount with its currency.
    pub(crate) fn amount(&self, usage: &ReportedUsage) -> RequestCost {
        RequestCost { amount: decimal(self.cost(usage)), currency: self.prices.currency().to_owned() }
    }

    /// Returns the response to a request for which nothing is left.
    pub(crate) fn response(&self, refusal: &BudgetRefusal) -> LocalResponse {
        refusal.response_for(&format!("cost {} {}", decimal(refusal.budget), self.prices.currency()))
    }
}

/// Returns 10⁻⁹ of a currency as a decimal number with at least two digits behind the point.
fn decimal(nanos: u64) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    let least = text.len() - 7;
    let end = text.trim_end_matches('0').len().max(least);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PRICES: &str = "EUR, openai/gpt-5 3000000 300000 3750000 15000000";

    #[test]
    fn budgets_of_cost_need_prices() {
        let limits = json!([{ "per": "workload", "costPerDay": "2.5" }, { "per": "caller", "tokensPerDay": 1 }]);
        let read = |limits: &serde_json::Value, prices| {
            let specified: Vec<SpecifiedLimit> = serde_json::from_value(limits.clone()).unwrap();
            CostBudgets::read(&specified, prices)
        };
        let found = read(&limits, Some(PRICES)).unwrap();
        let budgets = TokenBudgets { per_workload: Some(2_500_000_000), per_caller: None };
        assert_eq!((found.budgets, found.prices.to_string().as_str()), (budgets, PRICES));
        assert_eq!((read(&limits, None), read(&limits, Some("no prices"))), (None, None));
        assert_eq!(read(&json!([{ "per": "caller", "tokensPerDay": 1 }]), Some(PRICES)), None);
        let refusal = BudgetRefusal { per: LimitPer::Workload, budget: 2_500_000_000, wait: 1000 };
        let response = found.response(&refusal);
        assert_eq!(
            response.error,
            "this workload may cost 2.50 EUR a day, and those of today are spent: wait until 00:00 UTC"
        );
    }

    #[test]
    fn costs_at_other_prices_are_counted_apart() {
        let name = |prices: &str| {
            let prices = ModelPrices::read(prices).unwrap();
            CostBudgets::new(TokenBudgets::default(), prices).name("agent/ns/a")
        };
        let euros = name(PRICES);
        assert_eq!(euros, name(PRICES));
        assert!(euros.starts_with("cost:") && euros.ends_with(":agent/ns/a"), "{euros}");
        assert_ne!(euros, name(&PRICES.replace("EUR", "USD")));
        assert_ne!(euros, name(&PRICES.replace("3000000", "300000")));
    }

    #[test]
    fn amounts_are_decimal_numbers() {
        for (nanos, text) in [(0, "0.00"), (1, "0.000000001"), (2_500_000_000, "2.50"), (12_075_000_000, "12.075")] {
            assert_eq!(decimal(nanos), text);
        }
    }
}
