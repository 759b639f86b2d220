//! `recif control-plane`: the process. Watches, serves probes and API, and ends when it is told to.

use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use cluster::{
    Authority, Board,
    access::{Access, AuthMode, Network, NoNetwork, Open},
    client::{ConnectError, connect},
    crash::CrashPoint,
    metrics::Metrics as ApiMetrics,
    reviews::Reviewer,
    transport::DEADLINE,
};
use daemon::{
    admin::{self, Probes},
    tls::{HTTP1, Tls, TlsError},
};
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use store::{Store, StoreError};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    api,
    app::Parts,
    args::ControlPlaneArgs,
    around::Around,
    auth::{Auth, Guesses},
    fleet::Fleet,
    live::subscribers::Clients,
    load::Loads,
    mirror::{self, Mirror},
    relay::{BadGateway, Relay},
    serve,
    watches::Scope,
};

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
enum ControlPlaneError {
    #[error(transparent)]
    Open(#[from] Open),
    #[error(transparent)]
    Gateway(#[from] BadGateway),
    #[error(transparent)]
    TrustedProxies(#[from] NoNetwork),
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
    #[error("--database-url: {0}")]
    Database(#[from] StoreError),
    #[error("a task of the process ended: {0}")]
    Ended(String),
}

/// Runs until SIGTERM or SIGINT: exit code 0; 1 when it cannot go on, 2 for a wrong flag.
pub async fn run(args: ControlPlaneArgs) -> ExitCode {
    match work(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            tracing::error!(%error, "the control plane ends");
            let flag = matches!(
                error,
                ControlPlaneError::Open(_)
                    | ControlPlaneError::Gateway(_)
                    | ControlPlaneError::TrustedProxies(_)
                    | ControlPlaneError::Database(_)
                    | ControlPlaneError::Tls(_)
            );
            ExitCode::from(if flag { 2 } else { 1 })
        }
    }
}

async fn work(args: ControlPlaneArgs) -> Result<(), ControlPlaneError> {
    let ControlPlaneArgs { bind, admin_bind, auth, gateway_url, gateway_ca, tls, namespaces, trusted_proxies, mirror } =
        args;
    let trusted = Network::all(&trusted_proxies)?;
    let mode = auth.mode(bind)?;
    let tls = match tls.read() {
        None => None,
        Some((listen, cert, key)) => {
            auth.mode(listen)?;
            Some((listen, Tls::load(cert, key, &[HTTP1])?))
        }
    };
    let relay = Relay::new(&gateway_url, gateway_ca.as_deref())?;
    let (database, history) = mirror.read();
    let store = Arc::new(Store::open(&database)?);
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    let mut registry = Registry::default();
    let api_metrics = ApiMetrics::default();
    api_metrics.register(&mut registry);
    let (objects, followers) = (Gauge::<i64>::default(), Gauge::<i64>::default());
    registry.register("recif_control_plane_objects", "Objects in the read model", objects.clone());
    registry.register("recif_control_plane_followers", "Clients that follow the changes", followers.clone());
    // It writes nothing: there is no lease.
    let transport = connect(Authority::always(), CrashPoint::default(), api_metrics, DEADLINE).await?;
    let auth = match mode {
        AuthMode::None => Auth::None { anywhere: auth.insecure() },
        AuthMode::Kubernetes => {
            let reviews = Arc::new(Reviewer::new(transport.clone()));
            Auth::Kubernetes(Access::new(reviews, auth.audiences(), |_| ()), Guesses::behind(trusted))
        }
    };
    let listener = admin::bind(bind).await.map_err(|error| ControlPlaneError::Listen(bind, error))?;
    let secured = match tls {
        None => None,
        Some((listen, tls)) => {
            Some((admin::bind(listen).await.map_err(|error| ControlPlaneError::Listen(listen, error))?, tls))
        }
    };
    let admin = admin::bind(admin_bind).await.map_err(|error| ControlPlaneError::Listen(admin_bind, error))?;

    let (board, stop) = (Arc::new(Board::default()), CancellationToken::new());
    let app = Arc::new(Parts {
        fleet: Arc::new(Fleet::new(&epoch()?)),
        around: Around::new(),
        auth,
        loads: Loads::new(),
        store: store.clone(),
        mirror: Arc::default(),
        clients: Clients::new(stop.clone()),
        relay,
        synced: Default::default(),
    });
    // An empty variable is one empty name to the parser of lists.
    let namespaces: Vec<String> = namespaces.into_iter().filter(|name| !name.is_empty()).collect();
    let mirror = Mirror {
        fleet: app.fleet.clone(),
        store,
        board: board.clone(),
        namespaces: namespaces.clone(),
        history,
        state: app.mirror.clone(),
        metrics: mirror::Metrics::new(&mut registry),
    };
    let scope = Scope { namespaces, transport, board: board.clone() };
    let mut tasks = JoinSet::new();
    if let Some((_, tls)) = &secured {
        tasks.spawn(tls.clone().follow());
    }
    scope.watch_fleet(&app.fleet, &mut tasks);
    scope.watch_around(&app.around, &app.fleet, &mut tasks);
    let (notes, look) = (mirror.notes(), mirror.refresh());
    tasks.spawn(mirror.run());
    let (starting, started) = (app.clone(), board.clone());
    tasks.spawn(async move {
        started.settled().await;
        starting.fleet.go_live();
        starting.synced.store(true, Relaxed);
        tracing::info!("the watches have started");
        std::future::pending().await
    });
    let counted = app.clone();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let refresh = move || {
        objects.set(count(counted.fleet.len()));
        followers.set(count(counted.clients.count()));
        look();
    };
    let refused = board.clone();
    let notes = Box::new(move || [refused.notes(), notes()].concat());
    let probes = Probes { registry, unready: Box::new(move || board.unready()), notes, refresh: Box::new(refresh) };
    tasks.spawn(async move {
        if let Err(error) = admin::serve(admin, probes).await {
            tracing::error!(%error, "the admin port is no longer served");
        }
    });
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %bind, %admin_bind, "control plane started");
    let router = api::router(app);
    let by_tls = async {
        if let Some((listener, tls)) = secured {
            serve::run(listener, Some(tls), router.clone(), stop.clone()).await;
        }
    };
    let plain = serve::run(listener, None, router.clone(), stop.clone());
    let served = async { tokio::join!(plain, by_tls) };
    tokio::pin!(served);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = &mut served => {}
        ended = tasks.join_next() => return Err(ControlPlaneError::Ended(format!("{ended:?}"))),
    }
    tracing::info!("shutting down");
    stop.cancel();
    served.await;
    Ok(())
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
