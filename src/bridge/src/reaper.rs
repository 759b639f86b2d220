//! Reaps every child process that has ended.
//!
//! In a container the bridge is process 1, so it inherits the orphans of its children, which no other process would
//! reap. So it waits for any process, and reports the exit of those that it started itself.

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

/// Exit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    /// Ended with this status.
    Status(i32),
    /// Killed by this signal.
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

/// Reaper of processes, and the receivers of their exits by pid.
///
/// Invariant: `waiting` holds a sender for every started process that is not reaped yet.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    waiting: Mutex<HashMap<i32, oneshot::Sender<Exit>>>,
}

impl Reaper {
    /// Starts to reap processes, upon each SIGCHLD.
    ///
    /// # Errors
    /// The system refuses the subreaper or the signal handler.
    pub(super) fn start() -> io::Result<Arc<Self>> {
        // Makes orphans its own also where it is not process 1.
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

    /// Starts a process; the receiver gets its exit.
    ///
    /// # Errors
    /// The process could not be started.
    pub(super) fn spawn(
        &self,
        start: impl FnOnce() -> io::Result<Child>,
    ) -> io::Result<(Child, oneshot::Receiver<Exit>)> {
        // The lock is held while the process starts, so that one that ends at once is registered before it is reaped.
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let child = start()?;
        let (sender, receiver) = oneshot::channel();
        waiting.insert(i32::try_from(child.id()).map_err(io::Error::other)?, sender);
        Ok((child, receiver))
    }

    fn reap(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let (Some(sender), Some(exit)) = (waiting.remove(&Pid::as_raw(Some(pid))), exit(status)) {
                // The receiver may be gone.
                let _ = sender.send(exit);
            }
        }
    }
}

fn exit(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Status).or_else(|| status.terminating_signal().map(Exit::Signal))
}
