//! Mirror: copies the read model into the database, and goes on whatever happens to the database.
//!
//! There is no queue: the fleet's journal is a compacted log with each object under its newest change, and the mirror is one of
//! its readers. While the database is slow, the changes of an object merge there; while it is away, nothing grows. After each
//! connect the stored rows are reconciled with the read model, so it does not matter what was lost on the way. Retries back off
//! exponentially with jitter.

mod args;
mod batch;
mod metrics;
mod rows;
mod state;
#[cfg(test)]
mod tests;
mod unconfirmed;

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
    time::{Duration, Instant},
};

use backoff::{BackoffBuilder, ExponentialBuilder};
use cluster::{WatchActivity, WatchHealth, resource::Resource};
use crds::{KINDS, Role};
use jiff::Timestamp;
use store::{KindComparison, Store, StoreError, StoredVersion, Writer};

use self::{
    batch::{MAX_OBJECTS, MirrorBatch},
    unconfirmed::UnconfirmedRows,
};
use super::fleet::{Batch as Changes, ChangedObject, Feed, FleetCache, Record};

pub use args::MirrorArgs;
pub(crate) use args::{Retention, days};
pub use metrics::MirrorMetrics;
pub use state::MirrorState;

/// Longest wait for all lists before the first reconciliation; a kind that is listed later is reconciled then.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the mirror looks for kinds that were listed since, and for work that is due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which all rows are reconciled and old transitions are pruned.
const RESYNC_INTERVAL: Duration = Duration::from_secs(3600);

/// Copies the fleet into a database.
#[derive(Debug)]
pub struct Mirror {
    /// Source of the copy.
    pub fleet: Arc<FleetCache>,
    /// Target of the copy.
    pub store: Arc<Store>,
    /// Knows which kinds were listed.
    pub watch_health: Arc<WatchHealth>,
    /// Namespaces of the fleet; empty: all.
    pub namespaces: Vec<String>,
    /// Retention time of transitions.
    pub history: Duration,
    /// State of the mirror, shared with readiness and the API.
    pub state: Arc<MirrorState>,
    /// Metrics of the mirror.
    pub metrics: MirrorMetrics,
}

impl Mirror {
    /// Returns the function that lists the notes for readiness.
    pub fn notes(&self) -> Box<dyn Fn() -> Vec<String> + Send + Sync> {
        let (state, fleet) = (self.state.clone(), self.fleet.clone());
        Box::new(move || state.notes(&fleet))
    }

    /// Returns the function that updates the gauges before a scrape.
    pub fn refresh(&self) -> Box<dyn Fn() + Send + Sync> {
        let (state, fleet, metrics) = (self.state.clone(), self.fleet.clone(), self.metrics.clone());
        Box::new(move || metrics.refresh(&state, &fleet))
    }

