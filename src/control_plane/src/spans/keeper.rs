//! Keeper of spans: writes those that wait in a bounded queue to the database, and deletes old ones.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use store::{SpanRow, Store, StoreError, Writer};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep, timeout},
};

use super::{args::SpanRetention, metrics::SpanMetrics};

/// Limit of the rows that wait, in KiB.
const QUEUE_KIB: usize = 16 * 1024;
/// Interval at which old spans are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Time between two tries while the database fails.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a large row: never many more rows are deleted for their size than needed.
const LARGE_ROW: u64 = 4096;
/// Limit of the rows that are deleted at once for their size.
const MAX_DELETED: usize = 1000;
/// Tries after which rows that the database refuses are given up. PostgreSQL refuses one of two that wait for each other.
const MAX_REFUSALS: usize = 3;

/// Sender's end of the queue. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct SpanQueue {
    batches: mpsc::UnboundedSender<SpanBatch>,
    /// Free room, in KiB: it bounds the queue.
    room: Arc<Semaphore>,
}

/// The queue has no room for further rows.
#[derive(Debug)]
pub(super) struct QueueFull;

/// Rows of one request.
#[derive(Debug)]
struct SpanBatch {
    rows: Vec<SpanRow>,
    /// Room that they take, free again when they are stored.
    _room: OwnedSemaphorePermit,
}

/// Task that writes and deletes spans.
pub(crate) struct SpanKeeper {
    store: Arc<Store>,
    batches: mpsc::UnboundedReceiver<SpanBatch>,
    retention: SpanRetention,
    metrics: SpanMetrics,
    writer: Option<Writer>,
    /// Bytes of all spans: those of the last sweep, and what was written since.
    bytes: u64,
    swept: Option<Instant>,
    /// Set while the database fails.
    is_failing: bool,
}

/// Creates a queue, and the task that stores what comes through it.
pub(crate) fn keeper(store: Arc<Store>, retention: SpanRetention, metrics: SpanMetrics) -> (SpanQueue, SpanKeeper) {
    let (sender, batches) = mpsc::unbounded_channel();
    let queue = SpanQueue { batches: sender, room: Arc::new(Semaphore::new(QUEUE_KIB)) };
    let keeper =
        SpanKeeper { store, batches, retention, metrics, writer: None, bytes: 0, swept: None, is_failing: false };
    (queue, keeper)
}

impl SpanQueue {
    /// Adds rows, all or none, without waiting.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn push(&self, rows: Vec<SpanRow>) -> Result<(), QueueFull> {
        if rows.is_empty() {
            return Ok(());
        }
        // A request that is larger than the queue has room when nothing waits.
        let kib = (size(&rows) / 1024 + 1).min(QUEUE_KIB);
        let room = self.room.clone().try_acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX));
        let batch = SpanBatch { rows, _room: room.map_err(|_| QueueFull)? };
        self.batches.send(batch).map_err(|_| QueueFull)
    }
}

impl SpanKeeper {
    /// Runs until no sender is left and all that was sent is stored.
    pub(crate) async fn run(mut self) {
        loop {
            match timeout(SWEEP_INTERVAL, self.batches.recv()).await {
                Ok(Some(batch)) => self.keep(&batch.rows).await,
                Ok(None) => return,
                Err(_) => {}
            }
            self.sweep().await;
        }
    }

    /// Stores what waits in the queue now.
    #[cfg(test)]
    pub(super) async fn keep_waiting(&mut self) {
        while let Ok(batch) = self.batches.try_recv() {
            self.keep(&batch.rows).await;
        }
    }

    /// Stores rows, however long the database is away.
    pub(super) async fn keep(&mut self, rows: &[SpanRow]) {
        let mut refusals = 0;
        let count = u64::try_from(rows.len()).unwrap_or(u64::MAX);
        while let Err(error) = self.write(rows).await {
            self.record_failure(&error);
            refusals += usize::from(matches!(error, StoreError::Refused { .. }));
            if refusals >= MAX_REFUSALS {
                self.metrics.lost.inc_by(count);
                return;
            }
            sleep(RETRY_INTERVAL).await;
        }
        self.bytes = self.bytes.saturating_add(u64::try_from(size(rows)).unwrap_or(u64::MAX));
        self.metrics.stored.inc_by(count);
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("spans are written to the database again");
        }
    }

    /// Deletes what is too old or too much, if that is due.
    pub(super) async fn sweep(&mut self) {
        let is_due = self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP_INTERVAL);
        if !is_due && self.bytes <= self.retention.bytes {
            return;
        }
        self.swept = Some(Instant::now());
        match self.delete().await {
            Ok(bytes) => self.bytes = bytes,
            Err(error) => self.record_failure(&error),
        }
    }

    async fn write(&mut self, rows: &[SpanRow]) -> Result<(), StoreError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(self.store.writer().await?),
        };
        writer.write_spans(rows).await
    }

    /// Deletes old spans, and the oldest if all are more than allowed. Returns the bytes of those that stay.
    async fn delete(&mut self) -> Result<u64, StoreError> {
        let SpanRetention { time, bytes: limit } = self.retention;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(self.store.writer().await?),
        };
        let kept = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp::now().as_millisecond().saturating_sub(kept);
        while writer.delete_spans_before(before).await? {}
        let mut bytes = writer.span_bytes().await?;
        if bytes > limit {
            // Some more than needed, so that it is not needed again at once.
            let wanted = limit - limit / 10;
            while bytes > wanted {
                let count = usize::try_from((bytes - wanted) / LARGE_ROW).unwrap_or(usize::MAX).clamp(1, MAX_DELETED);
                writer.delete_oldest_spans(count).await?;
                bytes = writer.span_bytes().await?;
            }
        }
        Ok(bytes)
    }

    /// Drops the connection, which may be in any state, and logs the first of several failures.
    fn record_failure(&mut self, error: &StoreError) {
        self.writer = None;
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(%error, "spans cannot be written to the database; retrying");
        }
    }
}

fn size(rows: &[SpanRow]) -> usize {
    rows.iter().map(SpanRow::size).sum()
}
