//! Capture of a test's log.
//!
//! One subscriber serves the whole process and writes to the log of the present thread. One subscriber per thread would
//! lose lines occasionally: `tracing` caches the interest of each callsite, and while there is only one subscriber, it
//! asks that of the thread which reaches the callsite first, which may be the thread of another test.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, Once};

/// Log lines of this thread while the guard is held.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

/// Guard that ends the capture when dropped.
pub(crate) struct LogGuard;

/// Writer to the log of this thread; without one, lines are discarded.
struct OfThisThread(Option<Log>);

thread_local! {
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

impl Log {
    /// Starts the capture.
    pub(crate) fn capture() -> (Self, LogGuard) {
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| {
            let writer = || OfThisThread(LOG.with_borrow(Clone::clone));
            let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
            tracing::subscriber::set_global_default(lines).expect("no other subscriber serves the tests");
        });
        let log = Self::default();
        LOG.set(Some(log.clone()));
        (log, LogGuard)
    }

    /// Returns the lines since the last call.
    pub(crate) fn drain(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        LOG.set(None);
    }
}

impl io::Write for OfThisThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(Log(lines)) = &self.0 {
            lines.lock().unwrap().extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
