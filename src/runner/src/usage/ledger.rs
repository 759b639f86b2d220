//! Counter of the process.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crds::usage::{
    CountedCells, ModelPrices, SpentTokens, UsageKey, UsageReport, UsageTotals, cut_name, day_of_hour, priced_name,
};
use jiff::Timestamp;

use super::day_sums::{DaySums, TokenSum};
use super::metrics::UsageMetrics;
use super::terms::{BudgetTerms, LatestBudgets};

/// Bytes for each token of a model that has not reported its tokens yet.
const BYTES_PER_TOKEN: u64 = 4;

/// Counter of the usage of models in this process. Clones share it.
#[derive(Clone)]
pub(crate) struct UsageLedger {
    state: Arc<Mutex<LedgerState>>,
    /// What is left of the budgets of all callers. Under a lock of its own, since each request takes it, and none is to wait for a report.
    latest: Arc<Mutex<LatestBudgets>>,
    metrics: UsageMetrics,
}

/// Cells and ratios under one lock.
#[derive(Debug)]
struct LedgerState {
    /// This run of the process: its start, in nanoseconds.
    run: u64,
    /// Cells. The name of the run is the same number.
    cells: CountedCells,
    /// Tokens of the newest day.
    today: DaySums,
    ratios: HashMap<Arc<str>, TokenRatio>,
}

/// Bytes and tokens of the requests whose tokens a model reported.
#[derive(Debug, Default)]
struct TokenRatio {
    bytes: u64,
    tokens: u64,
}

impl Default for UsageLedger {
    fn default() -> Self {
        let started = Timestamp::now().as_nanosecond();
        let state = LedgerState {
            run: u64::try_from(started).unwrap_or_default(),
            cells: CountedCells::new(started.to_string()),
            today: DaySums::default(),
            ratios: HashMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), latest: Arc::default(), metrics: UsageMetrics::default() }
    }
}

impl fmt::Debug for UsageLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageLedger").finish_non_exhaustive()
    }
}

impl UsageLedger {
    /// Returns the metrics.
    pub(crate) fn metrics(&self) -> &UsageMetrics {
        &self.metrics
    }

    /// Counts a request to the model called `name`. Callers that no cell is left for are counted together.
    pub(crate) fn count(&self, name: &str, key: UsageKey, totals: &UsageTotals) {
        self.metrics.count(name, key.purpose.as_str(), totals);
        let priced: Arc<str> = priced_name(&key.provider, &key.model).into();
        let mut state = self.lock();
        state.today.count(day_of_hour(key.hour), &key.caller, &priced, totals);
        state.cells.count(key, totals);
    }

    /// Returns the tokens that were counted on this day, for all callers and for this one; empty: not known.
    pub(crate) fn spent(&self, day: i64, caller: &str) -> SpentTokens {
        self.measured(day, caller, |sum| sum.tokens)
    }

    /// Returns the cost of these tokens, in 10⁻⁹ of the currency of the prices.
    pub(crate) fn cost(&self, day: i64, caller: &str, prices: &ModelPrices) -> SpentTokens {
        self.measured(day, caller, |sum| prices.cost(sum.models()))
    }

    fn measured(&self, day: i64, caller: &str, measure: impl Fn(&TokenSum) -> u64) -> SpentTokens {
        let state = self.lock();
        let (all, own) = state.today.measured(day, cut_name(caller), measure);
        SpentTokens { day, run: state.run, all, own }
    }

    /// Keeps what a gateway says now is left of the budgets of all callers; none: there are no such budgets. `now` is in seconds since
    /// 1970.
    pub(super) fn keep_budgets(&self, budgets: Vec<BudgetTerms>, now: i64) {
        *self.latest() = LatestBudgets { budgets, at: now };
    }

    /// Returns what a gateway last said is left, for a request that came by none, and counts the request if that is not known any more.
    pub(super) fn latest_budgets(&self, now: i64) -> Vec<BudgetTerms> {
        let (budgets, is_known) = {
            let latest = self.latest();
            (latest.budgets.clone(), latest.is_known(now))
        };
        if !is_known {
            self.metrics.count_unknown_budget();
        }
        budgets
    }

    /// Returns the cells that changed after this revision of this run of the process, from the first one on for another run. Of
    /// many it returns those that changed first, and the revision up to which these are all.
    pub(crate) fn report(&self, instance: &str, after: u64) -> UsageReport {
        self.lock().cells.report(instance, after)
    }

