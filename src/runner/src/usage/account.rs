//! Account of one request of a client.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use crds::pending_calls::{DECISION_HEADER, DecidedCalls};
use crds::usage::{
    COST_HEADER, LEFT_COST_HEADER, LEFT_HEADER, ModelPrices, PRICES_HEADER, Purpose, SPENT_HEADER, SpentTokens,
    USAGE_HEADER, UsageTotals, day_of,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    UsageLedger,
    budget::{BudgetEnd, RequestBudget, read_left},
    now_seconds,
};
use crate::traces::TraceScope;

/// Header of a response with what its models used.
pub(crate) const RESPONSE_HEADER: HeaderName = HeaderName::from_static(USAGE_HEADER);
/// Header of a response with the tokens that this process has counted today.
const TOTAL_HEADER: HeaderName = HeaderName::from_static(SPENT_HEADER);
/// Header of a response with their cost.
const TOTAL_COST_HEADER: HeaderName = HeaderName::from_static(COST_HEADER);
/// Header of requests by a gateway. The sidecar takes it off those that no gateway vouches for, so it counts on its requests alone.
const GATEWAY_HEADER: &str = "x-recif-via";

tokio::task_local! {
    /// Account of the request that is being handled.
    static CURRENT: UsageAccount;
}

/// Account of one request of a client: who it is counted for, what the models used for it, what they may use, and its place in a
/// trace. Clones share the sums.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageAccount {
    caller: Arc<str>,
    purpose: Purpose,
    trace: TraceScope,
    sums: Arc<Mutex<RequestSums>>,
    /// Budgets that the gateway tells.
    budgets: Arc<[RequestBudget]>,
    /// The headers that name them.
    budget_headers: Arc<BudgetHeaders>,
    /// Calls that the request decided on.
    decided: Arc<OnceLock<DecidedCalls>>,
}

/// Headers of a request that name its budgets, as a turn that waits keeps them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BudgetHeaders {
    left: Option<String>,
    left_cost: Option<String>,
    prices: Option<String>,
}

impl BudgetHeaders {
    fn read(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Self { left: text(LEFT_HEADER), left_cost: text(LEFT_COST_HEADER), prices: text(PRICES_HEADER) }
    }

    /// Returns the budgets of a request of this caller; empty: not known.
    fn budgets(&self, caller: &str, ledger: &UsageLedger) -> Vec<RequestBudget> {
        let left = |text: Option<&str>| text.and_then(read_left);
        let tokens = left(self.left.as_deref()).map(|left| RequestBudget::new(left, None, caller, ledger));
        let cost = left(self.left_cost.as_deref()).zip(self.prices.as_deref().and_then(ModelPrices::read));
        let cost = cost.map(|(left, prices)| RequestBudget::new(left, Some(prices), caller, ledger));
        tokens.into_iter().chain(cost).collect()
    }
}

#[derive(Debug, Default)]
struct RequestSums {
    totals: UsageTotals,
    /// Model of the first request to one, such as `openai/gpt-5`, by the name that it has among prices.
    model: Option<Arc<str>>,
}

impl UsageAccount {
    /// Creates the account of a request of this caller; empty: not known.
    pub(crate) fn new(caller: &str) -> Self {
        Self { caller: caller.into(), ..Self::default() }
    }

    /// Returns the account of the request that is being handled, which is that of no caller outside of one.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Runs the handler of the request. What it spawns gets the account only as a value.
    pub(crate) async fn scope<F: Future>(self, handler: F) -> F::Output {
        CURRENT.scope(self, handler).await
    }

