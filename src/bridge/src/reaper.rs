//! Takes note of every process that ended.
//!
//! In a container the bridge is process 1, so it inherits the orphans of its children, which nobody else would ever take
//! note of. Hence it waits for any process, and tells those it was told about.

use std::{
    collections::HashMap,
    fmt, io,
    process::Child,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// With this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "with status {status}"),
            Self::Signal(signal) => write!(f, "by signal {signal}"),
        }
    }
}

/// Those who want to know.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    waiting: Mutex<HashMap<i32, oneshot::Sender<Exit>>>,
}

impl Reaper {
    /// Looks for processes that ended, whenever one did.
    ///
    /// # Errors
    /// The system does not tell.
    pub(super) fn start() -> io::Result<Arc<Self>> {
        // Elsewhere than as process 1, too.
        set_child_subreaper(Some(getpid()))?;
        let reaper = Arc::new(Self::default());
        let mut ended = signal(SignalKind::child())?;
        let own = reaper.clone();
        tokio::spawn(async move {
            while ended.recv().await.is_some() {
                own.reap();
            }
        });
        Ok(reaper)
    }

    /// Starts a process; what is returned with it tells how it ends.
    ///
    /// # Errors
    /// It could not be started.
    pub(super) fn spawn(
        &self,
        start: impl FnOnce() -> io::Result<Child>,
    ) -> io::Result<(Child, oneshot::Receiver<Exit>)> {
        // Held meanwhile, so that a process that ends at once is known when it is found.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let child = start()?;
        let (tell, told) = oneshot::channel();
        waiting.insert(i32::try_from(child.id()).map_err(io::Error::other)?, tell);
        Ok((child, told))
    }

    fn reap(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let (Some(tell), Some(exit)) = (waiting.remove(&Pid::as_raw(Some(pid))), exit(status)) {
                // Its owner may be gone.
                let _ = tell.send(exit);
            }
        }
    }
}

fn exit(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Status).or_else(|| status.terminating_signal().map(Exit::Signal))
}
