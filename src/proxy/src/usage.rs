//! Usage of models that the responses of an image of others report (`x-recif-usage`), for the control plane.
//!
//! Récif's runner counts by itself, more than a response tells, and says so with each one (`x-recif-spent`): then nothing is
//! counted here.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use crds::usage::{CountedCells, Purpose, ReportedUsage, UsageKey, UsageReport, cut_name, hour_of, latency_bucket};

/// Most models that are counted by name: an image may report any number.
const MAX_MODELS: usize = 20;
/// Provider of a model that is reported without one, and name of all further models.
const OTHER: &str = "other";

/// Usage of models by callers, as responses report it.
#[derive(Debug)]
pub(super) struct UsageTally {
    /// Name of this run of the sidecar.
    instance: String,
    /// Unset where nothing is to be counted.
    is_on: AtomicBool,
    counted: Mutex<CountedUsage>,
}

#[derive(Debug, Default)]
struct CountedUsage {
    /// Cells; `None` before the first report.
    cells: Option<CountedCells>,
    /// Models that are counted by name.
    models: Vec<Box<str>>,
}

impl UsageTally {
    /// Creates a tally of which nothing is counted yet.
    pub(super) fn new(is_on: bool, instance: String) -> Self {
        Self { instance, is_on: AtomicBool::new(is_on), counted: Mutex::default() }
    }

    /// Reports whether usage is counted here.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Stops counting, and forgets what was counted: the workload counts by itself.
    pub(super) fn leave_to_workload(&self) {
        if self.is_on.swap(false, Relaxed) {
            *self.counted() = CountedUsage::default();
        }
    }

    /// Counts what a response to this caller reports, which came after this time; without a name the caller is not known. `now` is in
    /// seconds since 1970.
    pub(super) fn count(&self, caller: Option<&str>, report: &[u8], after: Duration, now: u64) {
        let Some(usage) = ReportedUsage::read(report) else { return };
        let mut totals = usage.totals();
        totals.latency[latency_bucket(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))] = 1;
        // Others would take the whole cell for wrong.
        if !totals.is_plausible() {
            return;
        }
        let mut counted = self.counted();
        if !self.is_on() {
            return;
        }
        let (provider, model) = counted.model(usage.model.as_deref().unwrap_or(OTHER));
        let key = UsageKey {
            hour: hour_of(i64::try_from(now).unwrap_or_default()),
            caller: cut_name(caller.unwrap_or_default()).to_owned(),
            provider: provider.to_owned(),
            model: model.to_owned(),
            purpose: Purpose::Turn,
        };
        counted.cells.get_or_insert_with(|| CountedCells::new(self.instance.clone())).count(key, &totals);
    }

    /// Returns the cells that changed since, by the query `instance=…&after=…` of the one who asks; `None` if nothing was counted.
    pub(super) fn report(&self, query: &str) -> Option<UsageReport> {
        let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let after = value("after").and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
        let counted = self.counted();
        counted.cells.as_ref().map(|cells| cells.report(value("instance").unwrap_or_default(), after))
    }

    fn counted(&self) -> MutexGuard<'_, CountedUsage> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountedUsage {
    /// Returns provider and id by which a model such as `openai/gpt-5` is counted.
    fn model<'a>(&mut self, name: &'a str) -> (&'a str, &'a str) {
        if !self.models.iter().any(|known| **known == *name) {
            if self.models.len() >= MAX_MODELS {
                return (OTHER, OTHER);
            }
            self.models.push(name.into());
        }
        name.split_once('/').unwrap_or((OTHER, name))
    }
}

#[cfg(test)]
mod tests {
    use crds::usage::{LATENCY_BUCKETS, UsageTotals};

    use super::*;

    const NOON: u64 = 20_784 * 86_400 + 43_200;
    const HOUR: i64 = 20_784 * 24 + 12;

    fn tally() -> UsageTally {
        UsageTally::new(true, "one".into())
    }

    fn count(tally: &UsageTally, caller: Option<&str>, report: &str) {
        tally.count(caller, report.as_bytes(), Duration::from_millis(20), NOON);
    }

    #[test]
    fn reports_are_summed_by_caller_and_model() {
        let tally = tally();
        assert_eq!(tally.report(""), None, "nothing was reported");
        for (caller, report) in [
            (Some("ada"), "in=10, out=5, cr=3, model=\"openai/gpt-5\""),
            (Some("ada"), "in=1, out=2, calls=3, model=\"openai/gpt-5\", est"),
            (None, "in=7, out=0, model=\"echo\""),
            (None, "in=1, out=1"),
            (Some("ada"), "in=99, out=100000000000"),
            (Some("ada"), "no report"),
        ] {
            count(&tally, caller, report);
        }
        let report = tally.report("instance=another&after=9").unwrap();
        assert_eq!((report.instance.as_str(), report.revision), ("one", 4));
        let mut found: Vec<_> = report.cells.iter().map(|cell| (&cell.key, &cell.totals)).collect();
        found.sort_unstable_by_key(|(key, _)| *key);
        let names: Vec<_> = found
            .iter()
            .map(|(key, _)| (key.hour, key.caller.as_str(), key.provider.as_str(), key.model.as_str()))
            .collect();
        let expected = [(HOUR, "", "other", "echo"), (HOUR, "", "other", "other"), (HOUR, "ada", "openai", "gpt-5")];
        assert_eq!(names, expected);
        let mut latency = [0; LATENCY_BUCKETS];
        latency[latency_bucket(20)] = 2;
        let sums = UsageTotals {
            calls: 4,
            input: 11,
            cache_read: 3,
            output: 7,
            estimated: 3,
            latency,
            ..UsageTotals::default()
        };
        assert_eq!(*found[2].1, sums);

        assert!(tally.report("instance=one&after=4").unwrap().cells.is_empty());
        count(&tally, Some("ada"), "in=1, out=1, model=\"openai/gpt-5\"");
        let changed = tally.report("instance=one&after=4").unwrap();
        assert_eq!((changed.cells.len(), changed.cells[0].totals.calls, changed.revision), (1, 5, 5));
    }

    #[test]
    fn no_image_makes_the_number_of_models_grow() {
        let tally = tally();
        for number in 0..100 {
            count(&tally, None, &format!("in=1, out=1, model=\"p/m{number}\""));
        }
        let cells = tally.report("").unwrap().cells;
        assert_eq!(cells.len(), MAX_MODELS + 1);
        let other = cells.iter().find(|cell| cell.key.model == OTHER).unwrap();
        assert_eq!((other.key.provider.as_str(), other.totals.calls), (OTHER, 80));
    }

    #[test]
    fn nothing_is_counted_for_a_workload_that_counts_by_itself() {
        let tally = tally();
        count(&tally, None, "in=1, out=1");
        tally.leave_to_workload();
        count(&tally, None, "in=1, out=1");
        assert_eq!((tally.report(""), tally.is_on()), (None, false));
        let never = UsageTally::new(false, "one".into());
        count(&never, None, "in=1, out=1");
        assert_eq!(never.report(""), None);
    }
}
