//! Collector: asks the sidecars of all Pods what their models used, and stores it.
//!
//! Reports are merged into a [grow-only counter](UsageCounter), so it does no harm to ask twice, or with several processes. What
//! is not stored yet stays in memory; what a killed process had in memory is reported again, because runtimes keep their cells for
//! a day. A Pod that ends is asked each second.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use crds::{
    ApiKind,
    usage::{UsageCounter, UsageKey, UsageReport, UsageTotals, hour_of},
};
use futures::{StreamExt as _, stream};
use http1::{get_request, query};
use jiff::Timestamp;
use meta::Key;
use store::{ObjectKey, StoreError, UsageRow, Writer};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{callers::StoredCallers, prices::Prices};
use crate::{app::SharedAppState, related::PodRecord};

/// Interval at which a Pod that ends is asked.
const TICK: Duration = Duration::from_secs(1);
/// Ticks after which all other Pods are asked.
const TICKS_PER_ROUND: u64 = 5;
/// Time for which a Pod is not asked after a 404: its image does not count, or has reported nothing yet.
const QUIET: Duration = Duration::from_secs(60);
/// Timeout of one Pod's report.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Pods that are asked at the same time.
const CONCURRENT_QUERIES: usize = 32;
/// Limit of a report, in bytes.
const MAX_REPORT_BYTES: usize = 4 * 1024 * 1024;
/// Cells in memory from which on no Pod is asked until some are stored.
const MAX_PENDING: usize = 200_000;
/// Cells of one transaction.
const CELLS_PER_WRITE: usize = 1_000;
/// Age in hours from which on the cells of several Pods become one.
const FOLDED_AFTER: i64 = 48;

/// Collector of what models used.
pub(crate) struct UsageCollector {
    app: SharedAppState,
    /// Retention time of cells.
    kept: Duration,
    callers: StoredCallers,
    /// Known Pods, by their uids.
    pods: HashMap<Box<str>, KnownPod>,
    /// Cells that are not stored yet.
    pending: UsageCounter<CellOwner>,
    writer: Option<Writer>,
    /// Set while the database fails.
    is_failing: bool,
    /// Hour up to which old cells were folded and removed.
    swept: Option<i64>,
}

/// Process that counts a cell.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CellOwner {
    workload: ObjectKey,
    /// Uid of the Pod, and the run of its runtime.
    instance: String,
}

/// State of a Pod as of its last report.
#[derive(Debug, Default)]
struct KnownPod {
    instance: String,
    revision: u64,
    quiet_until: Option<Instant>,
}

/// Response of a sidecar.
enum PodAnswer {
    Report(UsageReport),
    /// It does not count.
    Nothing,
    /// It did not answer in time, or its workload did not.
    Silent,
}

impl UsageCollector {
    /// Creates a collector that keeps cells in the database for so long, with callers in this form.
    pub(crate) fn new(app: SharedAppState, kept: Duration, callers: StoredCallers) -> Self {
        Self {
            app,
            kept,
            callers,
            pods: HashMap::new(),
            pending: UsageCounter::default(),
            writer: None,
            is_failing: false,
            swept: None,
        }
    }

