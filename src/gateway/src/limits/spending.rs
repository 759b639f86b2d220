//! Tokens that workloads and their callers have used on a day, in cells that only grow.
//!
//! A cell has what one process has counted: a run of a Pod, which reports its totals, or a gateway, which counts responses without them.
//! Of two versions of a cell the larger one counts, and a sum is that of its cells. So reports may come twice, late, in any order, or by
//! way of another gateway. Each day has its own cells: what comes late for yesterday, or early from a gateway whose clock is ahead, touches
//! those of no other day.
//!
//! The reports are the workload's own. What it forges concerns its own cells alone. For callers these are never more than the cells that
//! are free, so some are left for each further workload.

use std::collections::{BTreeMap, HashMap};

use super::report::{LimitKey, SpentCell};

/// Most cells of all workloads: less than 64 MiB, with names of 300 bytes too (less than 700 bytes for each).
///
/// Each sum counts as one, as the cell of this gateway in it always has room; so do the cells that others have counted.
const MAX_CELLS: usize = 80_000;
/// Cells that are kept for the sums of all callers of a workload.
const KEPT_CELLS: usize = 10_000;
/// Most runs of Pods in a sum. What later ones use is counted by the gateways.
const MAX_RUNS: usize = 256;
/// Most cells of a sum with those that other gateways know.
const MAX_MERGED: usize = 4 * MAX_RUNS;

/// Spending of all workloads, by days.
///
/// Invariant: `cells` is the number of cells of all workloads.
#[derive(Debug, Default)]
pub(super) struct SpendingTable {
    days: BTreeMap<i64, DaySpending>,
    cells: usize,
}

/// Spending of all workloads on one day.
type DaySpending = HashMap<Box<str>, WorkloadSpending>;

/// Spending of a workload on one day.
///
/// Invariant: `cells` is the number of its sums and of the cells in them that others than this gateway have counted.
#[derive(Debug, Default)]
struct WorkloadSpending {
    cells: usize,
    sums: HashMap<LimitKey, SpentSum>,
    /// Version of the last change of a sum.
    changed: u64,
}

/// Spending of a workload on one day, for changes.
pub(super) struct OpenSpending<'a> {
    workload: &'a mut WorkloadSpending,
    /// Number of cells of all workloads.
    cells: &'a mut usize,
}

/// Tokens of what counts together. Invariant: `sum` is that of the cells.
#[derive(Debug, Default)]
struct SpentSum {
    /// By the process that counted them.
    cells: HashMap<u64, u64>,
    sum: u64,
    /// Version of the last change.
    changed: u64,
}

impl SpendingTable {
    /// Returns the spending of a workload on a day.
    pub(super) fn of_day(&mut self, workload: &str, day: i64) -> OpenSpending<'_> {
        let workload = self.days.entry(day).or_default().entry(workload.into()).or_default();
        OpenSpending { workload, cells: &mut self.cells }
    }

    /// Returns the tokens that were used on this day.
    pub(super) fn spent(&self, workload: &str, key: &LimitKey, day: i64) -> u64 {
        self.days.get(&day).and_then(|spending| spending.get(workload)).map_or(0, |spending| spending.spent(key))
    }

    /// Returns the cells of the sums that changed after this version, with the version of the last change of each, the oldest first. Once
    /// they are more than `most`, later ones are left out: nothing is copied for them, nor searched where nothing has changed.
    pub(super) fn changed_after(&self, version: u64, most: usize) -> Vec<(u64, Vec<SpentCell>)> {
        let mut changed: Vec<ChangedSum<'_>> = Vec::new();
        for (day, spending) in &self.days {
            for (workload, spending) in spending.iter().filter(|(_, spending)| spending.changed > version) {
                let sums = spending.sums.iter().filter(|(_, sum)| sum.changed > version);
                changed.extend(sums.map(|(key, sum)| ChangedSum { day: *day, workload, key, sum }));
            }
        }
        // Each sum has a cell at least.
        if changed.len() > most + 1 {
            changed.select_nth_unstable_by_key(most, |of| of.sum.changed);
            changed.truncate(most + 1);
        }
        changed.sort_unstable_by_key(|of| of.sum.changed);
        let mut cells = 0;
        let begins_within = |of: &ChangedSum<'_>| {
            let begins_within = cells <= most;
            cells += of.sum.cells.len();
            begins_within
        };
        changed.into_iter().take_while(begins_within).map(|of| (of.sum.changed, of.cells())).collect()
    }

    /// Forgets the days before this one.
    pub(super) fn sweep(&mut self, day: i64) {
        while let Some(oldest) = self.days.first_entry().filter(|oldest| *oldest.key() < day) {
            self.cells -= oldest.remove().values().map(|spending| spending.cells).sum::<usize>();
        }
    }
}

