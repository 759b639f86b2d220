//! `recif gateway`: the process. Watches, serves its admin port, takes requests, and ends without dropping one.

use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use cluster::{
    Authority, Board, Head, ObjectMap, Source, Transport, Watch,
    access::AuthMode,
    cache::Keys,
    client::{ConnectError, connect},
    crash::CrashPoint,
    metrics::Metrics as ApiMetrics,
    reviews::Reviewer,
    stamp::Stamper,
    transport::DEADLINE,
};
use daemon::tls::{H2, HTTP1, Tls, TlsError};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::{interval, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    admin::Admin,
    args::{BadFlag, GatewayArgs, Settings},
    auth::{Auth, Gate},
    clients::Clients,
    clock::Clock,
    invocations,
    metrics::Metrics,
    object::{self, Kind},
    routes::Routes,
    serve::{accept_on_all, bind},
    slice,
    state::Shared,
};

/// How often connections that were idle for too long are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
enum GatewayError {
    #[error(transparent)]
    Flag(#[from] BadFlag),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("wait for signals: {0}")]
    Signals(std::io::Error),
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    #[error("serve connections: {0}")]
    Threads(std::io::Error),
    #[error("a task of the process ended: {0}")]
    Ended(String),
}

/// Runs until SIGTERM or SIGINT and the last request: exit code 0; 1 when it cannot go on, 2 for a wrong flag.
pub async fn run(args: GatewayArgs) -> ExitCode {
    match serve(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            tracing::error!(%error, "the gateway ends");
            ExitCode::from(if matches!(error, GatewayError::Flag(_) | GatewayError::Tls(_)) { 2 } else { 1 })
        }
    }
}

async fn serve(args: GatewayArgs) -> Result<(), GatewayError> {
    let settings = Settings::read(&args)?;
    let GatewayArgs { listen, admin_listen, auth, namespaces, lame_duck, shutdown_timeout, operator_namespace, .. } =
        args;
    let api_metrics = ApiMetrics::default();
    let transport = connect(Authority::always(), CrashPoint::default(), api_metrics.clone(), DEADLINE).await?;
    let auth = match settings.auth {
        AuthMode::None => Auth::None,
        AuthMode::Kubernetes => Auth::Kubernetes(Gate::new(Reviewer::new(transport.clone()), auth.audiences())),
    };
    let clock = Clock::new();
    let shared = Arc::new(Shared {
        settings,
        routes: Routes::new(clock),
        auth,
        keys: Keys::default(),
        clients: Clients::new(args.max_in_flight_per_client),
        connections: Clients::new(args.max_connections_per_address),
        metrics: Metrics::new(|registry| api_metrics.register(registry)),
        clock,
        instance: instance()?,
        board: Default::default(),
        leaving: Default::default(),
        closing: CancellationToken::new(),
        cold: Default::default(),
    });
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let take = |address| bind(address).map_err(|error| GatewayError::Listen(address, error));
    let mut listeners = vec![(take(listen)?, None)];
    let mut tasks = JoinSet::new();
    if let Some((listen, cert, key)) = args.tls.read() {
        let tls = Tls::load(cert, key, &[H2, HTTP1])?;
        tasks.spawn(tls.clone().follow());
        listeners.push((take(listen)?, Some(tls)));
    }
    let admin_listener =
        TcpListener::bind(admin_listen).await.map_err(|error| GatewayError::Listen(admin_listen, error))?;

    let board = shared.board.clone();
    // An empty variable is one empty name to the parser of lists.
    let namespaces: Vec<_> = namespaces.into_iter().filter(|name| !name.is_empty()).collect();
    watch(&shared, &namespaces, &transport, &board, &mut tasks);
    // Where no caller is known there is no name to vouch for, and the right to read the keys may be missing.
    let keys_board = if matches!(shared.auth, Auth::None) { Arc::default() } else { board.clone() };
    tasks.spawn(shared.keys.clone().follow(operator_namespace, transport.clone(), keys_board));
    let admin = Admin::new(shared.clone());
    tasks.spawn(async move {
        if let Err(error) = admin.serve(admin_listener).await {
            tracing::error!(%error, "the admin port is no longer served");
        }
    });
    let sweeping = shared.clone();
    tasks.spawn(async move {
        let mut ticks = interval(SWEEP);
        loop {
            ticks.tick().await;
            sweeping.routes.sweep();
        }
    });
    let (writing, stop) = (shared.clone(), CancellationToken::new());
    let stamper = Stamper::new(transport);
    let stamps = tokio::spawn(invocations::run(stamper, move || writing.routes.all(), stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %listen, %admin_listen, "gateway started");

    let ends = async {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("shutting down");
        shared.leaving.store(true, Relaxed);
        // Whoever sends connections here learns meanwhile that it is not ready.
        sleep(lame_duck).await;
        shared.closing.cancel();
        std::future::pending::<()>().await;
    };
    let outcome = tokio::select! {
        ended = accept_on_all(listeners, shared.clone(), shutdown_timeout) => ended.map_err(GatewayError::Threads),
        () = ends => Ok(()),
        ended = tasks.join_next() => {
            // The threads that serve would keep the process.
            shared.closing.cancel();
            Err(GatewayError::Ended(format!("{ended:?}")))
        }
    };
    stop.cancel();
    let _ = stamps.await;
    outcome
}

/// Begins every watch. The routes follow.
fn watch(
    shared: &Arc<Shared>,
    namespaces: &[String],
    transport: &Arc<Transport>,
    board: &Arc<Board>,
    tasks: &mut JoinSet<()>,
) {
    for kind in Kind::ALL {
        let map = Arc::new(ObjectMap::default());
        let routes = shared.clone();
        map.subscribe(move |change| routes.routes.object(kind, &change.key, change.new.clone()));
        let decode = Arc::new(move |head: &Head, json: &str| object::read(kind, head, json));
        let source = Source { resource: kind.resource(), labels: None, fields: None, decode };
        begin(source, &map, namespaces, transport, board, tasks);
    }
    let map = Arc::new(ObjectMap::default());
    let routes = shared.clone();
    map.subscribe(move |change| routes.routes.slice(&change.key, change.old.as_deref(), change.new.as_ref()));
    let decode = Arc::new(slice::read);
    let source = Source { resource: slice::RESOURCE, labels: Some(slice::LABELS), fields: None, decode };
    begin(source, &map, namespaces, transport, board, tasks);
}

fn begin<T: Send + Sync + 'static>(
    source: Source<T>,
    map: &Arc<ObjectMap<T>>,
    namespaces: &[String],
    transport: &Arc<Transport>,
    board: &Arc<Board>,
    tasks: &mut JoinSet<()>,
) {
    let everywhere = namespaces.is_empty().then_some(None);
    for namespace in everywhere.into_iter().chain(namespaces.iter().cloned().map(Some)) {
        tasks.spawn(Watch::new(source.clone(), namespace, transport.clone(), map.clone(), board.clone()).run());
    }
}

fn on(kind: SignalKind) -> Result<tokio::signal::unix::Signal, GatewayError> {
    signal(kind).map_err(GatewayError::Signals)
}

fn instance() -> Result<String, getrandom::Error> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
