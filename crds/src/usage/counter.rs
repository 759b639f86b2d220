//! Cells of several processes, merged.

use std::collections::HashMap;
use std::hash::Hash;

use super::{UsageKey, UsageTotals};

/// Newest version of each cell, by the process that counts it.
///
/// Invariant: the totals of a cell are the join of all versions of it that were merged, so it does not matter how often or in
/// which order they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageCounter<I: Eq + Hash> {
    cells: HashMap<(I, UsageKey), UsageTotals>,
}

impl<I: Eq + Hash> Default for UsageCounter<I> {
    fn default() -> Self {
        Self { cells: HashMap::new() }
    }
}

impl<I: Eq + Hash> UsageCounter<I> {
    /// Merges a version of a cell of this process.
    pub fn merge(&mut self, instance: I, key: UsageKey, totals: &UsageTotals) {
        let cell = self.cells.entry((instance, key)).or_default();
        *cell = cell.join(totals);
    }

    /// Returns the cells in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&I, &UsageKey, &UsageTotals)> {
        self.cells.iter().map(|((instance, key), totals)| (instance, key, totals))
    }

    /// Returns the number of cells.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Reports whether there is no cell.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Removes all cells.
    pub fn clear(&mut self) {
        self.cells.clear();
    }
}
