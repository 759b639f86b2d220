//! Process lifecycle: bind, serve, drain (lame duck).
//!
//! SIGTERM does not close the port at once: until the removal from the EndpointSlices has propagated, other Pods still
//! send requests here, and a 503 that allows a retry is better than a refused connection. The port closes when the
//! requests in flight are finished or the grace period is over.

use std::future::{Future, IntoFuture};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use daemon::runtime::{Runtime, RuntimeError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Lookup;
use super::agent::Agent;
use super::common_routes::RunnerService;
use super::config::RunnerConfig;
use super::flow;
use super::knowledge::KnowledgeBase;
use super::metrics::RunnerMetrics;
use super::mode::Mode;
use super::models::Http;
use super::process_attributes::process_attributes;
use super::server::AgentApp;
use super::tools::{CallableTool, Toolbox};
use super::variables::{is_local, sidecar_port};

/// Grace period of requests in flight. Kubernetes kills the process after 30 s.
const GRACE: Duration = Duration::from_secs(25);
/// Time for connections to send buffered data, once no request is in flight.
const FLUSH: Duration = Duration::from_secs(1);

/// Variable set by the operator when a sidecar is in front of the process.
const SIDECAR: &str = "RECIF_SIDECAR";

/// Failure of the process to serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port is in use, the address is not one of this machine, or binding is not permitted.
    #[error(
        "listen on {address}: {source}; set CORAIL_PORT, of flows PORT, to a free port, or RECIF_ADDRESS to an address of \
         this machine"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// Signals cannot be handled, or a supervised task ended.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The listener failed.
    #[error("accept connections: {0}")]
    Accept(io::Error),
}

/// Serves `mode` until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// The port cannot be bound, signals cannot be handled, or the listener failed; a drain that exceeds its grace period
/// is not an error.
pub async fn run(mode: Mode) -> Result<(), ServeError> {
    let runtime = Runtime::new()?;
    let shutdown = runtime.shutdown();
    let address = mode.address();
    let listener = bind(address).await.map_err(|source| ServeError::Bind { address, source })?;
    let service = match mode {
        Mode::Agent(config) => build_app(*config, Arc::new(environment)).service(),
        Mode::Flows(settings) => flow::service(&settings, Arc::new(environment)),
    };
    let service = match environment(SIDECAR).as_deref() {
        Some("true") => service.behind_sidecar(sidecar_port(&environment).unwrap_or_default()),
        _ => service,
    };
    let service = if is_local(&environment) { service.local() } else { service };
    tracing::info!(port = address.port(), "listening");
    runtime.run(serve(listener, service, shutdown.cancelled_owned(), GRACE)).await
}

/// Binds the address. Of `[::]`, which is all addresses of both families, those of IPv4 alone where the node has no IPv6.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(_) if address.is_ipv6() && address.ip().is_unspecified() => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Reads an environment variable of the process.
pub(super) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Builds the service of an agent with the environment of its models and tools. The reason why it cannot be served is logged
/// here, once.
pub(super) fn build_app(config: RunnerConfig, environment: Arc<Lookup>) -> AgentApp {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let metrics = RunnerMetrics::with_tracing(
        &config.telemetry,
        &process_attributes(&config.telemetry, "Agent", &config.agent, &config.namespace),
        &*environment,
    );
    let agent = tools(&config, &*environment, &metrics).and_then(|tools| {
        let tools = Toolbox::new(tools, environment.clone(), metrics.clone());
        let http = Http::counting(metrics.usage.clone()).noting(metrics.secrets.clone());
        Agent::new(&config, tools, &*environment, &http).map(Arc::new)
    });
    match &agent {
        Ok(ready) => {
            tracing::info!(agent = config.agent, model = config.model.id, tools = config.tools.len(), "ready");
            prepare(ready.clone());
        }
        Err(why) => tracing::error!(agent = config.agent, "not ready: {why}"),
    }
    AgentApp {
        name: config.agent,
        namespace: config.namespace,
        card: config.card.into(),
        agent,
        metrics,
        requests: TaskTracker::new(),
    }
}

/// Returns the tools of the agent, including those that search its knowledge bases.
fn tools(config: &RunnerConfig, credentials: &Lookup, metrics: &RunnerMetrics) -> Result<Vec<CallableTool>, String> {
    let mut tools = config.tools.clone();
    let http = Http::counting(metrics.usage.clone());
    for source in &config.knowledge {
        let tool = CallableTool::of_knowledge(KnowledgeBase::open(source, credentials, &http)?);
        if tools.iter().any(|known| known.name == tool.name) {
            return Err(format!("two tools are named `{}`: a knowledge base is searched by one", tool.name));
        }
        tools.push(tool);
    }
    Ok(tools)
}

/// Checks the agent's database in the background before the first request, which also creates missing tables.
fn prepare(agent: Arc<Agent>) {
    tokio::spawn(async move {
        if let Err(why) = agent.check().await {
            tracing::warn!("{why}");
        }
    });
}

/// Serves until `stop`, then drains for at most `grace`.
pub(super) async fn serve(
    listener: TcpListener,
    service: RunnerService,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> Result<(), ServeError> {
    let RunnerService { router, requests, tracing, sweep: _sweep } = service;
    let finished = CancellationToken::new();
    // Tokens are small writes: Nagle's algorithm would delay them.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let router = router.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, router).with_graceful_shutdown(finished.clone().cancelled_owned());
    let mut server = pin!(server.into_future());
    let drained = async {
        stop.await;
        requests.close();
        tracing::info!(in_flight = requests.len(), "draining");
        if tokio::time::timeout(grace, requests.wait()).await.is_err() {
            tracing::warn!(in_flight = requests.len(), "requests are cut off: they did not finish in time");
        }
    };
    tokio::select! {
        result = &mut server => return result.map_err(ServeError::Accept),
        () = drained => finished.cancel(),
    }
    if tokio::time::timeout(FLUSH, server).await.is_err() {
        tracing::info!("connections are cut off: they were not idle");
    }
    tracing.shutdown().await;
    Ok(())
}
