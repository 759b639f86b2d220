//! Budget of one request of a client: how many tokens its turn may use, or what these may cost, before no further request goes to a
//! model.
//!
//! The gateway says with the request what is left of today's budgets ([`LeftTokens`]), the prices, and which totals of this process it has
//! taken off. All that the process has counted besides is taken off here, so that the turns which run beside this one share what is left.

use std::sync::Arc;

use crds::usage::{LeftTokens, ModelPrices, SpentTokens, UsageTotals, day_of};

use super::{UsageLedger, terms::BudgetTerms};

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;
/// Run of a process for totals that are those of any run.
const ANY_RUN: u64 = 0;

/// Budget of one request of a client.
#[derive(Debug)]
pub(super) struct RequestBudget {
    terms: BudgetTerms,
    ledger: UsageLedger,
}

/// End of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetEnd {
    /// Seconds until the next day.
    pub(crate) wait: u64,
    /// What it is a budget of: token or cost.
    pub(crate) unit: &'static str,
}

impl RequestBudget {
    /// Creates the budget of a request of this caller that has just come; empty: not known. `seen` are the totals of a run of the process
    /// that are taken off from what is left.
    pub(super) fn new(
        (left, seen): (LeftTokens, Option<SpentTokens>),
        prices: Option<ModelPrices>,
        caller: &str,
        ledger: &UsageLedger,
    ) -> Self {
        let mut before = counted(ledger, left.day, caller, prices.as_ref());
        if let Some(seen) = seen.filter(|seen| [before.run, ANY_RUN].contains(&seen.run)) {
            before = SpentTokens { all: seen.all, own: before.own.map(|own| seen.own.unwrap_or(own)), ..before };
        }
        Self::with_terms(BudgetTerms { left, before, prices: prices.map(Arc::new) }, ledger)
    }

    /// Creates the budget of a request that came by no gateway, of what one said before.
    pub(super) fn with_terms(terms: BudgetTerms, ledger: &UsageLedger) -> Self {
        Self { terms, ledger: ledger.clone() }
    }

    /// Returns what it says of all callers; `None`: nothing.
    pub(super) fn terms_of_all(&self) -> Option<BudgetTerms> {
        self.terms.of_all()
    }

    /// Returns the prices, if it is a budget of cost.
    pub(super) fn prices(&self) -> Option<&ModelPrices> {
        self.terms.prices.as_deref()
    }

    /// Returns the end of the budget if it is spent. `used` are the first model and the tokens of the request itself, and `now` is in
    /// seconds since 1970.
    pub(super) fn end(&self, caller: &str, used: (&str, &UsageTotals), now: i64) -> Option<BudgetEnd> {
        let is_spent = self.left(caller, used, now)? == 0;
        let wait = (DAY_SECONDS - now.rem_euclid(DAY_SECONDS)).unsigned_abs();
        let unit = if self.prices().is_some() { "cost" } else { "token" };
        is_spent.then_some(BudgetEnd { wait, unit })
    }

    /// Returns what is left of the budget, in tokens or in 10⁻⁹ of the currency; `None`: there is none, or nothing is known.
    pub(super) fn left(&self, caller: &str, used: (&str, &UsageTotals), now: i64) -> Option<u64> {
        let BudgetTerms { left, before, .. } = &self.terms;
        // The next day has budgets of its own, of which nothing is known.
        if day_of(now) != left.day {
            return None;
        }
        let counted = counted(&self.ledger, left.day, caller, self.prices());
        let (model, totals) = used;
        let used = match self.prices() {
            None => totals.input.saturating_add(totals.output),
            Some(prices) => prices.cost([(model, totals.priced())]),
        };
        let all = counted.all.saturating_sub(before.all);
        // Callers without a name are one to the process, so only the request itself counts for them.
        let own = counted.own.zip(before.own).map_or(used, |(own, before)| own.saturating_sub(before));
        let rest = |left: Option<u64>, used: u64| Some(left?.saturating_sub(used));
        [rest(left.all, all), rest(left.own, own)].into_iter().flatten().min()
    }
}

