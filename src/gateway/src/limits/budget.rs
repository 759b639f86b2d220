//! Budgets of tokens (`tokensPerDay`): how many tokens the models of a workload may use in a day (UTC), for all callers together and for
//! each. A request is refused while they are spent.
//!
//! What is [spent](super::spending) is known from the responses: our runner reports its totals of the day with each one
//! (`x-recif-spent`), those of requests that came by no gateway and of streams that clients left included. Of other images the gateway
//! counts what each response reports (`x-recif-usage`). Gateways tell one another what they know, with their admissions.
//!
//! Each request tells its Pod what is [left](RateLimiter::left), so that our runner ends a turn which has used that up before it asks a
//! model again. Above a budget at most those requests are served that are under way when it is spent, or begin within the 500 ms until
//! other gateways know. A gateway that restarts reads the sums from the others, and from the next response of each Pod; while it knows
//! nothing, it says so to the Pod, which takes off what it has counted.

use std::{
    fmt,
    sync::{MutexGuard, PoisonError},
    time::Duration,
};

use crds::usage::{LeftTokens, SpentTokens};

use super::{
    LimitPer, LimitTime, RateLimiter,
    report::{LimitKey, SpentCell},
    spending::SpendingTable,
};
use crate::{clients::ClientId, local_response::LocalResponse};

/// Budgets of a workload, in tokens of input and output a day; those of [cost](super::cost) are such too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenBudgets {
    /// Of all callers together.
    pub per_workload: Option<u64>,
    /// Of each caller.
    pub per_caller: Option<u64>,
}

/// Sums that a Pod's total was taken into, so that nothing is added to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TakenTotals {
    /// That of all callers.
    pub(crate) all: bool,
    /// That of the caller of the request.
    pub(crate) own: bool,
}

/// Tokens that are left for a request which a Pod gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodShare {
    left: LeftTokens,
    /// Totals of the Pod that are taken off already, if its run is known, or nothing of any Pod is taken off (run 0): what it has counted
    /// besides is not.
    seen: Option<SpentTokens>,
}

/// Writes the header. Runners that do not know `seen` read the rest.
impl fmt::Display for PodShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { left, seen } = self;
        write!(f, "{left}")?;
        if let Some(SpentTokens { run, all, own, .. }) = seen {
            if *run > 0 {
                write!(f, ", run=\"{run}\"")?;
            }
            write!(f, ", seen={all}")?;
            if let Some(own) = own {
                write!(f, ", seen-own={own}")?;
            }
        }
        Ok(())
    }
}

/// Refusal of a request for which no tokens are left, or nothing of their cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetRefusal {
    /// Requests that the budget is for.
    pub(crate) per: LimitPer,
    /// Tokens a day, or cost.
    pub(crate) budget: u64,
    /// Time until the next day, in milliseconds.
    pub(crate) wait: u64,
}

impl BudgetRefusal {
    /// Returns the response to a request for which no tokens are left.
    pub(crate) fn response(&self) -> LocalResponse {
        self.response_for(&format!("use {} tokens", self.budget))
    }

    /// Returns the response by what is allowed a day. Clients are not to repeat the request by themselves, as some would do until the
    /// next day.
    pub(super) fn response_for(&self, allowed: &str) -> LocalResponse {
        let Self { per, wait, .. } = *self;
        let subject = match per {
            LimitPer::Workload => "this workload",
            LimitPer::Caller => "each caller of this workload",
        };
        let error = format!("{subject} may {allowed} a day, and those of today are spent: wait until 00:00 UTC");
        LocalResponse {
            retry_after: Some(Duration::from_millis(wait.max(1))),
            field: Some(("x-should-retry", "false".into())),
            ..LocalResponse::new(429, "budget", error)
        }
    }
}

impl RateLimiter {
    /// Checks that tokens are left for a request. `workload` is such as `agent/default/weather`.
    ///
    /// # Errors
    /// A budget is spent.
    pub(crate) fn check_budgets(
        &self,
        budgets: &TokenBudgets,
        workload: &str,
        caller: impl FnOnce() -> ClientId,
        now: LimitTime,
    ) -> Result<(), BudgetRefusal> {
        let table = self.spending();
        let spent = |key: &LimitKey| table.spent(workload, key, now.day());
        let refusal = |per, budget| BudgetRefusal { per, budget, wait: now.until_next_day() };
        if let Some(budget) = budgets.per_workload
            && spent(&LimitKey::All) >= budget
        {
            return Err(refusal(LimitPer::Workload, budget));
        }
        if let Some(budget) = budgets.per_caller
            && spent(&LimitKey::Caller(caller())) >= budget
        {
            return Err(refusal(LimitPer::Caller, budget));
        }
        Ok(())
    }