    /// Runs forever.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0_u64.. {
            ticks.tick().await;
            self.collect(tick % TICKS_PER_ROUND == 0).await;
            self.store().await;
        }
    }

    /// Asks Pods and merges their reports: all of them, or those that end.
    pub(crate) async fn collect(&mut self, all: bool) {
        if self.pending.len() >= MAX_PENDING {
            return;
        }
        if all {
            let there: HashSet<Box<str>> =
                self.app.related.pods.matching(|_, _| true).iter().map(|pod| pod.uid.clone()).collect();
            self.pods.retain(|uid, _| there.contains(uid));
        }
        let now = Instant::now();
        let due = self.app.related.pods.matching(|_, pod| {
            let quiet_until = self.pods.get(&pod.uid).and_then(|known| known.quiet_until);
            let is_due = || all && quiet_until.is_none_or(|until| until <= now);
            pod.usage_key.is_some() && pod.ip.is_some() && (&*pod.state == "Terminating" || is_due())
        });
        let asked: Vec<_> = due
            .into_iter()
            .map(|pod| {
                let known = self.pods.get(&pod.uid);
                let (instance, revision) = known.map_or(("", 0), |known| (known.instance.as_str(), known.revision));
                let path = format!("{}?instance={instance}&after={revision}", crds::usage::USAGE_PATH);
                (pod, path)
            })
            .collect();
        let answers = stream::iter(asked).map(|(pod, path)| async move { (ask(&pod, &path).await, pod) });
        let mut answers = pin!(answers.buffer_unordered(CONCURRENT_QUERIES));
        // One by one, as the reports of all Pods would not fit into memory.
        while self.pending.len() < MAX_PENDING
            && let Some((answer, pod)) = answers.next().await
        {
            match answer {
                PodAnswer::Report(report) => self.merge(&pod, report),
                PodAnswer::Nothing => {
                    self.pods.entry(pod.uid.clone()).or_default().quiet_until = Some(now + QUIET);
                }
                PodAnswer::Silent => {}
            }
        }
    }

    /// Merges the report of a Pod. A Pod can report for its own workload alone, and only what is plausible.
    fn merge(&mut self, pod: &PodRecord, report: UsageReport) {
        let Some((kind, Key { namespace, name })) = pod.workload() else { return };
        let now = Timestamp::now().as_second();
        let workload = ObjectKey { kind: kind.name, namespace: namespace.clone(), name: name.clone() };
        let run: String = report.instance.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
        let process = format!("{}/{run}", pod.uid);
        for cell in report.cells.iter().filter(|cell| cell.is_plausible(now)) {
            let (instance, key) = self.callers.stored(&process, &cell.key);
            self.pending.merge(CellOwner { workload: workload.clone(), instance }, key, &cell.totals);
        }
        let known = self.pods.entry(pod.uid.clone()).or_default();
        (known.instance, known.revision, known.quiet_until) = (run, report.revision, None);
    }

    /// Stores what is pending. After an error it stays pending, and is stored later.
    pub(crate) async fn store(&mut self) {
        let hour = hour_of(Timestamp::now().as_second());
        if self.pending.is_empty() && self.swept == Some(hour) {
            return;
        }
        match self.try_store(hour).await {
            Ok(()) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("usage is written to the database again");
                }
            }
            Err(error) => {
                self.writer = None;
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, cells = self.pending.len(), "cannot write usage to the database; retrying");
                }
            }
        }
    }

    async fn try_store(&mut self, hour: i64) -> Result<(), StoreError> {
        let rows = self.rows();
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(self.app.store.writer().await?),
        };
        for some in rows.chunks(CELLS_PER_WRITE) {
            writer.write_usage(some).await?;
        }
        self.pending.clear();
        if self.swept != Some(hour) {
            let folded = hour - FOLDED_AFTER;
            writer.fold_usage((self.swept.map_or(0, |swept| swept - FOLDED_AFTER), folded)).await?;
            let kept = i64::try_from(self.kept.as_secs()).unwrap_or(i64::MAX);
            writer.delete_usage_before(hour_of(Timestamp::now().as_second().saturating_sub(kept))).await?;
            self.swept = Some(hour);
        }
        Ok(())
    }

    /// Returns the pending cells as rows, with their cost at today's prices.
    fn rows(&self) -> Vec<UsageRow> {
        let mut prices: HashMap<ObjectKey, Prices> = HashMap::new();
        let cells = self.pending.iter();
        let row = |(owner, key, totals): (&CellOwner, &UsageKey, &UsageTotals)| {
            let CellOwner { workload, instance } = owner;
            let prices = prices.entry(workload.clone()).or_insert_with(|| {
                let place = Key::new(&workload.namespace, &workload.name);
                ApiKind::find(workload.kind).map(|kind| Prices::read(&self.app.fleet, kind, &place)).unwrap_or_default()
            });
            let cost = prices.cost(key, totals);
            let (workload, instance) = (workload.clone(), instance.clone());
            UsageRow { workload, instance, key: key.clone(), totals: *totals, cost }
        };
        cells.map(row).collect()
    }
}

/// Asks the sidecar of a Pod.
async fn ask(pod: &Arc<PodRecord>, path: &str) -> PodAnswer {
    let (Some(key), Some(ip)) = (&pod.usage_key, pod.ip) else { return PodAnswer::Nothing };
    let request = get_request(path, &[("X-Recif-Key", &**key), ("Connection", "close")]);
    let answer = timeout(TIMEOUT, query(SocketAddr::new(ip, pod.port), None, &request, MAX_REPORT_BYTES)).await;
    let Ok(Ok(answer)) = answer else { return PodAnswer::Silent };
    match answer.status {
        200 => serde_json::from_slice(&answer.body).map_or(PodAnswer::Nothing, PodAnswer::Report),
        404 => PodAnswer::Nothing,
        // A runtime that is starting or has much to do: it is asked again in the next round.
        _ => PodAnswer::Silent,
    }
}
