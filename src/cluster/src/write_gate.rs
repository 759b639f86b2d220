//! Fencing by the leader election: this replica may write only while it holds the Lease, with a margin.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// Time until which writes are allowed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    Always,
    Never,
    At(Instant),
}

/// Gate before each write, open while this replica may write.
#[derive(Debug, Clone)]
pub struct WriteGate(Arc<Mutex<Until>>);

impl WriteGate {
    /// Creates an open gate, for a process that runs alone.
    pub fn always() -> Self {
        Self(Arc::new(Mutex::new(Until::Always)))
    }

    /// Creates a closed gate, for a replica that has to acquire the Lease first.
    pub fn by_lease() -> Self {
        Self(Arc::new(Mutex::new(Until::Never)))
    }

    /// Reports whether a write may be sent now.
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