    /// Returns the tokens that are left for a request, and those that the Pod which gets it has reported, by its run if that is known. After
    /// a restart of all gateways nothing is known of any Pod.
    pub(crate) fn left(
        &self,
        budgets: &TokenBudgets,
        workload: &str,
        caller: impl FnOnce() -> ClientId,
        run: Option<u64>,
        now: LimitTime,
    ) -> PodShare {
        let (mut table, day) = (self.spending(), now.day());
        let own_key = budgets.per_caller.map(|_| LimitKey::Caller(caller()));
        let left = |budget: u64, key: &LimitKey| budget.saturating_sub(table.spent(workload, key, day));
        let all = budgets.per_workload.map(|budget| left(budget, &LimitKey::All));
        let own = budgets.per_caller.zip(own_key.as_ref()).map(|(budget, key)| left(budget, key));
        let is_unspent = |key: &LimitKey| table.spent(workload, key, day) == 0;
        let is_nothing_known = run.is_none()
            && budgets.per_workload.is_none_or(|_| is_unspent(&LimitKey::All))
            && own_key.as_ref().is_none_or(is_unspent);
        // The total of callers without a name is not taken.
        let named = own_key.filter(|key| matches!(key, LimitKey::Caller(ClientId::User(_))));
        let seen = match run {
            Some(run) => {
                let spending = table.of_day(workload, day);
                let all = budgets.per_workload.map_or(Some(0), |_| spending.seen(&LimitKey::All, run));
                let own = named.and_then(|key| spending.seen(&key, run));
                all.map(|all| SpentTokens { day, run, all, own })
            }
            None => is_nothing_known.then(|| SpentTokens { day, run: 0, all: 0, own: named.map(|_| 0) }),
        };
        PodShare { left: LeftTokens { day, all, own }, seen }
    }

    /// Takes over the totals of a run of a Pod, as its response to this caller reports them.
    pub(crate) fn take_totals(
        &self,
        budgets: &TokenBudgets,
        workload: &str,
        caller: impl FnOnce() -> ClientId,
        totals: &SpentTokens,
        now: LimitTime,
    ) -> TakenTotals {
        // At midnight one of the clocks may be ahead: the next response has the total of the day.
        if totals.day != now.day() {
            return TakenTotals::default();
        }
        // The Pod counts callers without a name as one; the gateway counts each by its address.
        let own = budgets.per_caller.and(totals.own).and_then(|own| match caller() {
            user @ ClientId::User(_) => Some((LimitKey::Caller(user), own)),
            ClientId::Address(_) => None,
        });
        let mut table = self.spending_from(now);
        let mut spending = table.of_day(workload, totals.day);
        let version = || self.next_version();
        let all = budgets.per_workload.is_some() && spending.take_total(LimitKey::All, totals.run, totals.all, version);
        let own = own.is_some_and(|(key, own)| spending.take_total(key, totals.run, own, version));
        TakenTotals { all, own }
    }

    /// Counts the tokens of a response in the sums that the Pod's totals were not taken into.
    pub(crate) fn count_tokens(
        &self,
        budgets: &TokenBudgets,
        workload: &str,
        caller: impl FnOnce() -> ClientId,
        (tokens, taken): (u64, TakenTotals),
        now: LimitTime,
    ) {
        let all = budgets.per_workload.filter(|_| !taken.all).map(|_| LimitKey::All);
        let own = budgets.per_caller.filter(|_| !taken.own).map(|_| LimitKey::Caller(caller()));
        if tokens == 0 || (all.is_none() && own.is_none()) {
            return;
        }
        let mut table = self.spending_from(now);
        let mut spending = table.of_day(workload, now.day());
        for key in all.into_iter().chain(own) {
            spending.add(key, self.instance, tokens, || self.next_version());
        }
    }

    /// Returns the tokens that a workload has used today, for all callers.
    pub(crate) fn spent_today(&self, workload: &str, now: LimitTime) -> u64 {
        self.spending().spent(workload, &LimitKey::All, now.day())
    }

    /// Takes over cells of another gateway. Those of this one are known, and those of another day are left out, but for the next one: the
    /// other gateway, whose clock may be ahead at midnight, sends them only once.
    pub(super) fn merge_spent(&self, cells: &[SpentCell], now: LimitTime) {
        let mut table = self.spending_from(now);
        let days = now.day()..=now.day().saturating_add(1);
        for cell in cells.iter().filter(|cell| cell.instance != self.instance && days.contains(&cell.day)) {
            let Some(key) = LimitKey::read(&cell.key) else { continue };
            table.of_day(&cell.workload, cell.day).merge(key, cell.instance, cell.tokens, || self.next_version());
        }
    }

