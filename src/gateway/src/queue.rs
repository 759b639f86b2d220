//! Who is next when there is room again.
//!
//! Oldest first while nobody waits for long. Once the oldest has waited for [`PATIENCE`] there are more requests than can be
//! served, and those who came first are those who leave first: serving them would be work for nobody. So then the newest is
//! served, who will still be there for the answer.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// From this wait on the newest is next.
const LIFO_THRESHOLD: Duration = Duration::from_millis(200);

/// Those who wait, in the order of their arrival.
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
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Puts one in its place by its arrival; the number takes it out again.
    pub(super) fn push(&mut self, arrived: Instant, item: T) -> u64 {
        self.number += 1;
        let place = self.entries.partition_point(|entry| entry.arrived <= arrived);
        self.entries.insert(place, QueueEntry { arrived, number: self.number, item });
        self.number
    }

    /// Takes out who is next.
    pub(super) fn pop(&mut self, now: Instant) -> Option<T> {
        let oldest = self.entries.front()?;
        let entry = match now.saturating_duration_since(oldest.arrived) <= LIFO_THRESHOLD {
            true => self.entries.pop_front(),
            false => self.entries.pop_back(),
        };
        entry.map(|entry| entry.item)
    }

    /// Takes out all of them.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Takes out one who left; whether it was there.
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