    /// Learns how many tokens so many bytes of a model are.
    pub(crate) fn learn(&self, name: &Arc<str>, bytes: u64, tokens: u64) {
        let mut state = self.lock();
        let ratio = state.ratios.entry(name.clone()).or_default();
        ratio.bytes = ratio.bytes.saturating_add(bytes);
        ratio.tokens = ratio.tokens.saturating_add(tokens);
    }

    /// Estimates the tokens of so many bytes of a model, by what it reported so far.
    pub(crate) fn estimate(&self, name: &Arc<str>, bytes: u64) -> u64 {
        let state = self.lock();
        match state.ratios.get(name) {
            Some(TokenRatio { bytes: seen, tokens }) if *seen > 0 && *tokens > 0 => {
                let tokens = u128::from(bytes) * u128::from(*tokens) / u128::from(*seen);
                // No model has tokens of less than a byte.
                u64::try_from(tokens).unwrap_or(bytes).min(bytes)
            }
            _ => bytes.div_ceil(BYTES_PER_TOKEN),
        }
    }

    fn latest(&self) -> MutexGuard<'_, LatestBudgets> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use crds::usage::{CELLS_PER_REPORT, KEPT_HOURS, LeftTokens, MAX_CELLS, MAX_NAME_BYTES, OTHER_CALLER, UsageCell};

    use super::*;

    fn count(ledger: &UsageLedger, hour: i64, caller: &str) {
        let key = UsageKey { hour, caller: caller.into(), ..UsageKey::default() };
        ledger.count("p/m", key, &UsageTotals { calls: 1, input: 2, ..UsageTotals::default() });
    }

    #[test]
    fn a_report_holds_what_changed_since_and_all_for_another_run() {
        let ledger = UsageLedger::default();
        count(&ledger, 9, "ada");
        count(&ledger, 9, "ben");
        let all = ledger.report("", 0);
        assert_eq!((all.cells.len(), all.revision), (2, 2));
        assert_eq!(ledger.report(&all.instance, 2).cells, []);
        count(&ledger, 9, "ada");
        let changed = ledger.report(&all.instance, 2);
        assert_eq!((changed.cells.len(), changed.cells[0].key.caller.as_str()), (1, "ada"));
        assert_eq!((changed.cells[0].totals.calls, changed.cells[0].totals.input), (2, 4), "totals, not differences");
        assert_eq!(ledger.report("another run", 2).cells.len(), 2);
    }

    /// Returns all cells, as one who asks again reads them.
    fn read_all(ledger: &UsageLedger) -> Vec<UsageCell> {
        let (mut cells, mut known) = (Vec::new(), UsageReport::default());
        loop {
            let report = ledger.report(&known.instance, known.revision);
            if report.cells.is_empty() {
                return cells;
            }
            cells.extend(report.cells.iter().cloned());
            known = report;
        }
    }

    #[test]
    fn cells_have_a_bound_and_an_age() {
        let ledger = UsageLedger::default();
        for caller in 0..MAX_CELLS + 50 {
            count(&ledger, 9, &caller.to_string());
        }
        let cells = read_all(&ledger);
        assert_eq!(cells.len(), MAX_CELLS + 1);
        let other = cells.iter().find(|cell| cell.key.caller == OTHER_CALLER).unwrap();
        assert_eq!(other.totals.calls, 50);
        count(&ledger, 9 + KEPT_HOURS, "ada");
        assert_eq!(read_all(&ledger).len(), MAX_CELLS + 2, "the oldest kept hour");
        count(&ledger, 10 + KEPT_HOURS, "ada");
        assert_eq!(read_all(&ledger).len(), 2);
    }

    #[test]
    fn the_tokens_of_a_day_are_summed_for_all_and_for_each_caller() {
        let ledger = UsageLedger::default();
        for (hour, caller) in [(47, "ada"), (48, "ada"), (50, "ben"), (50, ""), (47, "ada"), (71, "ada")] {
            count(&ledger, hour, caller);
        }
        let spent = |day: i64, caller: &str| {
            let SpentTokens { all, own, .. } = ledger.spent(day, caller);
            (all, own)
        };
        assert_eq!(spent(2, "ada"), (8, Some(4)), "what ends late counts for no other day");
        assert_eq!((spent(2, "ben"), spent(2, "cleo"), spent(2, "")), ((8, Some(2)), (8, Some(0)), (8, None)));
        assert_eq!((spent(3, "ada"), spent(3, "")), ((0, Some(0)), (0, None)), "the next day has begun");
        for caller in 0..MAX_CELLS {
            count(&ledger, 72, &caller.to_string());
        }
        count(&ledger, 72, "one more");
        assert_eq!((spent(3, "0").1, spent(3, "one more").1), (Some(2), None), "no room is left");
        assert_eq!(spent(3, "0").0, 2 * (MAX_CELLS as u64 + 1));
    }

