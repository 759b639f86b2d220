//! Bounded queue from the threads of requests to a thread of its own. Handing something over never waits: while that thread does not
//! keep up, the queue fills and takes nothing more.

use std::{
    fmt, io,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use tokio::{sync::oneshot, time::timeout};

/// Longest wait for the last entries at the end of the process.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Queue to a thread.
pub(super) struct Spool<T>(SyncSender<SpoolMessage<T>>);

/// Message to the thread.
enum SpoolMessage<T> {
    /// Entry.
    Entry(T),
    /// Answered once the work with everything before it is done.
    Flush(oneshot::Sender<()>),
}

impl<T> fmt::Debug for Spool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Spool<T> {
    /// Starts the thread with this name. `work` gets the entries that came within `gather` of the first one, at most `capacity` more.
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

    /// Hands over an entry. Returns false if there is no room for it.
    pub(super) fn offer(&self, entry: T) -> bool {
        self.0.try_send(SpoolMessage::Entry(entry)).is_ok()
    }

    /// Waits until the work with all entries so far is done, or until that takes too long.
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
    // A request wakes the thread only if it has nothing to do.
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
            // The process may wait no longer.
            let _ = done.send(());
        }
    }
}
