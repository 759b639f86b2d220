//! Tells whether this replica may write: as long as it holds the lease, with a margin.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    Always,
    Never,
    At(Instant),
}

/// Whether this replica may write, asked before each write.
#[derive(Debug, Clone)]
pub struct WriteGate(Arc<Mutex<Until>>);

impl WriteGate {
    /// For a process that runs alone.
    pub fn always() -> Self {
        Self(Arc::new(Mutex::new(Until::Always)))
    }

    /// For a replica that has to hold the lease first.
    pub fn by_lease() -> Self {
        Self(Arc::new(Mutex::new(Until::Never)))
    }

    /// Whether a write may be sent now.
    pub fn allows_writes(&self) -> bool {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Until::Always => true,
            Until::Never => false,
            Until::At(end) => Instant::now() < end,
        }
    }

    pub(super) fn set(&self, until: Until) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}