    #[test]
    fn the_newest_word_of_a_gateway_holds_and_requests_after_an_old_one_are_counted() {
        const NOON: i64 = 2 * 86_400 + 43_200;
        let ledger = UsageLedger::default();
        let hear = |all: Option<u64>| {
            let left = LeftTokens { day: 2, all, own: Some(1) };
            let terms = BudgetTerms { left, before: ledger.spent(2, "ada"), prices: None };
            ledger.keep_budgets(terms.of_all().into_iter().collect(), NOON);
        };
        let heard = |now: i64| {
            let left: Vec<_> =
                ledger.latest_budgets(now).iter().map(|terms| (terms.left.all, terms.left.own)).collect();
            (left, ledger.metrics().unknown_budgets())
        };
        assert_eq!(heard(NOON), (vec![], 0), "there is no budget");
        hear(Some(9));
        hear(Some(7));
        let newest = || vec![(Some(7), None)];
        assert_eq!(heard(NOON + 299), (newest(), 0));
        assert_eq!(heard(NOON + 300), (newest(), 1), "no gateway for five minutes");
        assert_eq!(heard(NOON + 43_200), (newest(), 2), "nothing is known of the next day");
        hear(None);
        assert_eq!(heard(NOON + 300), (vec![], 2), "the budget is of each caller alone");
    }

    #[test]
    fn what_was_used_costs_what_each_model_costs() {
        let ledger = UsageLedger::default();
        let totals = UsageTotals { input: 1000, cache_read: 400, output: 100, ..UsageTotals::default() };
        for (model, caller) in [("gpt-5", "ada"), ("gpt-5", "ben"), ("mini", "ada")] {
            let key = UsageKey { hour: 48, provider: "openai".into(), model: model.into(), ..UsageKey::default() };
            ledger.count("p/m", UsageKey { caller: caller.into(), ..key }, &totals);
        }
        let prices =
            ModelPrices::read("EUR, openai/gpt-5 3000000 300000 0 15000000, openai/mini 1000000 0 0 0").unwrap();
        let (gpt, mini) = (600 * 3000 + 400 * 300 + 100 * 15_000, 600 * 1000);
        let SpentTokens { all, own, .. } = ledger.cost(2, "ada", &prices);
        assert_eq!((all, own), (2 * gpt + mini, Some(gpt + mini)));
        assert_eq!(ledger.cost(2, "", &prices).own, None);
        assert_eq!(ledger.cost(3, "ada", &prices).all, 0, "the next day has begun");
    }

    #[test]
    fn a_report_of_the_longest_names_is_read_whole() {
        const READ_BY_SIDECARS: usize = 4 * 1024 * 1024;
        let ledger = UsageLedger::default();
        for number in 0..=CELLS_PER_REPORT {
            let long = |first: &str| format!("{first}{number:\"<width$}", width = MAX_NAME_BYTES - first.len());
            let key = UsageKey { hour: 9, caller: long("a"), model: long("m"), ..UsageKey::default() };
            let most = UsageTotals { input: 10_000_000_000, latency: [10_000_000_000; 16], ..UsageTotals::default() };
            ledger.count("p/m", key, &most);
        }
        let report = ledger.report("", 0);
        assert_eq!(report.cells.len(), CELLS_PER_REPORT);
        let bytes = serde_json::to_vec(&report).unwrap().len();
        assert!(bytes < READ_BY_SIDECARS, "{bytes}");
        count(&ledger, 9, "ada");
        let rest = ledger.report(&report.instance, report.revision);
        assert_eq!((rest.cells.len(), rest.revision), (2, report.revision + 2));
    }

    #[test]
    fn tokens_are_estimated_as_the_model_reported_before() {
        let (ledger, model) = (UsageLedger::default(), Arc::from("p/m"));
        assert_eq!(ledger.estimate(&model, 9), 3);
        ledger.learn(&model, 600, 200);
        assert_eq!((ledger.estimate(&model, 9), ledger.estimate(&"p/other".into(), 9)), (3, 3));
        assert_eq!(ledger.estimate(&model, 30), 10);
        ledger.learn(&model, 0, 100_000);
        assert_eq!(ledger.estimate(&model, 30), 30);
    }
}
