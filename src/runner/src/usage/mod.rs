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

pub(crate) use account::{BudgetHeaders, RESPONSE_HEADER, UsageAccount};
pub(crate) use body::{TRAILERS, UsageBody};
pub(crate) use ledger::UsageLedger;