/// Reads what a gateway says is left, and the totals of a run of this process that are taken off already, if it knows these.
pub(super) fn read_left(header: &str) -> Option<(LeftTokens, Option<SpentTokens>)> {
    let left = LeftTokens::read(header.as_bytes())?;
    Some((left, read_seen(header, left.day)))
}

fn read_seen(header: &str, day: i64) -> Option<SpentTokens> {
    let member = |name: &str| {
        let mut members = header.split(',').filter_map(|member| member.trim().split_once('='));
        members.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let all = member("seen")?.parse::<u64>().ok()?;
    let run = match member("run") {
        Some(run) => run.strip_prefix('"')?.strip_suffix('"')?.parse().ok()?,
        // The gateway knows nothing of any process.
        None if all == 0 => ANY_RUN,
        None => return None,
    };
    let own = member("seen-own").and_then(|own| own.parse().ok());
    Some(SpentTokens { day, run, all, own })
}

/// Returns the tokens that the process has counted, or with prices their cost.
fn counted(ledger: &UsageLedger, day: i64, caller: &str, prices: Option<&ModelPrices>) -> SpentTokens {
    match prices {
        None => ledger.spent(day, caller),
        Some(prices) => ledger.cost(day, caller, prices),
    }
}

#[cfg(test)]
mod tests {
    use crds::usage::UsageKey;

    use super::*;

    const DAY: i64 = 20_784;
    const NOON: i64 = DAY * DAY_SECONDS + DAY_SECONDS / 2;

    fn count(ledger: &UsageLedger, caller: &str, tokens: u64) {
        let key = UsageKey { hour: DAY * 24, caller: caller.into(), ..UsageKey::default() };
        ledger.count("p/m", key, &UsageTotals { input: tokens, ..UsageTotals::default() });
    }

    fn budget(ledger: &UsageLedger, caller: &str, all: Option<u64>, own: Option<u64>) -> RequestBudget {
        RequestBudget::new((LeftTokens { day: DAY, all, own }, None), None, caller, ledger)
    }

    /// Returns the seconds until the next day if the budget is spent, for a request that has used so many tokens.
    fn wait(budget: &RequestBudget, caller: &str, used: u64, now: i64) -> Option<u64> {
        let totals = UsageTotals { input: used, ..UsageTotals::default() };
        budget.end(caller, ("p/m", &totals), now).map(|end| end.wait)
    }

    #[test]
    fn what_the_process_counts_from_then_on_is_taken_off() {
        let ledger = UsageLedger::default();
        count(&ledger, "ada", 1000);
        let budget = budget(&ledger, "ada", Some(30), None);
        count(&ledger, "ada", 10);
        count(&ledger, "ben", 19);
        assert_eq!(wait(&budget, "ada", 10, NOON), None, "one token is left");
        count(&ledger, "", 1);
        assert_eq!(wait(&budget, "ada", 10, NOON), Some(43_200));
        assert_eq!(wait(&budget, "ada", 10, NOON + 43_199), Some(1));
        assert_eq!(wait(&budget, "ada", 10, NOON + 43_200), None, "the next day has its own budget");
    }

    #[test]
    fn the_budget_of_a_caller_is_used_by_that_caller_alone() {
        let ledger = UsageLedger::default();
        let (ada, nameless) = (budget(&ledger, "ada", None, Some(30)), budget(&ledger, "", None, Some(30)));
        count(&ledger, "ben", 50);
        count(&ledger, "ada", 29);
        assert_eq!((wait(&ada, "ada", 0, NOON), wait(&nameless, "", 29, NOON)), (None, None));
        count(&ledger, "ada", 1);
        assert_eq!((wait(&ada, "ada", 0, NOON), wait(&nameless, "", 30, NOON)), (Some(43_200), Some(43_200)));
        let none = budget(&ledger, "ada", None, None);
        assert_eq!(wait(&none, "ada", 1000, NOON), None, "there is no budget");
        assert!(wait(&budget(&ledger, "ada", Some(0), None), "ada", 0, NOON).is_some(), "nothing was left");
    }

    #[test]
    fn what_a_gateway_said_holds_for_requests_that_come_by_none() {
        let ledger = UsageLedger::default();
        let of_gateway = budget(&ledger, "ada", Some(30), Some(5));
        count(&ledger, "ada", 10);
        let later = RequestBudget::with_terms(of_gateway.terms_of_all().unwrap(), &ledger);
        assert_eq!(later.left("", ("p/m", &UsageTotals::default()), NOON), Some(20), "no caller's own budget");
        count(&ledger, "", 20);
        assert_eq!((wait(&later, "", 0, NOON), wait(&later, "", 0, NOON + 43_200)), (Some(43_200), None));
        assert!(budget(&ledger, "ada", None, Some(5)).terms_of_all().is_none());
    }

    #[test]
    fn what_is_taken_off_already_is_read_beside_what_is_left() {
        let left = LeftTokens { day: DAY, all: Some(7), own: Some(3) };
        let seen = |own: Option<u64>| Some(SpentTokens { day: DAY, run: 1_795_763_226_123_456_789, all: 40, own });
        for (more, expected) in [
            ("", None),
            (", run=\"1795763226123456789\", seen=40, seen-own=30", seen(Some(30))),
            (", run=\"1795763226123456789\", seen=40", seen(None)),
            (", run=1795763226123456789, seen=40", None),
            (", seen=40", None),
            (", seen=0, seen-own=0", Some(SpentTokens { day: DAY, run: ANY_RUN, all: 0, own: Some(0) })),
            (", run=\"5\", seen=-1", None),
        ] {
            assert_eq!(read_left(&format!("{left}{more}")), Some((left, expected)), "{more}");
        }
        assert_eq!(read_left("run=\"5\", seen=40"), None);
    }

    #[test]
    fn what_turns_beside_it_used_before_it_came_is_taken_off_too() {
        let ledger = UsageLedger::default();
        count(&ledger, "ada", 10);
        let seen = ledger.spent(DAY, "ada");
        // The gateway does not know of these yet.
        count(&ledger, "ada", 20);
        count(&ledger, "ben", 5);
        let left = LeftTokens { day: DAY, all: Some(30), own: Some(21) };
        let new = |left: LeftTokens, seen: SpentTokens| RequestBudget::new((left, Some(seen)), None, "ada", &ledger);
        let (budget, of_all) = (new(left, seen), new(LeftTokens { own: None, ..left }, seen));
        assert_eq!((wait(&budget, "ada", 0, NOON), wait(&of_all, "ada", 0, NOON)), (None, None));
        count(&ledger, "ada", 1);
        assert!(wait(&budget, "ada", 1, NOON).is_some());
        assert_eq!(wait(&of_all, "ada", 1, NOON), None, "four are left");
        count(&ledger, "ben", 4);
        assert!(wait(&of_all, "ada", 1, NOON).is_some());
        let other = new(left, SpentTokens { run: 1, ..seen });
        assert_eq!(wait(&other, "ada", 0, NOON), None, "an earlier run");
    }

    #[test]
    fn of_a_gateway_that_knows_of_no_process_all_that_this_one_has_counted_is_taken_off() {
        let ledger = UsageLedger::default();
        count(&ledger, "ada", 25);
        let new = |header: &str| RequestBudget::new(read_left(header).unwrap(), None, "ada", &ledger);
        let restarted = new("day=20784, all=30, own=26, seen=0, seen-own=0");
        let older = new("day=20784, all=30, own=26");
        assert_eq!((wait(&restarted, "ada", 0, NOON), wait(&older, "ada", 0, NOON)), (None, None));
        count(&ledger, "ada", 1);
        assert_eq!((wait(&restarted, "ada", 1, NOON), wait(&older, "ada", 1, NOON)), (Some(43_200), None));
    }

    #[test]
    fn a_budget_of_cost_counts_by_the_prices_of_the_request() {
        let ledger = UsageLedger::default();
        let prices = ModelPrices::read("EUR, p/m 2000000 0 0 0").unwrap();
        let left = LeftTokens { day: DAY, all: Some(60_000), own: None };
        let budget = RequestBudget::new((left, None), Some(prices), "ada", &ledger);
        count(&ledger, "ada", 29);
        assert_eq!(wait(&budget, "ada", 0, NOON), None);
        count(&ledger, "ada", 1);
        let end = budget.end("ada", ("p/m", &UsageTotals::default()), NOON);
        assert_eq!(end, Some(BudgetEnd { wait: 43_200, unit: "cost" }));
    }
}
