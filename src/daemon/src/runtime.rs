//! Life cycle of a process: shutdown by signal, supervised tasks, and the exit code.

use std::{
    fmt::{self, Display},
    io,
    net::SocketAddr,
    process::ExitCode,
};

use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Probes};

/// Tasks of a process that runs until SIGTERM or SIGINT.
///
/// Invariant: no task in it ends before the process does; when one does, the process ends with an error.
pub struct Runtime {
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

/// Reason for which a process cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The handlers of signals cannot be installed.
    #[error("wait for signals: {0}")]
    Signals(io::Error),
    /// An address is in use, or this process may not bind it.
    #[error("listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// A supervised task has ended.
    #[error("a task of the process ended: {0}")]
    TaskEnded(String),
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

impl Runtime {
    /// Handles SIGTERM and SIGINT from now on.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn new() -> Result<Self, RuntimeError> {
        let mut terminate = signal(SignalKind::terminate()).map_err(RuntimeError::Signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(RuntimeError::Signals)?;
        let shutdown = CancellationToken::new();
        let received = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            received.cancel();
        });
        Ok(Self::with_shutdown(shutdown))
    }

    /// Ends when this token is cancelled, and handles no signals: for a part of a process that handles them itself.
    pub fn with_shutdown(shutdown: CancellationToken) -> Self {
        Self { shutdown, tasks: JoinSet::new() }
    }

    /// Returns the token that ends the process; the first signal cancels it.
    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Returns the tasks that run as long as the process.
    pub fn tasks(&mut self) -> &mut JoinSet<()> {
        &mut self.tasks
    }

    /// Binds an address.
    ///
    /// # Errors
    /// The address is in use, or this process may not bind it.
    pub async fn listen(address: SocketAddr) -> Result<TcpListener, RuntimeError> {
        TcpListener::bind(address).await.map_err(|error| RuntimeError::Listen(address, error))
    }

    /// Serves the probes and metrics of the process.
    pub fn serve_probes(&mut self, listener: TcpListener, probes: Probes) {
        self.tasks.spawn(async move {
            if let Err(error) = admin::serve(listener, probes).await {
                tracing::error!(%error, "the admin port is no longer served");
            }
        });
    }

    /// Runs `main` to its end. The other tasks end with it.
    ///
    /// # Errors
    /// The error of `main`, or a supervised task ended first.
    pub async fn run<E: From<RuntimeError>>(mut self, main: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        tokio::select! {
            biased;
            end = main => end,
            Some(ended) = self.tasks.join_next() => Err(RuntimeError::TaskEnded(format!("{ended:?}")).into()),
        }
    }
}

/// Reports how a process ended, on stderr and in its log: exit code 0; 2 for a flag or variable that is refused, else 1.
pub fn exit_code<E: Display>(process: &str, end: Result<(), E>, is_usage: impl FnOnce(&E) -> bool) -> ExitCode {
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            tracing::error!(%error, "{process} ends");
            ExitCode::from(if is_usage(&error) { 2 } else { 1 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_ends_with_its_main_task() {
        let mut runtime = Runtime::new().unwrap();
        runtime.tasks().spawn(std::future::pending());
        runtime.run(async { Ok::<_, RuntimeError>(()) }).await.unwrap();
    }

    #[tokio::test]
    async fn a_supervised_task_that_ends_ends_the_process() {
        let mut runtime = Runtime::new().unwrap();
        runtime.tasks().spawn(async {});
        let end = runtime.run(std::future::pending::<Result<(), RuntimeError>>()).await;
        assert_eq!(end.unwrap_err().to_string(), "a task of the process ended: Ok(())");
    }

    #[tokio::test]
    async fn a_part_of_a_process_ends_by_the_token_that_it_was_given() {
        let token = CancellationToken::new();
        let mut runtime = Runtime::with_shutdown(token.clone());
        runtime.tasks().spawn(std::future::pending());
        let shutdown = runtime.shutdown();
        token.cancel();
        let main = async {
            shutdown.cancelled().await;
            Ok::<_, RuntimeError>(())
        };
        runtime.run(main).await.unwrap();
    }

    #[tokio::test]
    async fn a_signal_cancels_the_token() {
        let runtime = Runtime::new().unwrap();
        let shutdown = runtime.shutdown();
        assert!(!shutdown.is_cancelled());
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
        shutdown.cancelled().await;
    }
}