    /// Runs forever.
    pub async fn run(self) {
        // A kind that is not listed by then is reconciled once it is.
        let _ = tokio::time::timeout(LIST_TIMEOUT, self.watch_health.settled()).await;
        let delays = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(5))
            .with_jitter()
            .without_max_times();
        let mut delay = delays.build();
        let mut seen = StoredProgress::default();
        loop {
            let before = self.state.position();
            let Err(error) = self.follow(&mut seen).await;
            self.metrics.failures.inc();
            if self.state.record_failure(&error, Instant::now()) {
                let behind = self.state.behind(&self.fleet).as_secs();
                tracing::warn!(database = self.store.display_name(), %error, behind, "cannot write history to the database; retrying");
            }
            if self.state.position() != before {
                delay = delays.build();
            }
            tokio::time::sleep(delay.next().unwrap_or(Duration::from_secs(5))).await;
        }
    }

    /// Copies until the database fails.
    async fn follow(&self, seen: &mut StoredProgress) -> Result<Infallible, StoreError> {
        let mut session = MirrorSession {
            mirror: self,
            writer: self.store.writer().await?,
            progress: seen,
            compared: HashSet::new(),
        };
        let mut listed = session.catch_up().await?;
        // Objects that were deleted meanwhile are still in the journal, with their last steps.
        let mut feed = self.state.position().and_then(|position| self.fleet.feed_after(position));
        let mut round = Instant::now();
        let mut deleted: Option<Instant> = None;
        if self.state.record_recovery() {
            tracing::info!(database = self.store.display_name(), "history is written to the database again");
        }
        loop {
            let reader = match &mut feed {
                Some(reader) => reader,
                None => feed.insert(self.resume(&mut session, &mut listed).await?),
            };
            match tokio::time::timeout(POLL_INTERVAL, reader.next(MAX_OBJECTS)).await {
                Ok(Changes::Changes(changes)) => {
                    session.write_changes(&changes).await?;
                    self.state.advance(reader.position());
                }
                Ok(Changes::Reset) => feed = None,
                Err(_) => {}
            }
            let due = round.elapsed() >= RESYNC_INTERVAL;
            if due {
                round = Instant::now();
            }
            if session.progress.pruned_at.is_none_or(|at| at.elapsed() >= RESYNC_INTERVAL)
                && deleted.is_none_or(|at| at.elapsed() >= POLL_INTERVAL)
            {
                deleted = Some(Instant::now());
                session.prune_transitions().await?;
            }
            if due || session.can_confirm() || session.compared.len() < self.listed().len() {
                session.catch_up().await?;
            }
        }
    }

    /// Stores all objects if necessary, and returns a reader of the changes that come after what is stored.
    async fn resume(&self, session: &mut MirrorSession<'_>, listed: &mut u64) -> Result<Feed, StoreError> {
        loop {
            if let Some(feed) = self.fleet.feed_after(*listed) {
                self.state.advance(*listed);
                return Ok(feed);
            }
            *listed = session.catch_up().await?;
        }
    }

    /// Returns the kinds with a complete list, by their index in [`KINDS`].
    fn listed(&self) -> Vec<u8> {
        let is_listed = |kind| {
            let collections = self.collections(kind);
            !collections.is_empty() && collections.iter().all(|collection| self.watch_health.is_synced(collection))
        };
        (0_u8..).zip(KINDS).filter(|(_, kind)| is_listed(kind)).map(|(row, _)| row).collect()
    }

    /// Returns the activity of the watches of a kind.
    fn watch_activity(&self, kind: &crds::ApiKind) -> Vec<WatchActivity> {
        self.collections(kind).iter().flat_map(|collection| self.watch_health.activity(collection)).collect()
    }

    /// Returns the collections of a kind that are watched.
    fn collections(&self, kind: &crds::ApiKind) -> Vec<String> {
        let Some(resource) = Resource::custom(kind.name) else { return Vec::new() };
        let everywhere = self.namespaces.is_empty().then_some(None);
        let scopes = everywhere.into_iter().chain(self.namespaces.iter().map(|name| Some(name.as_str())));
        scopes.map(|scope| resource.collection(scope)).collect()
    }
}

/// Progress that outlives a connection.
///
/// Invariant: no step of an object up to its number in `last_steps` needs to be written.
#[derive(Debug, Default)]
struct StoredProgress {
    /// Number of the last stored step of each object, by uid.
    last_steps: HashMap<Box<str>, i64>,
    /// Rows that were newer than the cluster, by the index of their kind in [`KINDS`].
    unconfirmed: HashMap<u8, UnconfirmedRows>,
    /// Time of the last pruning that left no old transitions.
    pruned_at: Option<Instant>,
}

/// Work over one connection to the database.
struct MirrorSession<'a> {
    mirror: &'a Mirror,
    writer: Writer,
    progress: &'a mut StoredProgress,
    /// Kinds whose rows were compared over this connection.
    compared: HashSet<u8>,
}

