//! Cells that a process counts itself, and what it reports of them.

use std::collections::HashMap;

use super::{KEPT_HOURS, MAX_CELLS, OTHER_CALLER, UsageCell, UsageKey, UsageReport, UsageTotals};

/// Most cells of a report. With the longest names these are less than the 4 MiB that sidecars and control planes read.
pub const CELLS_PER_REPORT: usize = 2_000;

/// Cells that one run of a process has counted in the last hours.
///
/// Invariant: `revision` is the largest revision of a cell.
#[derive(Debug)]
pub struct CountedCells {
    /// Name of this run of the process. The control plane adds the uid of the Pod.
    instance: String,
    revision: u64,
    /// Newest hour in which something was counted.
    hour: i64,
    cells: HashMap<UsageKey, CountedCell>,
}

#[derive(Debug, Default)]
struct CountedCell {
    totals: UsageTotals,
    /// Number of its last change.
    revision: u64,
}

impl CountedCells {
    /// Creates the cells of a run of this name, which is unique among those of the Pod.
    pub fn new(instance: String) -> Self {
        Self { instance, revision: 0, hour: i64::MIN, cells: HashMap::new() }
    }

    /// Adds to a cell. Callers that no cell is left for are counted together.
    pub fn count(&mut self, key: UsageKey, totals: &UsageTotals) {
        if key.hour > self.hour {
            self.hour = key.hour;
            self.cells.retain(|kept, _| kept.hour >= key.hour - KEPT_HOURS);
        }
        let is_full = self.cells.len() >= MAX_CELLS && !self.cells.contains_key(&key);
        let key = if is_full { UsageKey { caller: OTHER_CALLER.into(), ..key } } else { key };
        self.revision += 1;
        let cell = self.cells.entry(key).or_default();
        cell.totals = cell.totals.plus(totals);
        cell.revision = self.revision;
    }

    /// Returns the cells that changed after this revision of this run of the process, from the first one on for another run. Of
    /// many it returns those that changed first, and the revision up to which these are all.
    pub fn report(&self, instance: &str, after: u64) -> UsageReport {
        let after = if instance == self.instance { after } else { 0 };
        let mut changed: Vec<_> = self.cells.iter().filter(|(_, cell)| cell.revision > after).collect();
        changed.sort_unstable_by_key(|(_, cell)| cell.revision);
        let is_whole = changed.len() <= CELLS_PER_REPORT;
        changed.truncate(CELLS_PER_REPORT);
        let last = changed.last().filter(|_| !is_whole).map_or(self.revision, |(_, cell)| cell.revision);
        let cell = |(key, cell): (&UsageKey, &CountedCell)| UsageCell { key: key.clone(), totals: cell.totals };
        let cells = changed.into_iter().map(cell).collect();
        UsageReport { instance: self.instance.clone(), revision: last, cells }
    }
}
