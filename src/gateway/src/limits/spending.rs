//! Tokens that workloads and their callers have used today, in cells that only grow.
//!
//! A cell has what one process has counted: a run of a Pod, which reports its totals, or a gateway, which counts responses without them.
//! Of two versions of a cell the larger one counts, and a sum is that of its cells. So reports may come twice, late, in any order, or by
//! way of another gateway.
//!
//! The reports are the workload's own. What it forges concerns its own cells alone, for which it has a room that others do not share.

use std::collections::HashMap;

use super::report::{LimitKey, SpentCell};

/// Most cells of all workloads, which have equal rooms.
const MAX_CELLS: usize = 400_000;
/// Room of a workload however many there are, in cells.
const MIN_ROOM: usize = 400;
/// Most runs of Pods in a sum. What later ones use is counted by the gateways.
const MAX_RUNS: usize = 256;
/// Most cells of a sum with those that other gateways know.
const MAX_MERGED: usize = 4 * MAX_RUNS;

/// Spending of all workloads.
#[derive(Debug, Default)]
pub(super) struct SpendingTable(HashMap<Box<str>, WorkloadSpending>);

/// Spending of a workload on one day.
///
/// Invariant: `cells` is the number of cells of all sums.
#[derive(Debug)]
pub(super) struct WorkloadSpending {
    day: i64,
    cells: usize,
    sums: HashMap<LimitKey, SpentSum>,
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
    /// Returns the spending of a workload, and its room for cells.
    pub(super) fn of_day(&mut self, workload: &str, day: i64) -> (&mut WorkloadSpending, usize) {
        let room = (MAX_CELLS / (self.0.len() + 1)).max(MIN_ROOM);
        let spending = self.0.entry(workload.into()).or_insert_with(|| WorkloadSpending::new(day));
        if spending.day < day {
            *spending = WorkloadSpending::new(day);
        }
        (spending, room)
    }

    /// Returns the tokens that were used on this day.
    pub(super) fn spent(&self, workload: &str, key: &LimitKey, day: i64) -> u64 {
        let today = self.0.get(workload).filter(|spending| spending.day >= day);
        today.map_or(0, |spending| spending.spent(key))
    }

    /// Returns the cells of each sum that changed after this version, with the version of its last change.
    pub(super) fn changed_after(&self, version: u64) -> impl Iterator<Item = (u64, Vec<SpentCell>)> {
        self.0.iter().flat_map(move |(workload, spending)| {
            let changed = spending.sums.iter().filter(move |(_, sum)| sum.changed > version);
            changed.map(move |(key, sum)| {
                let cell = |(instance, tokens): (&u64, &u64)| SpentCell {
                    workload: workload.to_string(),
                    key: key.text(),
                    instance: *instance,
                    day: spending.day,
                    tokens: *tokens,
                };
                (sum.changed, sum.cells.iter().map(cell).collect())
            })
        })
    }

    /// Forgets the days before this one.
    pub(super) fn sweep(&mut self, day: i64) {
        self.0.retain(|_, spending| spending.day >= day);
    }
}

impl WorkloadSpending {
    fn new(day: i64) -> Self {
        Self { day, cells: 0, sums: HashMap::new() }
    }

    /// Takes over the total of a run of a Pod. Returns false if there is no room for it.
    pub(super) fn take_total(
        &mut self,
        key: LimitKey,
        run: u64,
        total: u64,
        room: usize,
        version: impl FnOnce() -> u64,
    ) -> bool {
        let (is_known, cells) = self.known(&key, run);
        let fits = is_known || (self.cells < room && cells < MAX_RUNS);
        if fits {
            self.raise(key, run, total, version);
        }
        fits
    }

    /// Counts tokens in the cell of this gateway. Callers for whom there is no room share a sum.
    pub(super) fn add(&mut self, key: LimitKey, own: u64, tokens: u64, room: usize, version: impl FnOnce() -> u64) {
        let has_sum = key == LimitKey::All || self.sums.contains_key(&key) || self.cells < room;
        let key = if has_sum { key } else { LimitKey::Rest };
        let known = self.sums.get(&key).and_then(|sum| sum.cells.get(&own)).copied().unwrap_or_default();
        self.raise(key, own, known.saturating_add(tokens), version);
    }