impl MirrorSession<'_> {
    /// Reconciles the rows of each listed kind with the read model: removes rows of deleted objects and writes missing ones.
    /// Returns the stamp of the last change in the compared snapshot.
    async fn catch_up(&mut self) -> Result<u64, StoreError> {
        let listed = self.mirror.listed();
        // Read before the snapshot that is compared.
        let heard: Vec<Vec<WatchActivity>> = KINDS.iter().map(|kind| self.mirror.watch_activity(kind)).collect();
        let (stamp, all) = self.mirror.fleet.snapshot();
        let live: HashSet<&str> = all.iter().map(|record| &*record.uid).collect();
        self.progress.last_steps.retain(|uid, _| live.contains(&**uid));
        for ((row, kind), heard) in (0_u8..).zip(KINDS).zip(&heard) {
            let of_kind: Vec<&Arc<Record>> = all.iter().filter(|record| record.row == row).collect();
            let mut known = KindComparison::default();
            if listed.contains(&row) {
                let heads: Vec<StoredVersion> = of_kind.iter().map(|record| rows::head(record)).collect();
                let (before, now) = (self.progress.unconfirmed.get(&row), Instant::now());
                let doubts = before.map(|doubted| doubted.confirmed_by(heard, now)).unwrap_or_default();
                known = self.writer.compare(kind.name, &self.mirror.namespaces, &heads, &doubts).await?;
                self.compared.insert(row);
                let found = std::mem::take(&mut known.unconfirmed);
                let heard = self.mirror.watch_activity(kind);
                if let Some(doubted) =
                    UnconfirmedRows::after(self.progress.unconfirmed.remove(&row), &doubts, found, heard)
                {
                    self.progress.unconfirmed.insert(row, doubted);
                }
                if known.undone > 0 {
                    let rows = known.undone;
                    tracing::warn!(kind = kind.name, rows, "the cluster was restored: newer rows are replaced");
                }
                if known.removed > 0 {
                    tracing::info!(kind = kind.name, rows = known.removed, "removed rows whose objects are gone");
                }
                for record in &of_kind {
                    self.progress.last_steps.remove(&record.uid);
                }
                self.progress.last_steps.extend(known.last_steps.drain().map(|(uid, last)| (uid.into(), last)));
            }
            let missing: Vec<_> = of_kind.into_iter().filter(|record| !self.is_stored(record, &known)).collect();
            let mut rest = missing.as_slice();
            while !rest.is_empty() {
                let mut portion = MirrorBatch::default();
                for record in rest {
                    if !portion.has_room() {
                        break;
                    }
                    portion.add(self.record(record), false);
                    // Reading the objects takes a while, and the API is served by the same thread.
                    tokio::task::yield_now().await;
                }
                self.writer.write(portion.batch()).await?;
                let (some, others) = rest.split_at(portion.len());
                self.record_steps(some.iter().copied());
                rest = others;
            }
        }
        Ok(stamp)
    }

    /// Reports whether nothing of an object needs to be written.
    fn is_stored(&self, record: &Record, known: &KindComparison) -> bool {
        let has_steps = record.seq <= self.last_step(record);
        let version = || known.workloads.get(&rows::key(record));
        // The tools of a server may have become known since this version of it was written.
        let has_row = match record.kind.role {
            _ if record.server.is_some() => false,
            Role::Workload => {
                version().is_some_and(|(uid, version)| **uid == *record.uid && *version == rows::version(record))
            }
            Role::Reference => true,
        };
        has_row && has_steps
    }

    async fn write_changes(&mut self, changes: &[ChangedObject]) -> Result<(), StoreError> {
        let mut rest = changes;
        while !rest.is_empty() {
            let written = self.write_some(rest).await?;
            rest = rest.split_at(written).1;
        }
        Ok(())
    }

    /// Writes as many of these changes as fit into one transaction; returns their number.
    async fn write_some(&mut self, changes: &[ChangedObject]) -> Result<usize, StoreError> {
        let mut portion = MirrorBatch::default();
        for ChangedObject { record, deleted, .. } in changes {
            if !portion.has_room() {
                break;
            }
            portion.add(self.record(record), *deleted);
        }
        self.writer.write(portion.batch()).await?;
        let (changes, _) = changes.split_at(portion.len());
        let metrics = &self.mirror.metrics;
        for changed in changes {
            metrics.lag.observe(changed.at.elapsed().as_secs_f64());
        }
        metrics.written.inc_by(u64::try_from(changes.len()).unwrap_or_default());
        self.record_steps(changes.iter().filter(|changed| !changed.deleted).map(|changed| &changed.record));
        for changed in changes.iter().filter(|changed| changed.deleted) {
            self.progress.last_steps.remove(&changed.record.uid);
        }
        Ok(changes.len())
    }

    /// Deletes a batch of transitions that are older than the retention time.
    async fn prune_transitions(&mut self) -> Result<(), StoreError> {
        if !self.writer.delete_transitions_before(self.mirror.kept_since()).await? {
            self.progress.pruned_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Reports whether another comparison can confirm rows that are newer than the cluster.
    fn can_confirm(&self) -> bool {
        let now = Instant::now();
        let mut doubts = self.progress.unconfirmed.iter();
        doubts.any(|(row, doubted)| {
            let kind = KINDS.get(usize::from(*row));
            kind.is_some_and(|kind| doubted.can_confirm(&self.mirror.watch_activity(kind), now))
        })
    }

    fn record(&self, record: &Record) -> store::Record {
        let tools = record.server.as_ref().and_then(|_| self.mirror.fleet.tools(record.kind.name, &record.key));
        rows::record(record, tools.as_deref(), self.last_step(record), self.mirror.kept_since())
    }

    fn last_step(&self, record: &Record) -> i64 {
        self.progress.last_steps.get(&record.uid).copied().unwrap_or_default()
    }

    fn record_steps<'a>(&mut self, written: impl Iterator<Item = &'a Arc<Record>>) {
        self.progress.last_steps.extend(written.map(|record| (record.uid.clone(), record.seq)));
    }
}

impl Mirror {
    /// Returns the time before which transitions are not kept.
    fn kept_since(&self) -> Timestamp {
        Timestamp::now().checked_sub(self.history).unwrap_or(Timestamp::MIN)
    }
}
