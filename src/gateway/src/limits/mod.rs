//! Limits of requests (`spec.limits`): how many requests a workload gets in a minute, of all callers together and of each, and how many
//! tokens it uses in a day: [`budget`].
//!
//! Each gateway decides by itself, in memory. It counts in [windows](window), one per workload and caller, and tells the
//! others its counts on the admin port ([`exchange`]): every 500 ms, and at once when it admitted more than a slack that they have
//! not [read](peers). With R gateways and a limit of L, at most `L + (R − 1) · (max(1, L / 4R) + a)` requests are admitted in a
//! minute, where `a` is what one of them admits in 50 ms; one that is killed forgets as much again. A gateway alone is exact.
//!
//! What a gateway reads of others it passes on, so that one that restarts finds its windows again.

mod budget;
mod cost;
mod exchange;
mod peers;
mod refusal;
mod report;
mod specified;
mod spending;
mod window;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    net::SocketAddr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::sync::watch;

pub use budget::TokenBudgets;
pub(super) use budget::{BudgetRefusal, TakenTotals};
pub use cost::CostBudgets;
pub(super) use cost::RequestCost;
pub(super) use exchange::{MAX_REPORT, follow_gateways};
pub(super) use refusal::{LimitPer, RateRefusal, form_at};
pub(super) use report::LimitReport;
pub(super) use specified::SpecifiedLimit;
pub(super) use window::LimitTime;

use self::{
    peers::PeerTable,
    report::{LimitCell, LimitKey, SpentCell},
    spending::SpendingTable,
    window::{PeerView, RateWindow},
};
use crate::{
    clients::ClientId,
    clock::{Clock, random},
};

/// Number of locks: windows are spread over them, so they rarely contend.
const SHARDS: usize = 16;
/// Most windows. When there are as many, further callers of a workload share one.
const MAX_WINDOWS: usize = 100_000;
/// Shortest time between two searches for windows that are not used any more, in milliseconds.
const SWEEP_MILLIS: u64 = 1000;
/// Most cells of one report, but for those of one key, which are together.
const MAX_REPORTED: usize = 10_000;

/// Limits of a workload, in requests per minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimits {
    /// Of all callers together.
    pub per_workload: Option<u32>,
    /// Of each caller.
    pub per_caller: Option<u32>,
}

/// Windows of the callers of one workload.
type WorkloadWindows = HashMap<LimitKey, RateWindow>;
/// Windows of a shard, by workloads such as `agent/default/weather`.
type ShardWindows = HashMap<Box<str>, WorkloadWindows>;

/// Cells of one key in a report.
enum ReportedCells {
    Admitted(Vec<LimitCell>),
    Spent(Vec<SpentCell>),
}

impl ReportedCells {
    fn len(&self) -> usize {
        match self {
            Self::Admitted(cells) => cells.len(),
            Self::Spent(cells) => cells.len(),
        }
    }
}

/// Limiter of the requests to all workloads.
///
/// Invariant: `count` is the number of windows. A version is taken under the lock of the window that it is for, so that a report
/// which reads the version before the windows has every change up to it. The same holds for the tokens.
#[derive(Debug)]
pub(super) struct RateLimiter {
    instance: u64,
    hasher: RandomState,
    shards: [Mutex<ShardWindows>; SHARDS],
    count: AtomicUsize,
    version: AtomicU64,
    swept_at: AtomicU64,
    /// Tokens of the workloads with budgets.
    spending: Mutex<SpendingTable>,
    peers: PeerTable,
    /// Number of times that the other gateways were to read at once.
    pokes: watch::Sender<u64>,
    /// Set once a workload has limits: before, gateways tell one another nothing.
    is_used: watch::Sender<bool>,
}

impl Default for RateLimiter {
    fn default() -> Self {
        // Zero stands for an instance that is not known.
        let instance = random() | 1;
        Self {
            instance,
            hasher: RandomState::new(),
            shards: Default::default(),
            count: AtomicUsize::new(0),
            // The first version is that without any admission.
            version: AtomicU64::new(1),
            swept_at: AtomicU64::new(0),
            spending: Mutex::default(),
            peers: PeerTable::new(instance),
            pokes: watch::Sender::new(0),
            is_used: watch::Sender::new(false),
        }
    }
}

