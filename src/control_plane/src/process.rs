//! Process of `recif control-plane`: starts the watches, serves probes and API, and shuts down on a signal.

use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use cluster::{
    WatchHealth, Watches, WriteGate,
    access::{Access, AuthMode, Network, NetworkParseError, OpenBindError, Reviews},
    client::{Client, ConnectError, connect},
    crash::CrashPoint,
    reviews::Reviewer,
    transport::DEADLINE,
    watches::named,
};
use daemon::{
    admin::Probes,
    ids::random_hex,
    runtime::{Runtime, RuntimeError, exit_code},
    tls::{HTTP1, Tls, TlsError},
};
use prometheus_client::registry::Registry;
use store::{Store, StoreError};
use tokio::{net::TcpListener, sync::oneshot, time::timeout};

use super::{
    api,
    app::AppState,
    args::ControlPlaneArgs,
    auth::{Auth, TokenPenalties},
    fleet::FleetCache,
    live::subscribers::Subscribers,
    load::LoadCache,
    metrics::ControlPlaneMetrics,
    mirror::{Mirror, Retention},
    related::RelatedObjects,
    relay::{GatewayFlagError, Relay},
    serve as connections,
    spans::{self, SpanReceiver, SpanSenders},
    usage::UsageCollector,
    watches::{watch_fleet, watch_related},
};

