//! Audit: one line of JSON on stdout for each request to a workload.
//!
//! A request keeps what its line says in an [`AuditEntry`], and hands it over at its end without waiting: to a bounded channel that
//! one thread empties. While stdout takes nothing the channel fills; further entries are dropped, and counted.

mod entry;
mod line;

use std::{
    fmt,
    io::{self, Write},
    net::IpAddr,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use entry::AuditEntry;
pub(super) use entry::AuditGuard;
use http1::RequestHead;
use prometheus_client::metrics::counter::Counter;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::workload::WorkloadState;

/// Most entries that wait to be written.
const CAPACITY: usize = 4096;
/// Time for which the thread gathers entries before it writes them at once. A request wakes it only if it has nothing to do.
const GATHER: Duration = Duration::from_millis(20);
/// Bytes of lines that are written at once.
const BATCH: usize = 64 * 1024;
/// Longest wait for the last lines at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

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

/// Message to the thread that writes.
enum AuditMessage {
    /// Request that has ended.
    Entry(Box<AuditEntry>),
    /// Answered once everything before it was written.
    Flush(oneshot::Sender<()>),
}

/// Audit of a process.
pub(super) struct AuditLog {
    mode: AuditMode,
    /// Way to the thread that writes; `None` if there are no lines.
    sender: Option<SyncSender<AuditMessage>>,
    dropped: Counter,
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl AuditLog {
    /// Starts the thread that writes to `out`. Entries that are lost count in `dropped`.
    ///
    /// # Errors
    /// The system provides no thread.
    pub(super) fn start(mode: AuditMode, out: impl Write + Send + 'static, dropped: Counter) -> io::Result<Self> {
        let mut sender = None;
        if mode != AuditMode::Off {
            let (entries, receiver) = sync_channel(CAPACITY);
            let writer = AuditWriter { out, lines: Vec::new(), count: 0, dropped: dropped.clone() };
            thread::Builder::new().name("audit".into()).spawn(move || writer.run(&receiver))?;
            sender = Some(entries);
        }
        Ok(Self { mode, sender, dropped })
    }

    /// Begins the entry of a request to a workload that arrived at `arrived`. Its line is written when the guard is dropped.
    pub(super) fn begin(
        &self,
        workload: Option<&Arc<WorkloadState>>,
        head: &RequestHead<'_>,
        arrived: Instant,
        client: impl FnOnce() -> IpAddr,
    ) -> AuditGuard<'_> {
        let entry = workload.filter(|_| self.sender.is_some()).map(|workload| {
            let entry = AuditEntry::new(workload.clone(), head.method, arrived, client());
            Box::new(entry)
        });
        AuditGuard::new(self, entry)
    }

    /// Waits until the lines of all requests that have ended are written, or until that takes too long.
    pub(super) async fn flush(&self) {
        let Some(sender) = &self.sender else { return };
        let (done, written) = oneshot::channel();
        if sender.try_send(AuditMessage::Flush(done)).is_ok() {
            let _ = timeout(FLUSH_TIMEOUT, written).await;
        }
    }

    /// Hands over the entry of a request that has ended, unless it is to have no line.
    fn hand_over(&self, entry: Box<AuditEntry>) {
        let wanted = self.mode == AuditMode::All || entry.is_refused();
        if let Some(sender) = self.sender.as_ref().filter(|_| wanted)
            && sender.try_send(AuditMessage::Entry(entry)).is_err()
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
    /// Writes until the audit is dropped.
    fn run(mut self, receiver: &Receiver<AuditMessage>) {
        while let Ok(first) = receiver.recv() {
            thread::park_timeout(GATHER);
            let mut flushes = Vec::new();
            for message in std::iter::once(first).chain(receiver.try_iter().take(CAPACITY)) {
                match message {
                    AuditMessage::Entry(entry) => self.add(&entry),
                    AuditMessage::Flush(done) => flushes.push(done),
                }
            }
            self.write();
            for done in flushes {
                // The process may wait no longer.
                let _ = done.send(());
            }
        }
    }

    fn add(&mut self, entry: &AuditEntry) {
        match line::write(entry, &mut self.lines) {
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