impl LimitTime {
    /// Returns the current time.
    pub(super) fn now(clock: &Clock) -> Self {
        Self { unix: clock.unix(), up: clock.now() }
    }
}

impl RateLimiter {
    /// Notes that a workload has limits.
    pub(super) fn set_used(&self) {
        self.is_used.send_if_modified(|is_used| !std::mem::replace(is_used, true));
    }

    /// Sets the admin addresses of all gateways.
    fn list(&self, addresses: &[SocketAddr]) {
        self.peers.list(addresses);
    }

    /// Admits and counts a request. `workload` is such as `agent/default/weather`.
    ///
    /// # Errors
    /// A limit is reached.
    pub(super) fn admit(
        &self,
        limits: RateLimits,
        workload: &str,
        caller: impl FnOnce() -> ClientId,
        now: LimitTime,
    ) -> Result<(), RateRefusal> {
        let view = self.peers.view();
        let refusal = |per, limit| move |wait| RateRefusal { per, limit, wait };
        if let Some(limit) = limits.per_caller {
            // What the workload's limit refuses is not counted for the caller.
            if let Some(limit) = limits.per_workload {
                let checked = self.take(workload, &LimitKey::All, limit, view, now, false);
                checked.map_err(refusal(LimitPer::Workload, limit))?;
            }
            let taken = self.take(workload, &LimitKey::Caller(caller()), limit, view, now, true);
            taken.map_err(refusal(LimitPer::Caller, limit))?;
        }
        if let Some(limit) = limits.per_workload {
            let taken = self.take(workload, &LimitKey::All, limit, view, now, true);
            taken.map_err(refusal(LimitPer::Workload, limit))?;
        }
        Ok(())
    }

    /// Checks whether a request fits, and counts it if it is to be.
    fn take(
        &self,
        workload: &str,
        key: &LimitKey,
        limit: u32,
        view: PeerView,
        now: LimitTime,
        counts: bool,
    ) -> Result<(), u64> {
        let mut windows = self.shard(workload, key);
        if let Some(window) = windows.get_mut(workload).and_then(|windows| windows.get_mut(key)) {
            return self.take_from(window, limit, view, now, counts);
        }
        drop(windows);
        if !counts {
            return Ok(());
        }
        let key = if self.has_room(now) { key.clone() } else { LimitKey::Rest };
        let mut windows = self.shard(workload, &key);
        self.take_from(self.window(&mut windows, workload, key), limit, view, now, counts)
    }

    fn take_from(
        &self,
        window: &mut RateWindow,
        limit: u32,
        view: PeerView,
        now: LimitTime,
        counts: bool,
    ) -> Result<(), u64> {
        let is_urgent = window.check(limit, view, now)?;
        if counts {
            window.count(now, self.next_version());
            if is_urgent {
                self.poke();
            }
        }
        Ok(())
    }

    /// Lets the other gateways read at once.
    fn poke(&self) {
        self.pokes.send_modify(|times| *times += 1);
    }

    /// Returns the report for the gateway at an address.
    fn question(&self, address: SocketAddr, now: LimitTime) -> LimitReport {
        let report = self.filled(self.peers.greeting(address), now);
        if !report.more {
            self.peers.note_sent(address, report.version, now.up);
        }
        report
    }

    /// Takes over the report of another gateway, and returns the answer.
    pub(super) fn answer(&self, question: &LimitReport, now: LimitTime) -> LimitReport {
        self.merge(&question.cells, now);
        self.merge_spent(&question.spent, now);
        let (head, is_known) = self.peers.note_question(question);
        if !is_known {
            // One that has just started: it is known as soon as it answers.
            self.poke();
        }
        self.filled(head, now)
    }

    /// Takes over the answer of the gateway at an address. Returns true if more is to be exchanged.
    fn take_answer(&self, address: SocketAddr, answer: &LimitReport, now: LimitTime) -> bool {
        self.merge(&answer.cells, now);
        self.merge_spent(&answer.spent, now);
        self.peers.note_answer(address, answer);
        answer.more
    }