/// Sum that is reported to other gateways.
struct ChangedSum<'a> {
    day: i64,
    workload: &'a str,
    key: &'a LimitKey,
    sum: &'a SpentSum,
}

impl ChangedSum<'_> {
    /// Returns its cells as they are in a report.
    fn cells(&self) -> Vec<SpentCell> {
        let cell = |(instance, tokens): (&u64, &u64)| SpentCell {
            workload: self.workload.to_owned(),
            key: self.key.text(),
            instance: *instance,
            day: self.day,
            tokens: *tokens,
        };
        self.sum.cells.iter().map(cell).collect()
    }
}

impl WorkloadSpending {
    /// Returns the tokens that were used. A caller without a sum has that of those for whom there was no room, if there is one.
    fn spent(&self, key: &LimitKey) -> u64 {
        let rest = || self.sums.get(&LimitKey::Rest).filter(|_| *key != LimitKey::All);
        self.sums.get(key).or_else(rest).map_or(0, |sum| sum.sum)
    }
}

impl OpenSpending<'_> {
    /// Returns what a sum has of a run of a Pod; `None`: there is no room for it.
    pub(super) fn seen(&self, key: &LimitKey, run: u64) -> Option<u64> {
        let cell = || self.workload.sums.get(key)?.cells.get(&run).copied();
        self.fits(key, run, MAX_RUNS).then(|| cell().unwrap_or_default())
    }

    /// Takes over the total of a run of a Pod. Returns false if there is no room for it.
    pub(super) fn take_total(&mut self, key: LimitKey, run: u64, total: u64, version: impl FnOnce() -> u64) -> bool {
        let fits = self.fits(&key, run, MAX_RUNS);
        if fits {
            self.raise_other(key, run, total, version);
        }
        fits
    }

    /// Counts tokens in the cell of this gateway. Callers for whom there is no room share a sum.
    pub(super) fn add(&mut self, key: LimitKey, own: u64, tokens: u64, version: impl FnOnce() -> u64) {
        let has_sum = is_shared(&key) || self.workload.sums.contains_key(&key) || self.has_room(&key, 1);
        let key = if has_sum { key } else { LimitKey::Rest };
        let known = self.sum(key.clone()).cells.get(&own).copied().unwrap_or_default();
        self.raise(key, own, known.saturating_add(tokens), version);
    }

    /// Takes over a cell that another gateway knows. One without room is left out.
    pub(super) fn merge(&mut self, key: LimitKey, instance: u64, tokens: u64, version: impl FnOnce() -> u64) {
        if self.fits(&key, instance, MAX_MERGED) {
            self.raise_other(key, instance, tokens, version);
        }
    }

    /// Reports whether there is this cell, which is not that of this gateway, or room for it in a sum of at most so many.
    fn fits(&self, key: &LimitKey, instance: u64, most: usize) -> bool {
        match self.workload.sums.get(key) {
            Some(sum) if sum.cells.contains_key(&instance) => true,
            Some(sum) => sum.cells.len() < most && self.has_room(key, 1),
            None => self.has_room(key, 2),
        }
    }

    /// Reports whether there is room for so many more cells. Those of callers are never more than the ones that are free.
    fn has_room(&self, key: &LimitKey, more: usize) -> bool {
        let with_them = *self.cells + more;
        match is_shared(key) {
            true => with_them <= MAX_CELLS,
            false => self.workload.cells + more <= (MAX_CELLS - KEPT_CELLS).saturating_sub(with_them),
        }
    }

    /// Raises a cell that is not that of this gateway. Nothing makes no cell.
    fn raise_other(&mut self, key: LimitKey, instance: u64, tokens: u64, version: impl FnOnce() -> u64) {
        if tokens > 0 && self.raise(key, instance, tokens, version) {
            self.grow();
        }
    }

    /// Raises a cell. Returns true if it is new.
    fn raise(&mut self, key: LimitKey, instance: u64, tokens: u64, version: impl FnOnce() -> u64) -> bool {
        let sum = self.sum(key);
        let before = sum.cells.len();
        let known = sum.cells.entry(instance).or_default();
        let more = tokens.saturating_sub(*known);
        *known += more;
        let is_new = sum.cells.len() > before;
        if more > 0 {
            sum.sum = sum.sum.saturating_add(more);
            sum.changed = version();
            self.workload.changed = sum.changed;
        }
        is_new
    }

    /// Returns the sum of a key, a new one if there is none.
    fn sum(&mut self, key: LimitKey) -> &mut SpentSum {
        if !self.workload.sums.contains_key(&key) {
            self.grow();
        }
        self.workload.sums.entry(key).or_default()
    }

    fn grow(&mut self) {
        self.workload.cells += 1;
        *self.cells += 1;
    }
}