    /// Returns the same account for requests with this purpose.
    pub(crate) fn with_purpose(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    /// Returns the same account for requests that are part of this span.
    pub(crate) fn within(self, trace: &TraceScope) -> Self {
        Self { trace: trace.clone(), ..self }
    }

    /// Returns the same account with the budgets that the headers of the request name. A request that came by no gateway has those that
    /// a gateway named last, too, but for those of its caller. `is_by_sidecar`: the Pod's own sidecar sent it.
    pub(crate) fn with_budgets(self, headers: &HeaderMap, is_by_sidecar: bool, ledger: &UsageLedger) -> Self {
        let named = BudgetHeaders::read(headers);
        if !is_by_sidecar || !headers.contains_key(GATEWAY_HEADER) {
            return self.with_budget_headers(named, ledger);
        }
        let budgets = named.budgets(&self.caller, ledger);
        ledger.keep_budgets(budgets.iter().filter_map(RequestBudget::terms_of_all).collect(), now_seconds());
        Self { budgets: budgets.into(), budget_headers: named.into(), ..self }
    }

    /// Returns the same account with the budgets that a request by no gateway named, or a request before its turn waited, and those that
    /// a gateway named last, but for those of the caller.
    pub(crate) fn with_budget_headers(self, named: BudgetHeaders, ledger: &UsageLedger) -> Self {
        let mut budgets = named.budgets(&self.caller, ledger);
        let latest = ledger.latest_budgets(now_seconds());
        budgets.extend(latest.into_iter().map(|terms| RequestBudget::with_terms(terms, ledger)));
        Self { budgets: budgets.into(), budget_headers: named.into(), ..self }
    }

    /// Returns the headers that name the budgets.
    pub(crate) fn budget_headers(&self) -> &BudgetHeaders {
        &self.budget_headers
    }

    /// Reports whether the request has a budget.
    pub(crate) fn has_budgets(&self) -> bool {
        !self.budgets.is_empty()
    }

    /// Returns the end of a budget that is spent, so that no further request may go to a model.
    pub(crate) fn budget_end(&self) -> Option<BudgetEnd> {
        let (model, totals) = self.used()?;
        let used = (model.as_deref().unwrap_or_default(), &totals);
        let now = now_seconds();
        self.budgets.iter().find_map(|budget| budget.end(&self.caller, used, now))
    }

    /// Returns the tokens that are left for the request; `None`: there is no budget of tokens.
    pub(crate) fn tokens_left(&self) -> Option<u64> {
        let (model, totals) = self.used()?;
        let used = (model.as_deref().unwrap_or_default(), &totals);
        let now = now_seconds();
        let of_tokens = self.budgets.iter().filter(|budget| budget.prices().is_none());
        of_tokens.filter_map(|budget| budget.left(&self.caller, used, now)).min()
    }

    /// Returns the first model and the tokens of the request; `None`: there is no budget.
    fn used(&self) -> Option<(Option<Arc<str>>, UsageTotals)> {
        if !self.has_budgets() {
            return None;
        }
        let sums = self.sums();
        Some((sums.model.clone(), sums.totals))
    }

    /// Notes the calls that the request decides on. The first ones that are noted stay.
    pub(crate) fn note_decision(&self, decided: DecidedCalls) {
        self.decided.get_or_init(|| decided);
    }

    /// Returns the calls that the request has decided on as a header, if there are any.
    pub(crate) fn decision_header(&self) -> Option<(HeaderName, HeaderValue)> {
        let decided = HeaderValue::from_str(&self.decided.get()?.to_string());
        Some((HeaderName::from_static(DECISION_HEADER), decided.ok()?))
    }

    /// Returns the place in a trace.
    pub(crate) fn trace(&self) -> &TraceScope {
        &self.trace
    }

    /// Returns the caller; empty: not known.
    pub(crate) fn caller(&self) -> &str {
        &self.caller
    }

    /// Returns the purpose of the requests.
    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Adds what a request to this model used, which has its name among prices.
    pub(crate) fn add(&self, model: &Arc<str>, totals: &UsageTotals) {
        let mut sums = self.sums();
        sums.totals = sums.totals.plus(totals);
        sums.model.get_or_insert_with(|| model.clone());
    }

    /// Returns the sums as a header, a [dictionary](https://www.rfc-editor.org/rfc/rfc9651#name-dictionaries): input, output, read
    /// from and written to the cache, reasoning, calls, and the first model; `est` if a part is estimated. `None` if no model
    /// was asked.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let sums = self.sums();
        let model = sums.model.as_ref()?;
        let UsageTotals { calls, failed, input, cache_read, cache_write, output, reasoning, estimated, .. } =
            sums.totals;
        let calls = calls + failed;
        let mut text =
            format!("in={input}, out={output}, cr={cache_read}, cw={cache_write}, rs={reasoning}, calls={calls}");
        // A string of RFC 9651 holds visible ASCII characters and spaces; a name with others is left out.
        if model.bytes().all(|byte| matches!(byte, b' '..=b'~' if !matches!(byte, b'"' | b'\\'))) {
            let _ = write!(text, ", model=\"{model}\"");
        }
        if estimated > 0 {
            text.push_str(", est");
        }
        HeaderValue::from_str(&text).ok()
    }

