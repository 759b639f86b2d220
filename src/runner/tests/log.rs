//! What a test logs.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// What is logged on this thread for as long as the guard is held.
#[derive(Clone, Default)]
pub(in crate::runner) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Begins to keep what is logged.
    pub(in crate::runner) fn keep() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(lines))
    }

    /// What was logged since the last time.
    pub(in crate::runner) fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
