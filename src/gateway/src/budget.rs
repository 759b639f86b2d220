//! How many requests may be tried again: a fifth of those that come, and a few when hardly any come.
//!
//! Without a bound, retries multiply the load of a workload that is about to fall over.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// What one request brings; a retry costs [`RETRY`].
const REQUEST: i32 = 1;
const RETRY: i32 = 5;
/// Retries that can be saved up.
const MOST: i32 = 100 * RETRY;
/// Retries at the beginning.
const FIRST: i32 = 10 * RETRY;

/// The retries one workload has left.
#[derive(Debug)]
pub(super) struct Budget(AtomicI32);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicI32::new(FIRST))
    }
}

impl Budget {
    /// A request came.
    pub(super) fn earn(&self) {
        if self.0.load(Relaxed) < MOST {
            self.0.fetch_add(REQUEST, Relaxed);
        }
    }

    /// Whether one more retry may be made, which is then paid for.
    pub(super) fn spend(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| (left >= RETRY).then_some(left - RETRY)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_requests_may_be_tried_again() {
        let budget = Budget::default();
        let spent = |budget: &Budget| std::iter::from_fn(|| budget.spend().then_some(())).count();
        assert_eq!(spent(&budget), 10);
        (0..100).for_each(|_| budget.earn());
        assert_eq!(spent(&budget), 20);
        (0..100_000).for_each(|_| budget.earn());
        assert_eq!(spent(&budget), 100);
    }
}
