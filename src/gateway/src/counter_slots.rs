//! Bounded set of counters with numeric keys.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};

/// Slots of counters. A key, which is not 0, gets the first free slot when it is first counted; key 0 marks a free slot.
#[derive(Debug)]
pub(super) struct Slots(Box<[(AtomicU16, AtomicU64)]>);

impl Slots {
    /// Creates one slot for each reserved key, and `free` more.
    pub(super) fn new(reserved: impl IntoIterator<Item = u16>, free: usize) -> Self {
        let owners = reserved.into_iter().chain(std::iter::repeat_n(0, free));
        Self(owners.map(|owner| (AtomicU16::new(owner), AtomicU64::new(0))).collect())
    }

    /// Adds 1 to the counter of a key. Returns false if the key has none and no slot is free.
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

    /// Returns each key that was counted, with its count.
    pub(super) fn read(&self) -> impl Iterator<Item = (u16, u64)> {
        let read = self.0.iter().map(|(owner, count)| (owner.load(Relaxed), count.load(Relaxed)));
        read.filter(|(_, count)| *count > 0)
    }
}