/// Longest wait at the end for the database to take the last spans.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// Errors that end the process.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// Callers are not authenticated on an address that other machines reach.
    #[error(transparent)]
    Open(#[from] OpenBindError),
    /// The flags on the gateway cannot be used.
    #[error(transparent)]
    Gateway(#[from] GatewayFlagError),
    /// A network cannot be parsed.
    #[error(transparent)]
    TrustedProxies(#[from] NetworkParseError),
    /// No client of the API server can be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system has no random numbers.
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    /// The database cannot be opened.
    #[error("--database-url: {0}")]
    Database(#[from] StoreError),
    /// An address cannot be bound, or a task ended.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Listeners that are bound already. In place of one that is missing, the address of the flag is bound.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For the API and the web UI.
    pub api: Option<TcpListener>,
    /// For probes and metrics.
    pub admin: Option<TcpListener>,
    /// For spans.
    pub otlp: Option<TcpListener>,
}

/// Runs until SIGTERM or SIGINT. Exit code 0; 1 if it cannot go on, 2 for a wrong flag.
pub async fn run(args: ControlPlaneArgs) -> ExitCode {
    let serves = async { serve(args, None, Listeners::default(), Runtime::new()?).await };
    exit_code("the control plane", serves.await, |error| {
        matches!(
            error,
            ControlPlaneError::Open(_)
                | ControlPlaneError::Gateway(_)
                | ControlPlaneError::TrustedProxies(_)
                | ControlPlaneError::Database(_)
                | ControlPlaneError::Tls(_)
        )
    })
}

/// Serves until the token of the runtime is cancelled, with a given client of the API server or that of the configured cluster.
///
/// # Errors
/// A flag cannot be used, no client can be made, an address cannot be bound, or the control plane cannot go on.
pub async fn serve(
    args: ControlPlaneArgs,
    given: Option<Client>,
    bound: Listeners,
    mut runtime: Runtime,
) -> Result<(), ControlPlaneError> {
    let ControlPlaneArgs {
        bind,
        admin_bind,
        auth,
        gateway_url,
        gateway_ca,
        tls,
        namespaces,
        trusted_proxies,
        mirror,
        usage_callers,
        spans: spans_args,
    } = args;
    let trusted = Network::parse_all(&trusted_proxies)?;
    let mode = auth.mode(bind)?;
    spans_args.otlp_listen.map_or(Ok(mode), |address| auth.mode(address))?;
    let tls = match tls.read() {
        None => None,
        Some((listen, cert, key)) => {
            auth.mode(listen)?;
            Some((listen, Tls::load(cert, key, &[HTTP1])?))
        }
    };
    let relay = Relay::new(&gateway_url, gateway_ca.as_deref())?;
    let (database, Retention { history, usage }) = mirror.read();
    let store = Arc::new(Store::open(&database)?);
    let mut registry = Registry::default();
    let metrics = ControlPlaneMetrics::new(&mut registry);
    let (objects, followers, span_metrics) = (metrics.objects, metrics.followers, metrics.spans);
    // The control plane changes no object, so it needs no lease.
    let transport = connect(given, WriteGate::always(), CrashPoint::default(), metrics.api, DEADLINE).await?;
    let reviews: Arc<dyn Reviews> = Arc::new(Reviewer::new(transport.clone()));
    let (auth, senders) = match mode {
        AuthMode::None => (Auth::None { any_host: auth.insecure() }, SpanSenders::new(None, Vec::new())),
        AuthMode::Kubernetes => {
            let penalties = TokenPenalties::with_trusted_proxies(trusted);
            let access = Access::new(reviews.clone(), auth.audiences(), |_| ());
            (Auth::Kubernetes(access, penalties), SpanSenders::new(Some(reviews), spans_args.otlp_accounts.clone()))
        }
    };
    let listener = listen(bound.api, bind).await?;
    let secured = match tls {
        None => None,
        Some((listen, tls)) => Some((Runtime::listen(listen).await?, tls)),
    };
    let admin = listen(bound.admin, admin_bind).await?;
    let otlp = match (bound.otlp, spans_args.otlp_listen) {
        (None, Some(address)) => Some(Runtime::listen(address).await?),
        (bound, _) => bound,
    };

    let (board, stop) = (Arc::new(WatchHealth::default()), runtime.shutdown());
    let app = Arc::new(AppState {
        fleet: Arc::new(FleetCache::new(&random_hex::<4>()?)),
        related: RelatedObjects::new(),
        auth,
        loads: LoadCache::new(),
        store: store.clone(),
        mirror: Arc::default(),
        keeps_spans: otlp.is_some(),
        subscribers: Subscribers::new(stop.clone()),
        relay,
        synced: Default::default(),
    });
    let namespaces = named(namespaces);
    let mirror = Mirror {
        fleet: app.fleet.clone(),
        store,
        watch_health: board.clone(),
        namespaces: namespaces.clone(),
        history,
        state: app.mirror.clone(),
        metrics: metrics.mirror,
    };
    let watches = Watches { namespaces, transport, watch_health: board.clone() };
    let tasks = runtime.tasks();
    if let Some((_, tls)) = &secured {
        tasks.spawn(tls.clone().watch_files());
    }
    watch_fleet(&watches, &app.fleet, tasks);
    watch_related(&watches, &app.related, &app.fleet, tasks);
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
    tasks.spawn(UsageCollector::new(app.clone(), usage, usage_callers).run());
    let receives = otlp.map(|listener| {
        let (queue, keeper) = spans::keeper(app.store.clone(), spans_args.retention(), span_metrics.clone());
        let (finished, stored) = oneshot::channel();
        tasks.spawn(async move {
            keeper.run().await;
            // The process may have given up waiting.
            let _ = finished.send(());
            std::future::pending().await
        });
        (listener, SpanReceiver::new(app.clone(), senders, queue, span_metrics).router(), stored)
    });
    let counted = app.clone();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let refresh = move || {
        objects.set(count(counted.fleet.len()));
        followers.set(count(counted.subscribers.count()));
        look();
    };
    let refused = board.clone();
    let notes = Box::new(move || [refused.notes(), notes()].concat());
    let probes = Probes { registry, unready: Box::new(move || board.unready()), notes, refresh: Box::new(refresh) };
    runtime.serve_probes(admin, probes);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %bind, %admin_bind, "control plane started");
    let router = api::router(app);
    let by_tls = async {
        if let Some((listener, tls)) = secured {
            connections::run(listener, Some(tls), router.clone(), stop.clone()).await;
        }
    };
    let by_otlp = async {
        if let Some((listener, router, stored)) = receives {
            connections::run(listener, None, router, stop.clone()).await;
            // A sender has the answer that its spans are kept.
            if timeout(LAST_SPANS, stored).await.is_err() {
                tracing::warn!("the last spans could not be stored in time");
            }
        }
    };
    let plain = connections::run(listener, None, router.clone(), stop.clone());
    let served = async { tokio::join!(plain, by_tls, by_otlp) };
    let main = async {
        tokio::join!(served, async {
            stop.cancelled().await;
            tracing::info!("shutting down");
        });
        Ok(())
    };
    runtime.run(main).await
}

/// Returns the listener that is bound already, or binds this address.
async fn listen(bound: Option<TcpListener>, address: SocketAddr) -> Result<TcpListener, RuntimeError> {
    match bound {
        Some(listener) => Ok(listener),
        None => Runtime::listen(address).await,
    }
}
