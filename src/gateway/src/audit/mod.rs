//! Audit: one line of JSON on stdout for each request to a workload.
//!
//! The values of a line are in the [`RequestRecord`], which is queued without waiting when the request ends. While stdout blocks the
//! thread that writes, its [queue](Spool) fills; further records are dropped and counted.

mod line;

use std::{
    fmt,
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;

use super::{request_record::RequestRecord, spool::Spool};

/// Most records in the queue.
const CAPACITY: usize = 4096;
/// Time for which the thread gathers a batch of records. A request wakes the thread only if it is idle.
const GATHER: Duration = Duration::from_millis(20);
/// Bytes of lines that are written at once.
const BATCH: usize = 64 * 1024;

/// Requests that the audit has lines for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum AuditMode {
    /// Every request for a workload.
    All,
    /// Requests that the gateway refused.
    Refused,
    /// None.
    Off,
}

/// Audit of a process.
pub(super) struct AuditLog {
    mode: AuditMode,
    /// Queue of the thread that writes; `None` if the audit is off.
    spool: Option<Spool<Arc<RequestRecord>>>,
    dropped: Counter,
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl AuditLog {
    /// Starts the thread that writes to `out`. `dropped` counts the records that are not written.
    ///
    /// # Errors
    /// The system provides no thread.
    pub(super) fn start(mode: AuditMode, out: impl Write + Send + 'static, dropped: Counter) -> io::Result<Self> {
        let mut spool = None;
        if mode != AuditMode::Off {
            let mut writer = AuditWriter { out, lines: Vec::new(), count: 0, dropped: dropped.clone() };
            let write = move |records: &mut dyn Iterator<Item = Arc<RequestRecord>>| writer.write_records(records);
            spool = Some(Spool::start("audit", CAPACITY, GATHER, write)?);
        }
        Ok(Self { mode, spool, dropped })
    }

    /// Reports whether the audit is on.
    pub(super) fn is_on(&self) -> bool {
        self.spool.is_some()
    }

    /// Waits until the lines of all requests that have ended are written, or until a timeout.
    pub(super) async fn flush(&self) {
        if let Some(spool) = &self.spool {
            spool.flush().await;
        }
    }

    /// Queues the record of a request that has ended, unless the mode leaves it out.
    pub(super) fn hand_over(&self, record: Arc<RequestRecord>) {
        let wanted = self.mode == AuditMode::All || record.is_refused();
        if let Some(spool) = self.spool.as_ref().filter(|_| wanted)
            && !spool.offer(record)
        {
            self.dropped.inc();
        }
    }
}

/// Writer of the lines, on a thread of its own.
struct AuditWriter<W> {
    out: W,
    /// Lines that are to be written.
    lines: Vec<u8>,
    /// Number of these lines.
    count: u64,
    dropped: Counter,
}

impl<W: Write> AuditWriter<W> {
    /// Writes the lines of these records.
    fn write_records(&mut self, records: &mut dyn Iterator<Item = Arc<RequestRecord>>) {
        for record in records {
            self.add(&record);
        }
        self.write();
    }

    fn add(&mut self, record: &RequestRecord) {
        match line::write(record, &mut self.lines) {
            true => self.count += 1,
            false => {
                self.dropped.inc();
            }
        }
        if self.lines.len() >= BATCH {
            self.write();
        }
    }

    fn write(&mut self) {
        if self.out.write_all(&self.lines).and_then(|()| self.out.flush()).is_err() {
            self.dropped.inc_by(self.count);
        }
        self.lines.clear();
        self.count = 0;
    }
}