    /// Returns what the process has counted today, for all callers and for that of the request, as headers: tokens, and their cost if the
    /// request has prices.
    pub(crate) fn total_headers(&self, ledger: &UsageLedger) -> Vec<(HeaderName, HeaderValue)> {
        let (day, caller) = (day_of(now_seconds()), &self.caller);
        let prices = self.budgets.iter().find_map(RequestBudget::prices);
        let cost = prices.map(|prices| ledger.cost(day, caller, prices));
        let header = |(name, total): (HeaderName, Option<SpentTokens>)| {
            Some((name, HeaderValue::from_str(&total?.to_string()).ok()?))
        };
        let totals = [(TOTAL_HEADER, Some(ledger.spent(day, caller))), (TOTAL_COST_HEADER, cost)];
        totals.into_iter().filter_map(header).collect()
    }

    /// Returns the sums as `usage` of the last event; `None` if no model was asked.
    pub(crate) fn json(&self) -> Option<Value> {
        let sums = self.sums();
        sums.model.as_ref()?;
        let UsageTotals { calls, failed, input, cache_read, cache_write, output, reasoning, estimated, .. } =
            sums.totals;
        let mut usage = json!({
            "input": input, "cacheRead": cache_read, "cacheWrite": cache_write, "output": output, "reasoning": reasoning,
            "calls": calls + failed,
        });
        if estimated > 0 {
            usage["estimated"] = true.into();
        }
        Some(usage)
    }

    fn sums(&self) -> MutexGuard<'_, RequestSums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use crds::usage::LeftTokens;

    use super::*;

    #[tokio::test]
    async fn what_a_request_used_is_told_in_its_header() {
        let account = UsageAccount::new("ada");
        assert_eq!((account.header(), account.json()), (None, None));
        let totals = UsageTotals {
            calls: 1,
            input: 1200,
            cache_read: 800,
            output: 340,
            reasoning: 120,
            ..UsageTotals::default()
        };
        account.clone().scope(async { UsageAccount::current().add(&"anthropic/claude".into(), &totals) }).await;
        account.clone().with_purpose(Purpose::Title).add(&"x/y".into(), &totals);
        let text = "in=2400, out=680, cr=1600, cw=0, rs=240, calls=2, model=\"anthropic/claude\"";
        assert_eq!(account.header().unwrap(), text);
        account.add(&"x/y".into(), &UsageTotals { failed: 1, input: 9, estimated: 9, ..UsageTotals::default() });
        assert!(account.header().unwrap().to_str().unwrap().ends_with("calls=3, model=\"anthropic/claude\", est"));
        let usage = account.json().unwrap();
        assert_eq!((&usage["input"], &usage["calls"], &usage["estimated"]), (&json!(2409), &json!(3), &json!(true)));
    }

    #[test]
    fn a_turn_that_waited_has_its_own_budgets_and_what_a_gateway_said_last_besides() {
        let (ledger, waited) = (UsageLedger::default(), UsageLedger::default());
        let headers = |all: u64, is_by_gateway: bool| {
            let left = LeftTokens { day: day_of(now_seconds()), all: Some(all), own: None }.to_string();
            let left = (HeaderName::from_static(LEFT_HEADER), HeaderValue::from_str(&left).unwrap());
            let via = (HeaderName::from_static(GATEWAY_HEADER), HeaderValue::from_static("g"));
            HeaderMap::from_iter([left].into_iter().chain(is_by_gateway.then_some(via)))
        };
        let kept = UsageAccount::new("ada").with_budgets(&headers(30, true), true, &waited).budget_headers().clone();
        let left =
            |ledger: &UsageLedger| UsageAccount::new("ada").with_budget_headers(kept.clone(), ledger).tokens_left();
        assert_eq!(left(&ledger), Some(30), "no gateway said anything to this process");
        UsageAccount::new("bob").with_budgets(&headers(20, true), true, &ledger);
        assert_eq!(left(&ledger), Some(20), "others used ten of them while it waited");
        UsageAccount::new("bob").with_budgets(&headers(40, true), true, &ledger);
        assert_eq!(left(&ledger), Some(30));
        let next = UsageAccount::new("bob").with_budgets(&headers(50, false), true, &ledger);
        assert_eq!(next.tokens_left(), Some(40), "what the turn keeps is no word of a gateway");
    }

    #[test]
    fn a_model_whose_name_no_header_may_hold_is_left_out() {
        let account = UsageAccount::new("");
        account.add(&"a/\"b\"".into(), &UsageTotals { calls: 1, ..UsageTotals::default() });
        assert_eq!(account.header().unwrap(), "in=0, out=0, cr=0, cw=0, rs=0, calls=1");
    }
}
