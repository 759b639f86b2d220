//! Retry budget, as in [tower](https://docs.rs/tower/latest/tower/retry/budget/index.html) and
//! [Finagle](https://twitter.github.io/finagle/guide/Clients.html#retries): a token bucket per workload that allows
//! retries of a fifth of the requests. It starts with 10 retries and saves up to 100.
//!
//! Without a limit, retries multiply the load of a workload that is about to fail.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Deposit per request; a retry costs [`RETRY_COST`].
const REQUEST_DEPOSIT: i32 = 1;
const RETRY_COST: i32 = 5;
/// Most retries that can be saved up.
const MAX_BALANCE: i32 = 100 * RETRY_COST;
/// Retries that a new budget allows.
const INITIAL_BALANCE: i32 = 10 * RETRY_COST;

/// Retry budget of one workload.
#[derive(Debug)]
pub(super) struct RetryBudget(AtomicI32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicI32::new(INITIAL_BALANCE))
    }
}

impl RetryBudget {
    /// Deposits for one request.
    pub(super) fn deposit(&self) {
        if self.0.load(Relaxed) < MAX_BALANCE {
            self.0.fetch_add(REQUEST_DEPOSIT, Relaxed);
        }
    }

    /// Withdraws the cost of one retry. Returns false if the balance does not allow it.
    pub(super) fn withdraw(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| (left >= RETRY_COST).then_some(left - RETRY_COST)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_requests_may_be_tried_again() {
        let budget = RetryBudget::default();
        let spent = |budget: &RetryBudget| std::iter::from_fn(|| budget.withdraw().then_some(())).count();
        assert_eq!(spent(&budget), 10);
        (0..100).for_each(|_| budget.deposit());
        assert_eq!(spent(&budget), 20);
        (0..100_000).for_each(|_| budget.deposit());
        assert_eq!(spent(&budget), 100);
    }
}