/// Reports whether the sum is one of all callers, or of all those for whom there is no room.
fn is_shared(key: &LimitKey) -> bool {
    matches!(key, LimitKey::All | LimitKey::Rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clients::ClientId;

    const DAY: i64 = 20_784;
    const NAME: &str = "agent/ns/a";

    fn caller(name: &str) -> LimitKey {
        LimitKey::Caller(ClientId::User(name.into()))
    }

    fn total(table: &mut SpendingTable, key: LimitKey, run: u64, tokens: u64) -> bool {
        table.of_day(NAME, DAY).take_total(key, run, tokens, || 1)
    }

    proptest! {
        /// Reports of processes whose counts grow, in any order and any number of times.
        #[test]
        fn a_sum_never_forgets_and_counts_no_report_twice(
            reports in prop::collection::vec((0..6_u64, 0..3_u8, 1..1000_u64), 1..200),
            again in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
        ) {
            let key = |number: u8| if number == 0 { LimitKey::All } else { caller(&number.to_string()) };
            let mut table = SpendingTable::default();
            let (mut largest, mut last) = (BTreeMap::new(), BTreeMap::new());
            let repeated = again.iter().map(|index| *index.get(&reports));
            for (run, number, tokens) in reports.iter().copied().chain(repeated) {
                let mut spending = table.of_day(NAME, DAY);
                match tokens % 2 {
                    0 => prop_assert!(spending.take_total(key(number), run, tokens, || 1)),
                    _ => spending.merge(key(number), run, tokens, || 1),
                }
                let known: &mut u64 = largest.entry((number, run)).or_default();
                *known = tokens.max(*known);
                let spent = table.spent(NAME, &key(number), DAY);
                prop_assert!(last.insert(number, spent).unwrap_or_default() <= spent, "it forgets");
                let expected: u64 = largest.iter().filter(|((of, _), _)| *of == number).map(|(_, tokens)| tokens).sum();
                prop_assert_eq!(spent, expected);
            }
        }
    }

    #[test]
    fn each_day_begins_with_nothing() {
        let mut table = SpendingTable::default();
        total(&mut table, LimitKey::All, 1, 7);
        assert_eq!((table.spent(NAME, &LimitKey::All, DAY), table.spent(NAME, &LimitKey::All, DAY + 1)), (7, 0));
        let mut spending = table.of_day(NAME, DAY + 1);
        spending.add(LimitKey::All, 9, 3, || 2);
        spending.add(LimitKey::All, 9, 2, || 3);
        assert_eq!(table.spent(NAME, &LimitKey::All, DAY + 1), 5);
        table.sweep(DAY + 2);
        assert_eq!((table.days.len(), table.cells), (0, 0));
    }

    #[test]
    fn what_comes_late_for_yesterday_uses_up_nothing_of_today() {
        let mut table = SpendingTable::default();
        // Another request has begun the day meanwhile.
        table.of_day(NAME, DAY + 1);
        assert!(total(&mut table, LimitKey::All, 1, 1000));
        assert_eq!(table.spent(NAME, &LimitKey::All, DAY + 1), 0);
        assert!(table.of_day(NAME, DAY + 1).take_total(LimitKey::All, 1, 7, || 2));
        assert_eq!(table.spent(NAME, &LimitKey::All, DAY + 1), 7, "that of the same run is not raised by yesterday's");
        table.sweep(DAY + 1);
        assert_eq!((table.days.len(), table.cells), (1, 2));
    }

    /// Lets a workload report callers, each with one run of a Pod, until there is no room. Returns how many.
    fn fill(table: &mut SpendingTable, workload: &str) -> usize {
        let report = |number: &usize| {
            let key = caller(&number.to_string());
            table.of_day(workload, DAY).take_total(key, 1, 1, || 1)
        };
        (0..MAX_CELLS).take_while(report).count()
    }

    #[test]
    fn what_a_workload_forges_leaves_room_for_others() {
        let mut table = SpendingTable::default();
        let taken = (0..1000).filter(|run| total(&mut table, LimitKey::All, *run, 1)).count();
        assert_eq!(taken, MAX_RUNS, "further runs are counted by the gateways");
        let taken = fill(&mut table, NAME);
        assert_eq!(table.cells, 2 * taken + MAX_RUNS + 1);
        assert!(table.cells <= (MAX_CELLS - KEPT_CELLS) / 2, "{}", table.cells);
        assert!(total(&mut table, caller("0"), 1, 9), "one that is there grows");
        let mut spending = table.of_day(NAME, DAY);
        // Its own sum takes one cell, and the reported ones took two.
        spending.add(caller("last"), 7, 1, || 1);
        spending.add(caller("late"), 7, 3, || 1);
        spending.add(caller("later"), 7, 4, || 1);
        spending.add(caller("0"), 7, 5, || 1);
        assert_eq!(table.spent(NAME, &caller("late"), DAY), 7, "callers without room share a sum");
        assert_eq!(
            (table.spent(NAME, &caller("0"), DAY), table.spent(NAME, &LimitKey::All, DAY)),
            (14, MAX_RUNS as u64)
        );
        assert!(table.of_day("agent/ns/b", DAY).take_total(caller("late"), 1, 5, || 1), "another workload has room");
        assert_eq!(table.spent("agent/ns/b", &caller("late"), DAY), 5);
    }

    #[test]
    fn the_cells_of_all_workloads_have_a_bound() {
        let mut table = SpendingTable::default();
        for number in 0..40 {
            fill(&mut table, &format!("agent/ns/{number}"));
        }
        assert!(table.cells <= MAX_CELLS - KEPT_CELLS, "{}", table.cells);
        let reports = (0..MAX_CELLS).map(|number| format!("agent/ns/{}", number / MAX_RUNS)).enumerate();
        for (run, workload) in reports {
            let mut spending = table.of_day(&workload, DAY);
            spending.take_total(LimitKey::All, run as u64, 1, || 1);
            spending.merge(LimitKey::All, run as u64 + 1_000_000, 1, || 1);
        }
        // A sum takes two.
        assert!((MAX_CELLS - 1..=MAX_CELLS).contains(&table.cells), "{}", table.cells);
        let counted: usize = table.days[&DAY].values().map(|spending| spending.cells).sum();
        assert_eq!(counted, table.cells);
        let mut spending = table.of_day("agent/ns/new", DAY);
        assert!(!spending.take_total(LimitKey::All, 1, 5, || 1));
        spending.add(LimitKey::All, 7, 5, || 1);
        assert_eq!(table.spent("agent/ns/new", &LimitKey::All, DAY), 5, "this gateway counts in any case");
    }

    #[test]
    fn the_oldest_changes_are_reported_first_and_no_more_than_fit() {
        let mut table = SpendingTable::default();
        for (version, workload) in (1..=10).map(|version| (version, if version % 2 == 0 { "a" } else { "b" })) {
            for run in 1..=2 {
                table.of_day(workload, DAY).merge(caller(&version.to_string()), run, 5, || version);
            }
        }
        let reported = |after: u64, most: usize| -> Vec<(u64, usize)> {
            table.changed_after(after, most).into_iter().map(|(version, cells)| (version, cells.len())).collect()
        };
        assert_eq!(reported(0, 5), [(1, 2), (2, 2), (3, 2)], "one more than fit, so that it is known");
        assert_eq!(reported(0, 4), [(1, 2), (2, 2), (3, 2)]);
        assert_eq!(reported(2, 3), [(3, 2), (4, 2)]);
        assert_eq!(reported(7, 100), [(8, 2), (9, 2), (10, 2)]);
        assert!(reported(10, 100).is_empty());
    }

    #[test]
    fn nothing_makes_no_cell() {
        let mut table = SpendingTable::default();
        assert!(total(&mut table, LimitKey::All, 1, 0) && total(&mut table, caller("ada"), 1, 0));
        table.of_day(NAME, DAY).merge(LimitKey::All, 2, 0, || 1);
        assert_eq!((table.cells, table.changed_after(0, 9).len()), (0, 0));
    }
}