    fn merge(&self, cells: &[LimitCell], now: LimitTime) {
        for cell in cells.iter().filter(|cell| cell.instance != self.instance) {
            let Some(key) = LimitKey::read(&cell.key) else { continue };
            let key = if self.has_room(now) { key } else { self.known_or_rest(&cell.workload, key) };
            let mut windows = self.shard(&cell.workload, &key);
            let window = self.window(&mut windows, &cell.workload, key);
            window.merge(cell.instance, &cell.counts, || self.next_version());
        }
    }

    /// Returns the key, or [`LimitKey::Rest`] if it has no window.
    fn known_or_rest(&self, workload: &str, key: LimitKey) -> LimitKey {
        let is_known = self.shard(workload, &key).get(workload).is_some_and(|windows| windows.contains_key(&key));
        if is_known { key } else { LimitKey::Rest }
    }

    /// Fills a report with what changed after its version.
    fn filled(&self, head: LimitReport, now: LimitTime) -> LimitReport {
        let version = self.version.load(Relaxed);
        let mut changed: Vec<(u64, ReportedCells)> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (workload, windows) in shard.iter() {
                for (key, window) in windows.iter().filter(|(_, window)| window.changed > head.after) {
                    let cell = |(instance, counts)| LimitCell {
                        workload: workload.to_string(),
                        key: key.text(),
                        instance,
                        counts,
                    };
                    let cells = window.counts(self.instance, now).map(cell).collect();
                    changed.push((window.changed, ReportedCells::Admitted(cells)));
                }
            }
        }
        // If there are more, these are more than fit, so that the last ones are left out below.
        let spent = self.spending().changed_after(head.after, MAX_REPORTED);
        changed.extend(spent.into_iter().map(|(version, cells)| (version, ReportedCells::Spent(cells))));
        let more = changed.iter().map(|(_, cells)| cells.len()).sum::<usize>() > MAX_REPORTED;
        if more {
            changed.sort_unstable_by_key(|(version, _)| *version);
            let mut count = 0;
            let fits = changed.iter().take_while(|(_, cells)| {
                count += cells.len();
                count <= MAX_REPORTED
            });
            let fits = fits.count().max(1);
            changed.truncate(fits);
        }
        let version = changed.last().filter(|_| more).map_or(version, |(version, _)| *version);
        let (mut cells, mut spent) = (Vec::new(), Vec::new());
        for (_, reported) in changed {
            match reported {
                ReportedCells::Admitted(of_key) => cells.extend(of_key),
                ReportedCells::Spent(of_key) => spent.extend(of_key),
            }
        }
        LimitReport { version, more, cells, spent, ..head }
    }

    /// Forgets the windows that no minute has any more, and the tokens of days that are over.
    pub(super) fn sweep(&self, now: LimitTime) {
        self.swept_at.store(now.up, Relaxed);
        self.spending().sweep(now.day());
        let mut count = 0;
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let before: usize = shard.values().map(HashMap::len).sum();
            shard.retain(|_, windows| {
                windows.retain(|_, window| window.sweep(now));
                !windows.is_empty()
            });
            count += before - shard.values().map(HashMap::len).sum::<usize>();
        }
        self.count.fetch_sub(count, Relaxed);
    }

    /// Reports whether there is room for another window, perhaps after those that are not used any more are gone.
    fn has_room(&self, now: LimitTime) -> bool {
        let is_full = || self.count.load(Relaxed) >= MAX_WINDOWS;
        if is_full() && now.up >= self.swept_at.load(Relaxed).saturating_add(SWEEP_MILLIS) {
            self.sweep(now);
        }
        !is_full()
    }

    /// Returns the window of a key, a new one if there is none.
    fn window<'a>(&self, windows: &'a mut ShardWindows, workload: &str, key: LimitKey) -> &'a mut RateWindow {
        windows.entry(workload.into()).or_default().entry(key).or_insert_with(|| {
            self.count.fetch_add(1, Relaxed);
            RateWindow::default()
        })
    }

    fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Relaxed) + 1
    }

    fn shard(&self, workload: &str, key: &LimitKey) -> MutexGuard<'_, ShardWindows> {
        let at = self.hasher.hash_one((workload, key)) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
