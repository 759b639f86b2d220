//! Copies the read model into the database, and keeps doing so whatever becomes of the database.
//!
//! There is no queue: the fleet's journal holds each object once, under its newest change, and the mirror is one of its
//! readers. While the database is slow the changes of an object merge there; while it is away nothing grows. Whenever a
//! connection is made, what is stored is compared with what there is, so it does not matter what was lost on the way.

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
pub use metrics::MirrorMetrics;
pub use state::MirrorState;

/// How long the first look waits for all lists; what is listed later is looked at then.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is seen whether a kind was listed, or something is due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often everything is compared, and old transitions are looked for.
const RESYNC_INTERVAL: Duration = Duration::from_secs(3600);

/// Copies the fleet into a database.
#[derive(Debug)]
pub struct Mirror {
    /// What is copied.
    pub fleet: Arc<FleetCache>,
    /// Where to.
    pub store: Arc<Store>,
    /// Says which kinds were listed.
    pub watch_health: Arc<WatchHealth>,
    /// The namespaces that the fleet is of; empty: all.
    pub namespaces: Vec<String>,
    /// How long transitions are kept.
    pub history: Duration,
    /// How it goes, for others to see.
    pub state: Arc<MirrorState>,
    /// What is counted.
    pub metrics: MirrorMetrics,
}

impl Mirror {
    /// What readiness tells of it.
    pub fn notes(&self) -> Box<dyn Fn() -> Vec<String> + Send + Sync> {
        let (state, fleet) = (self.state.clone(), self.fleet.clone());
        Box::new(move || state.notes(&fleet))
    }

    /// Sets the metrics that are only looked at.
    pub fn refresh(&self) -> Box<dyn Fn() + Send + Sync> {
        let (state, fleet, metrics) = (self.state.clone(), self.fleet.clone(), self.metrics.clone());
        Box::new(move || metrics.refresh(&state, &fleet))
    }

    /// Runs for ever.
    pub async fn run(self) {
        // What is not listed by then, is looked at when it is.
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
        // What was deleted meanwhile is still in the journal, with its last steps.
        let mut feed = self.state.position().and_then(|position| self.fleet.feed_after(position));
        let mut round = Instant::now();
        let mut deleted: Option<Instant> = None;
        if self.state.record_recovery() {
            tracing::info!(database = self.store.display_name(), "what changes is stored");
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

    /// A reader of what comes after everything that there is, which is stored then.
    async fn resume(&self, session: &mut MirrorSession<'_>, listed: &mut u64) -> Result<Feed, StoreError> {
        loop {
            if let Some(feed) = self.fleet.feed_after(*listed) {
                self.state.advance(*listed);
                return Ok(feed);
            }
            *listed = session.catch_up().await?;
        }
    }

    /// The kinds of which there was a complete list, by their place in [`KINDS`].
    fn listed(&self) -> Vec<u8> {
        let is_listed = |kind| {
            let collections = self.collections(kind);
            !collections.is_empty() && collections.iter().all(|collection| self.watch_health.is_synced(collection))
        };
        (0_u8..).zip(KINDS).filter(|(_, kind)| is_listed(kind)).map(|(row, _)| row).collect()
    }

    /// What was heard of the watches of a kind.
    fn watch_activity(&self, kind: &crds::ApiKind) -> Vec<WatchActivity> {
        self.collections(kind).iter().flat_map(|collection| self.watch_health.activity(collection)).collect()
    }

    /// What of a kind is watched.
    fn collections(&self, kind: &crds::ApiKind) -> Vec<String> {
        let Some(resource) = Resource::custom(kind.name) else { return Vec::new() };
        let everywhere = self.namespaces.is_empty().then_some(None);
        let scopes = everywhere.into_iter().chain(self.namespaces.iter().map(|name| Some(name.as_str())));
        scopes.map(|scope| resource.collection(scope)).collect()
    }
}

/// What is known to be stored, over all connections.
#[derive(Debug, Default)]
struct StoredProgress {
    /// The last step of each object, by uid.
    last_steps: HashMap<Box<str>, i64>,
    /// What was newer than the cluster, by the kinds' places in [`KINDS`].
    unconfirmed: HashMap<u8, UnconfirmedRows>,
    /// When old transitions were looked for last, and none were left.
    pruned_at: Option<Instant>,
}

/// One connection.
struct MirrorSession<'a> {
    mirror: &'a Mirror,
    writer: Writer,
    progress: &'a mut StoredProgress,
    /// The kinds whose rows were compared.
    compared: HashSet<u8>,
}

impl MirrorSession<'_> {
    /// Compares what is stored of each kind that was listed with what there is, and writes what is missing. Returns the
    /// stamp of the last change in it.
    async fn catch_up(&mut self) -> Result<u64, StoreError> {
        let listed = self.mirror.listed();
        // Heard before what is compared is taken.
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
                    // Reading them takes a while, and the API is served by the same thread.
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

    /// Whether there is nothing to write of an object.
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

    /// Writes as many of these changes as go into one transaction; returns how many.
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

    /// Deletes some of the transitions that are older than what is kept.
    async fn prune_transitions(&mut self) -> Result<(), StoreError> {
        if !self.writer.delete_transitions_before(self.mirror.kept_since()).await? {
            self.progress.pruned_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Whether another look can tell whether what is newer than the cluster is of a past that was undone.
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
    /// The oldest time of which transitions are kept.
    fn kept_since(&self) -> Timestamp {
        Timestamp::now().checked_sub(self.history).unwrap_or(Timestamp::MIN)
    }
}
