//! Counters of a fixed number, each for what comes first.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

/// Counters by a number that is not known before: each of the first ones gets a slot. Zero marks a free slot.
#[derive(Debug)]
pub(super) struct Slots(Box<[(AtomicU16, AtomicU64)]>);

impl Slots {
    /// Creates a slot for each reserved number, and free ones.
    pub(super) fn new(reserved: impl IntoIterator<Item = u16>, free: usize) -> Self {
        let owners = reserved.into_iter().chain(std::iter::repeat_n(0, free));
        Self(owners.map(|owner| (AtomicU16::new(owner), AtomicU64::new(0))).collect())
    }

    /// Counts; returns false if every slot has another number.
    pub(super) fn count(&self, number: u16) -> bool {
        for (owner, count) in &self.0 {
            let found = match owner.load(Relaxed) {
                0 => owner.compare_exchange(0, number, Relaxed, Relaxed).map_or_else(|other| other, |_| number),
                found => found,
            };
            if found == number {
                count.fetch_add(1, Relaxed);
                return true;
            }
        }
        false
    }

    /// Returns the numbers that were counted, and how often.
    pub(super) fn read(&self) -> impl Iterator<Item = (u16, u64)> {
        let read = self.0.iter().map(|(owner, count)| (owner.load(Relaxed), count.load(Relaxed)));
        read.filter(|(_, count)| *count > 0)
    }
}
