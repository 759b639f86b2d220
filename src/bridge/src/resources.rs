//! Resources that every child of the bridge needs, whichever era of the protocol it serves.

use std::{io, sync::Arc, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{args::BridgeOptions, memory::MemoryBudget, reaper::Reaper};

/// Resources that all children share.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) options: BridgeOptions,
    pub(super) reaper: Arc<Reaper>,
    /// Memory budget of messages.
    pub(super) memory: MemoryBudget,
    /// Tasks that serve children; each ends with its child.
    pub(super) tasks: TaskTracker,
    /// Cancelled when no new request may begin.
    pub(super) closing: CancellationToken,
    /// Cancelled when the children have to end.
    pub(super) children_end: CancellationToken,
}

impl Resources {
    /// Starts the reaper of this process.
    ///
    /// # Errors
    /// The system refuses the subreaper or the signal handler.
    pub(super) fn new(options: BridgeOptions) -> io::Result<Self> {
        Ok(Self {
            reaper: Reaper::start()?,
            memory: MemoryBudget::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            children_end: CancellationToken::new(),
            options,
        })
    }

    /// Returns how long a child may take for each step of its end.
    pub(super) fn stop_timeout(&self) -> Duration {
        if self.closing.is_cancelled() { Duration::from_secs(1) } else { Duration::from_secs(2) }
    }
}
