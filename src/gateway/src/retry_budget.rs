//! How many requests may be tried again: a fifth of those that come, and a few when hardly any come.
//!
//! Without a bound, retries multiply the load of a workload that is about to fall over.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// What one request brings; a retry costs [`RETRY`].
const REQUEST_DEPOSIT: i32 = 1;
const RETRY_COST: i32 = 5;
/// Retries that can be saved up.
const MAX_BALANCE: i32 = 100 * RETRY_COST;
/// Retries at the beginning.
const INITIAL_BALANCE: i32 = 10 * RETRY_COST;

/// The retries one workload has left.
#[derive(Debug)]
pub(super) struct RetryBudget(AtomicI32);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(AtomicI32::new(INITIAL_BALANCE))
    }
}

impl RetryBudget {
    /// A request came.
    pub(super) fn deposit(&self) {
        if self.0.load(Relaxed) < MAX_BALANCE {
            self.0.fetch_add(REQUEST_DEPOSIT, Relaxed);
        }
    }

    /// Whether one more retry may be made, which is then paid for.
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