    /// Takes over a cell that another gateway knows. One without room is left out.
    pub(super) fn merge(
        &mut self,
        key: LimitKey,
        instance: u64,
        tokens: u64,
        room: usize,
        version: impl FnOnce() -> u64,
    ) {
        let (is_known, cells) = self.known(&key, instance);
        let is_shared = matches!(key, LimitKey::All | LimitKey::Rest);
        if is_known || (cells < MAX_MERGED && (is_shared || self.cells < 2 * room)) {
            self.raise(key, instance, tokens, version);
        }
    }

    /// Returns the tokens that were used. A caller without a sum has that of those for whom there was no room, if there is one.
    fn spent(&self, key: &LimitKey) -> u64 {
        let rest = || self.sums.get(&LimitKey::Rest).filter(|_| *key != LimitKey::All);
        self.sums.get(key).or_else(rest).map_or(0, |sum| sum.sum)
    }

    /// Reports whether there is this cell, and returns the number of cells of its sum.
    fn known(&self, key: &LimitKey, instance: u64) -> (bool, usize) {
        self.sums.get(key).map_or((false, 0), |sum| (sum.cells.contains_key(&instance), sum.cells.len()))
    }

    fn raise(&mut self, key: LimitKey, instance: u64, tokens: u64, version: impl FnOnce() -> u64) {
        let sum = self.sums.entry(key).or_default();
        let before = sum.cells.len();
        let known = sum.cells.entry(instance).or_default();
        let more = tokens.saturating_sub(*known);
        if more > 0 {
            *known = tokens;
            sum.sum = sum.sum.saturating_add(more);
            sum.changed = version();
        }
        self.cells += sum.cells.len() - before;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::clients::ClientId;

    const DAY: i64 = 20_784;
    const NAME: &str = "agent/ns/a";

    fn caller(name: &str) -> LimitKey {
        LimitKey::Caller(ClientId::User(name.into()))
    }

    fn total(table: &mut SpendingTable, key: LimitKey, run: u64, tokens: u64) -> bool {
        let (spending, room) = table.of_day(NAME, DAY);
        spending.take_total(key, run, tokens, room, || 1)
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
                let (spending, room) = table.of_day(NAME, DAY);
                match tokens % 2 {
                    0 => prop_assert!(spending.take_total(key(number), run, tokens, room, || 1)),
                    _ => spending.merge(key(number), run, tokens, room, || 1),
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
        let (spending, room) = table.of_day(NAME, DAY + 1);
        spending.add(LimitKey::All, 9, 3, room, || 2);
        spending.add(LimitKey::All, 9, 2, room, || 3);
        assert_eq!(table.spent(NAME, &LimitKey::All, DAY + 1), 5);
        table.sweep(DAY + 2);
        assert!(table.0.is_empty());
    }

    #[test]
    fn what_a_workload_forges_fills_its_own_room_alone() {
        let mut table = SpendingTable::default();
        let taken = (0..1000).filter(|run| total(&mut table, LimitKey::All, *run, 1)).count();
        assert_eq!(taken, MAX_RUNS, "further runs are counted by the gateways");
        let mut taken = 0;
        while total(&mut table, caller(&taken.to_string()), 1, 1) {
            taken += 1;
        }
        assert_eq!(taken + MAX_RUNS, MAX_CELLS / 2);
        assert!(total(&mut table, caller("0"), 1, 9), "one that is there grows");
        let (spending, room) = table.of_day(NAME, DAY);
        spending.add(caller("late"), 7, 3, room, || 1);
        spending.add(caller("later"), 7, 4, room, || 1);
        assert_eq!(table.spent(NAME, &caller("late"), DAY), 7, "callers without room share a sum");
        assert_eq!(
            (table.spent(NAME, &caller("0"), DAY), table.spent(NAME, &LimitKey::All, DAY)),
            (9, MAX_RUNS as u64)
        );
        let (other, room) = table.of_day("agent/ns/b", DAY);
        assert!(other.take_total(caller("late"), 1, 5, room, || 1), "another workload has its room");
        assert_eq!(table.spent("agent/ns/b", &caller("late"), DAY), 5);
    }
}
