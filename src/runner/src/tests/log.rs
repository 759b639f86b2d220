//! What a test logs.
//!
//! One subscriber serves the whole process and writes to the log of the thread that speaks. A subscriber for each
//! thread would lose lines now and then: `tracing` caches for each callsite whether it interests anybody, and while
//! there is but one subscriber it asks the thread that reaches the callsite first, which may be that of another test.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, Once};

/// What is logged on this thread for as long as the guard is held.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

/// Ends a log when it is dropped.
pub(crate) struct LogGuard;

/// The log of this thread, or nothing: its lines are dropped.
struct OfThisThread(Option<Log>);

thread_local! {
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

impl Log {
    /// Begins to keep what is logged.
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

    /// What was logged since the last time.
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
