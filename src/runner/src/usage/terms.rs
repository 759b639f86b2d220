//! What a gateway said is left of the budgets of a day.
//!
//! The newest word holds for requests that come by no gateway, too: those of Tools with `agentRef` and `flowRef`.

use std::sync::Arc;

use crds::usage::{LeftTokens, ModelPrices, SpentTokens, day_of};

/// Seconds after which it is not known any more what is left.
const FRESH_SECONDS: i64 = 300;

/// What a gateway said is left of a budget, and from which count of the process on.
#[derive(Debug, Clone)]
pub(super) struct BudgetTerms {
    /// What was left as the request was sent.
    pub(super) left: LeftTokens,
    /// What the process had counted of what is taken off; where the gateway does not say that, as the request came.
    pub(super) before: SpentTokens,
    /// Prices, if it is a budget of cost.
    pub(super) prices: Option<Arc<ModelPrices>>,
}

/// Newest word of a gateway on the budgets of all callers.
#[derive(Debug, Default)]
pub(super) struct LatestBudgets {
    /// Budgets: of tokens, of cost, both or none.
    pub(super) budgets: Vec<BudgetTerms>,
    /// Time of the word, in seconds since 1970.
    pub(super) at: i64,
}

impl BudgetTerms {
    /// Returns the terms for all callers; `None`: they are of one caller alone.
    pub(super) fn of_all(&self) -> Option<Self> {
        self.left.all?;
        let (left, before) = (LeftTokens { own: None, ..self.left }, SpentTokens { own: None, ..self.before });
        Some(Self { left, before, prices: self.prices.clone() })
    }
}

impl LatestBudgets {
    /// Reports whether it is known what is left: the word is of today and not older than five minutes, or there is no budget. `now`
    /// is in seconds since 1970.
    pub(super) fn is_known(&self, now: i64) -> bool {
        let is_fresh = now.saturating_sub(self.at) < FRESH_SECONDS;
        self.budgets.iter().all(|terms| is_fresh && terms.left.day == day_of(now))
    }
}
