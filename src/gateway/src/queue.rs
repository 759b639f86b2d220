//! Queue of waiting requests with [adaptive LIFO](https://queue.acm.org/detail.cfm?id=2839461) order.
//!
//! The order is FIFO while waits are short. Once the oldest request has waited for longer than [`LIFO_THRESHOLD`], more
//! requests arrive than can be served, and the oldest clients are the next to give up: serving them would be wasted
//! work. Then the newest request is served first, whose client will still be there for the response.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Wait of the oldest request above which the order is LIFO.
const LIFO_THRESHOLD: Duration = Duration::from_millis(200);

/// Queue of waiting requests.
///
/// Invariant: `entries` is sorted by arrival, and each entry's `number` is unique.
#[derive(Debug)]
pub(super) struct AdaptiveLifo<T> {
    entries: VecDeque<QueueEntry<T>>,
    number: u64,
}

#[derive(Debug)]
struct QueueEntry<T> {
    arrived: Instant,
    number: u64,
    item: T,
}

impl<T> Default for AdaptiveLifo<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), number: 0 }
    }
}

impl<T> AdaptiveLifo<T> {
    /// Returns the number of waiting requests.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Enqueues an item at the place of its arrival. Returns a number by which [`Self::remove`] finds it.
    pub(super) fn push(&mut self, arrived: Instant, item: T) -> u64 {
        self.number += 1;
        let place = self.entries.partition_point(|entry| entry.arrived <= arrived);
        self.entries.insert(place, QueueEntry { arrived, number: self.number, item });
        self.number
    }

    /// Dequeues the next item: the oldest, or the newest if the oldest has waited for too long.
    pub(super) fn pop(&mut self, now: Instant) -> Option<T> {
        let oldest = self.entries.front()?;
        let entry = match now.saturating_duration_since(oldest.arrived) <= LIFO_THRESHOLD {
            true => self.entries.pop_front(),
            false => self.entries.pop_back(),
        };
        entry.map(|entry| entry.item)
    }

    /// Removes all items.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Removes the item with this number. Returns false if it is no longer queued.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let found = self.entries.iter().position(|entry| entry.number == number);
        found.and_then(|at| self.entries.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(start: Instant, arrivals: &[u64]) -> AdaptiveLifo<u64> {
        let mut queue = AdaptiveLifo::default();
        for at in arrivals {
            queue.push(start + Duration::from_millis(*at), *at);
        }
        queue
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_is_next_until_the_wait_is_long_and_then_the_newest() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut queue = queue(start, &[0, 20, 10, 150, 160]);
        assert_eq!((queue.pop(at(160)), queue.pop(at(200))), (Some(0), Some(10)));
        assert_eq!(queue.pop(at(221)), Some(160), "20 has waited for too long");
        assert_eq!((queue.pop(at(221)), queue.pop(at(221)), queue.pop(at(221))), (Some(150), Some(20), None));
    }

    #[tokio::test(start_paused = true)]
    async fn who_left_is_out() {
        let start = Instant::now();
        let mut queue = AdaptiveLifo::default();
        let (first, second) = (queue.push(start, 1), queue.push(start, 2));
        assert!(queue.remove(first) && !queue.remove(first));
        assert_eq!((queue.len(), queue.pop(start)), (1, Some(2)));
        assert!(!queue.remove(second));
    }
}