    /// Locks the spending for a change, without the days that are over.
    fn spending_from(&self, now: LimitTime) -> MutexGuard<'_, SpendingTable> {
        let mut table = self.spending();
        table.sweep(now.day());
        table
    }

    pub(super) fn spending(&self) -> MutexGuard<'_, SpendingTable> {
        self.spending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    const BUDGETS: TokenBudgets = TokenBudgets { per_workload: Some(100), per_caller: Some(60) };
    const NAME: &str = "agent/ns/a";
    const NOW: LimitTime = LimitTime { unix: 20_784 * 86_400_000 + 1000, up: 1000 };
    const TOMORROW: LimitTime = LimitTime { unix: 20_785 * 86_400_000, up: 2000 };

    fn user(name: &str) -> ClientId {
        ClientId::User(name.into())
    }

    fn count(gateway: &RateLimiter, name: &str, tokens: u64) {
        gateway.count_tokens(&BUDGETS, NAME, || user(name), (tokens, TakenTotals::default()), NOW);
    }

    fn refused(gateway: &RateLimiter, name: &str, now: LimitTime) -> Option<LimitPer> {
        gateway.check_budgets(&BUDGETS, NAME, || user(name), now).err().map(|refusal| refusal.per)
    }

    /// Lets the first gateway ask the second one, at its address, until both know all.
    fn exchange(one: &RateLimiter, other: &RateLimiter) {
        let address = SocketAddr::from(([10, 0, 0, 2], 8081));
        one.list(&[address]);
        for _ in 0..3 {
            let answer = other.answer(&one.question(address, NOW), NOW);
            one.take_answer(address, &answer, NOW);
        }
    }

    #[test]
    fn a_caller_is_refused_before_others_and_all_once_the_workload_has_spent_its_own() {
        let gateway = RateLimiter::default();
        count(&gateway, "ada", 59);
        assert_eq!(refused(&gateway, "ada", NOW), None, "one token is left");
        count(&gateway, "ada", 2);
        assert_eq!((refused(&gateway, "ada", NOW), refused(&gateway, "ben", NOW)), (Some(LimitPer::Caller), None));
        count(&gateway, "ben", 39);
        assert_eq!(refused(&gateway, "cleo", NOW), Some(LimitPer::Workload));
        let refusal = gateway.check_budgets(&BUDGETS, NAME, || user("cleo"), NOW).unwrap_err();
        assert_eq!((refusal.budget, refusal.wait), (100, 86_400_000 - 1000));
        assert_eq!(refused(&gateway, "ada", TOMORROW), None, "the next day begins");
        let left = |name: &str, now: LimitTime| gateway.left(&BUDGETS, NAME, || user(name), None, now).left;
        let (day, all) = (NOW.day(), Some(0));
        assert_eq!(left("ada", NOW), LeftTokens { day, all, own: Some(0) }, "not less than none");
        assert_eq!(left("ben", NOW), LeftTokens { day, all, own: Some(21) });
        assert_eq!(left("ben", TOMORROW), LeftTokens { day: day + 1, all: Some(100), own: Some(60) });
        let none = TokenBudgets { per_workload: None, ..BUDGETS };
        let share = gateway.left(&none, NAME, || user("cleo"), None, NOW);
        assert_eq!(share.left, LeftTokens { day, all: None, own: Some(60) });
    }

    #[test]
    fn the_totals_of_a_pod_are_taken_and_nothing_is_added_to_them() {
        let gateway = RateLimiter::default();
        let total = |all: u64, own: Option<u64>| SpentTokens { day: NOW.day(), run: 5, all, own };
        let take = |totals: SpentTokens, caller: &ClientId| {
            gateway.take_totals(&BUDGETS, NAME, || caller.clone(), &totals, NOW)
        };
        let (ada, address) = (user("ada"), ClientId::Address([192, 0, 2, 1].into()));
        for (all, own) in [(40, 40), (30, 30), (40, 40)] {
            let taken = take(total(all, Some(own)), &ada);
            assert_eq!(taken, TakenTotals { all: true, own: true });
            gateway.count_tokens(&BUDGETS, NAME, || ada.clone(), (9, taken), NOW);
        }
        assert_eq!(gateway.spent_today(NAME, NOW), 40);
        let taken = take(total(50, None), &address);
        assert_eq!(taken, TakenTotals { all: true, own: false });
        gateway.count_tokens(&BUDGETS, NAME, || address.clone(), (60, taken), NOW);
        assert_eq!(gateway.spent_today(NAME, NOW), 50);
        assert!(gateway.check_budgets(&BUDGETS, NAME, || address, NOW).is_err(), "its own tokens are counted here");
        assert_eq!(take(SpentTokens { day: NOW.day() + 1, ..total(999, None) }, &ada), TakenTotals::default());
        assert_eq!(gateway.spent_today(NAME, NOW), 50, "that of another day");
    }

    #[test]
    fn a_pod_gets_to_know_which_of_its_tokens_are_taken_off() {
        let gateway = RateLimiter::default();
        let seen = |name: &str, run: u64| {
            let seen = gateway.left(&BUDGETS, NAME, || user(name), Some(run), NOW).seen.unwrap();
            (seen.run, seen.all, seen.own)
        };
        assert_eq!(seen("ada", 5), (5, 0, Some(0)), "what it has counted is not known");
        let totals = SpentTokens { day: NOW.day(), run: 5, all: 40, own: Some(30) };
        gateway.take_totals(&BUDGETS, NAME, || user("ada"), &totals, NOW);
        count(&gateway, "ada", 7);
        assert_eq!((seen("ada", 5), seen("ben", 5)), ((5, 40, Some(30)), (5, 40, Some(0))));
        assert_eq!(seen("ada", 6), (6, 0, Some(0)), "another Pod");
        let share = gateway.left(&BUDGETS, NAME, || user("ada"), Some(5), NOW).to_string();
        assert_eq!(share, "day=20784, all=53, own=23, run=\"5\", seen=40, seen-own=30");
        let address = || ClientId::Address([192, 0, 2, 1].into());
        assert_eq!(gateway.left(&BUDGETS, NAME, address, Some(5), NOW).seen.unwrap().own, None);
        for run in 10..300 {
            gateway.take_totals(&BUDGETS, NAME, || user("ada"), &SpentTokens { run, ..totals }, NOW);
        }
        let share = gateway.left(&BUDGETS, NAME, || user("ada"), Some(299), NOW);
        assert_eq!(share.seen, None, "the gateways count what it uses");
    }

    #[test]
    fn after_a_restart_of_all_gateways_a_pod_gets_to_know_that_nothing_is_taken_off() {
        let restarted = RateLimiter::default();
        let share = || restarted.left(&BUDGETS, NAME, || user("ada"), None, NOW).to_string();
        assert_eq!(share(), "day=20784, all=100, own=60, seen=0, seen-own=0");
        let totals = SpentTokens { day: NOW.day(), run: 5, all: 95, own: Some(58) };
        restarted.take_totals(&BUDGETS, NAME, || user("ada"), &totals, NOW);
        assert_eq!(share(), "day=20784, all=5, own=2", "of another Pod it may be");
    }

    #[test]
    fn what_a_gateway_whose_clock_is_ahead_has_counted_is_known_once_the_day_begins() {
        let (behind, ahead) = (RateLimiter::default(), RateLimiter::default());
        let address = SocketAddr::from(([10, 0, 0, 2], 8081));
        behind.list(&[address]);
        let ask = |now: LimitTime| {
            let answer = ahead.answer(&behind.question(address, now), TOMORROW);
            behind.take_answer(address, &answer, now);
            answer.spent.len()
        };
        ask(NOW);
        count(&behind, "ada", 7);
        ahead.count_tokens(&BUDGETS, NAME, || user("ada"), (61, TakenTotals::default()), TOMORROW);
        assert_eq!(ask(NOW), 2, "that of all, and that of the caller");
        assert_eq!((behind.spent_today(NAME, NOW), behind.spent_today(NAME, TOMORROW)), (7, 61));
        assert_eq!(ask(TOMORROW), 0, "nothing is sent again");
        assert_eq!(refused(&behind, "ada", TOMORROW), Some(LimitPer::Caller));
    }

    #[test]
    fn gateways_add_up_what_each_has_counted_and_one_that_restarts_forgets_nothing() {
        let (one, other) = (RateLimiter::default(), RateLimiter::default());
        count(&one, "ada", 30);
        count(&other, "ada", 31);
        exchange(&one, &other);
        assert_eq!((one.spent_today(NAME, NOW), other.spent_today(NAME, NOW)), (61, 61));
        assert_eq!([&one, &other].map(|gateway| refused(gateway, "ada", NOW)), [Some(LimitPer::Caller); 2]);
        exchange(&one, &other);
        assert_eq!(one.spent_today(NAME, NOW), 61, "what comes again changes nothing");
        drop(one);
        let restarted = RateLimiter::default();
        exchange(&restarted, &other);
        assert_eq!(restarted.spent_today(NAME, NOW), 61);
        count(&restarted, "ben", 40);
        exchange(&restarted, &other);
        assert_eq!(refused(&other, "cleo", NOW), Some(LimitPer::Workload));
        restarted.sweep(TOMORROW);
        assert_eq!(restarted.spent_today(NAME, NOW), 0, "yesterday's cells are gone");
    }
}
