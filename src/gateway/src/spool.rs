//! Bounded queue with a worker thread. Adding an entry never waits: while the worker is too slow, the queue fills and refuses entries.

use std::{
    fmt, io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

/// Longest wait for the last entries at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Queue with a worker thread.
pub(super) struct Spool<T>(SyncSender<SpoolMessage<T>>);

/// Message to the worker.
enum SpoolMessage<T> {
    /// Entry.
    Entry(T),
    /// Request for a reply once all earlier entries are processed.
    Flush(oneshot::Sender<()>),
}

impl<T> fmt::Debug for Spool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Spool<T> {
    /// Starts the worker with this name. `work` gets a batch: an entry, and at most `capacity` more that were added within `gather`.
    /// The thread ends when the queue is dropped.
    ///
    /// # Errors
    /// The system provides no thread.
    pub(super) fn start(
        name: &str,
        capacity: usize,
        gather: Duration,
        work: impl FnMut(&mut dyn Iterator<Item = T>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(capacity);
        thread::Builder::new().name(name.into()).spawn(move || run(&receiver, capacity, gather, work))?;
        Ok(Self(sender))
    }

    /// Adds an entry. Returns false if the queue is full.
    pub(super) fn offer(&self, entry: T) -> bool {
        self.0.try_send(SpoolMessage::Entry(entry)).is_ok()
    }

    /// Waits until all entries so far are processed, or until a timeout.
    pub(super) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.0.try_send(SpoolMessage::Flush(done)).is_ok() {
            let _ = timeout(FLUSH_TIMEOUT, flushed).await;
        }
    }
}

fn run<T>(
    receiver: &Receiver<SpoolMessage<T>>,
    capacity: usize,
    gather: Duration,
    mut work: impl FnMut(&mut dyn Iterator<Item = T>),
) {
    // An entry wakes the thread only if it is idle, and not while it gathers a batch.
    while let Ok(first) = receiver.recv() {
        thread::park_timeout(gather);
        let mut flushes = Vec::new();
        {
            let messages = std::iter::once(first).chain(receiver.try_iter().take(capacity));
            let mut entries = messages.filter_map(|message| match message {
                SpoolMessage::Entry(entry) => Some(entry),
                SpoolMessage::Flush(done) => {
                    flushes.push(done);
                    None
                }
            });
            work(&mut entries);
        }
        for done in flushes {
            // Fails if the wait has timed out.
            let _ = done.send(());
        }
    }
}
