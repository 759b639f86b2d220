//! Usage of models: counted once for each request to a model, by caller and model.
//!
//! [`UsageLedger`] holds what the process counted, for the control plane, which reads it at `/_recif/usage` through the
//! sidecar. [`UsageAccount`] holds what one request of a client used, for its response.

mod account;
mod body;
mod budget;
mod day_sums;
mod ledger;
mod metrics;
mod terms;

pub(crate) use account::{BudgetHeaders, RESPONSE_HEADER, UsageAccount};
pub(crate) use body::{TRAILERS, UsageBody};
pub(crate) use ledger::UsageLedger;

/// Returns the time in seconds since 1970.
#[cfg(not(test))]
pub(crate) fn now_seconds() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Returns the time of the first call in seconds since 1970: no day begins while the tests run.
#[cfg(test)]
pub(crate) fn now_seconds() -> i64 {
    static FIRST: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
    *FIRST.get_or_init(|| jiff::Timestamp::now().as_second())
}
