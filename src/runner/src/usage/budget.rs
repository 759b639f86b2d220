//! Budget of one request of a client: how many tokens its turn may use before no further request goes to a model.
//!
//! The gateway says with the request what is left of today's budgets ([`LeftTokens`]). From then on all that the process counts is
//! taken off, so that the turns which run beside this one share what is left.

use crds::usage::{LeftTokens, SpentTokens, day_of};

use super::UsageLedger;

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// Budget of one request of a client.
#[derive(Debug)]
pub(super) struct RequestBudget {
    /// What was left as the request was sent.
    left: LeftTokens,
    /// What the process had counted as it came.
    before: SpentTokens,
    ledger: UsageLedger,
}

impl RequestBudget {
    /// Creates the budget of a request of this caller that has just come; empty: not known.
    pub(super) fn new(left: LeftTokens, caller: &str, ledger: &UsageLedger) -> Self {
        Self { left, before: ledger.spent(left.day, caller), ledger: ledger.clone() }
    }

    /// Returns the seconds until the next day if it is spent. `used` are the tokens of the request itself, and `now` is in seconds
    /// since 1970.
    pub(super) fn wait(&self, caller: &str, used: u64, now: i64) -> Option<u64> {
        // The next day has budgets of its own, of which nothing is known.
        if day_of(now) != self.left.day {
            return None;
        }
        let counted = self.ledger.spent(self.left.day, caller);
        let all = counted.all.saturating_sub(self.before.all);
        // Callers without a name are one to the process, so only the request itself counts for them.
        let own = counted.own.zip(self.before.own).map_or(used, |(own, before)| own.saturating_sub(before));
        let is_spent = |left: Option<u64>, tokens: u64| left.is_some_and(|left| tokens >= left);
        let wait = DAY_SECONDS - now.rem_euclid(DAY_SECONDS);
        (is_spent(self.left.all, all) || is_spent(self.left.own, own)).then_some(wait.unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use crds::usage::{UsageKey, UsageTotals};

    use super::*;

    const DAY: i64 = 20_784;
    const NOON: i64 = DAY * DAY_SECONDS + DAY_SECONDS / 2;

    fn count(ledger: &UsageLedger, caller: &str, tokens: u64) {
        let key = UsageKey { hour: DAY * 24, caller: caller.into(), ..UsageKey::default() };
        ledger.count("p/m", key, &UsageTotals { input: tokens, ..UsageTotals::default() });
    }

    fn budget(ledger: &UsageLedger, caller: &str, all: Option<u64>, own: Option<u64>) -> RequestBudget {
        RequestBudget::new(LeftTokens { day: DAY, all, own }, caller, ledger)
    }

    #[test]
    fn what_the_process_counts_from_then_on_is_taken_off() {
        let ledger = UsageLedger::default();
        count(&ledger, "ada", 1000);
        let budget = budget(&ledger, "ada", Some(30), None);
        count(&ledger, "ada", 10);
        count(&ledger, "ben", 19);
        assert_eq!(budget.wait("ada", 10, NOON), None, "one token is left");
        count(&ledger, "", 1);
        assert_eq!(budget.wait("ada", 10, NOON), Some(43_200));
        assert_eq!(budget.wait("ada", 10, NOON + 43_199), Some(1));
        assert_eq!(budget.wait("ada", 10, NOON + 43_200), None, "the next day has its own budget");
    }

    #[test]
    fn the_budget_of_a_caller_is_used_by_that_caller_alone() {
        let ledger = UsageLedger::default();
        let (ada, nameless) = (budget(&ledger, "ada", None, Some(30)), budget(&ledger, "", None, Some(30)));
        count(&ledger, "ben", 50);
        count(&ledger, "ada", 29);
        assert_eq!((ada.wait("ada", 0, NOON), nameless.wait("", 29, NOON)), (None, None));
        count(&ledger, "ada", 1);
        assert_eq!((ada.wait("ada", 0, NOON), nameless.wait("", 30, NOON)), (Some(43_200), Some(43_200)));
        let none = budget(&ledger, "ada", None, None);
        assert_eq!(none.wait("ada", 1000, NOON), None, "there is no budget");
        assert!(budget(&ledger, "ada", Some(0), None).wait("ada", 0, NOON).is_some(), "nothing was left");
    }
}
