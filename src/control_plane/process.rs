//! `recif control-plane`: the process. Watches, serves its probes and the API, and ends when it is told to.

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use prometheus_client::registry::Registry;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

use super::{args::ControlPlaneArgs, fleet::Fleet, watches::Scope};
use crate::{
    cluster::{
        Authority, Board,
        client::{ConnectError, connect},
        crash::CrashPoint,
        metrics::Metrics as ApiMetrics,
    },
    telemetry::http::{self, Probes},
};

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
enum ControlPlaneError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    #[error("wait for signals: {0}")]
    Signals(std::io::Error),
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    #[error("a task of the process ended: {0}")]
    Ended(String),
}

/// Runs until SIGTERM or SIGINT: exit code 0; 1 when it cannot go on.
pub async fn run(args: ControlPlaneArgs) -> ExitCode {
    match serve(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            tracing::error!(%error, "the control plane ends");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: ControlPlaneArgs) -> Result<(), ControlPlaneError> {
    let ControlPlaneArgs { bind, namespaces } = args;
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let mut registry = Registry::default();
    let api_metrics = ApiMetrics::default();
    api_metrics.register(&mut registry);
    // It writes nothing: there is no lease.
    let transport = connect(Authority::always(), CrashPoint::default(), api_metrics).await?;
    let listener = http::bind(bind).await.map_err(|error| ControlPlaneError::Listen(bind, error))?;

    let board = Arc::new(Board::default());
    let fleet = Arc::new(Fleet::new(&epoch()?));
    // An empty variable is one empty name to the parser of lists.
    let namespaces = namespaces.into_iter().filter(|name| !name.is_empty()).collect();
    let scope = Scope { namespaces, transport, board: board.clone() };
    let mut tasks = JoinSet::new();
    scope.watch_fleet(&fleet, &mut tasks);
    let probes = Probes { registry, unready: Box::new(move || board.unready()), refresh: Box::new(|| {}) };
    tasks.spawn(async move {
        if let Err(error) = http::serve(listener, probes).await {
            tracing::error!(%error, "the port is no longer served");
        }
    });
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %bind, "control plane started");
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        ended = tasks.join_next() => Err(ControlPlaneError::Ended(format!("{ended:?}"))),
    }
}

fn on(kind: SignalKind) -> Result<tokio::signal::unix::Signal, ControlPlaneError> {
    signal(kind).map_err(ControlPlaneError::Signals)
}

/// Which run this is: what clients remember of another one means nothing here.
fn epoch() -> Result<String, getrandom::Error> {
    let mut random = [0; 4];
    getrandom::fill(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
