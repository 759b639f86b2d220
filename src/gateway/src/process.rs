//! Process of `recif gateway`: starts the watches, the admin port and the listeners, and on shutdown drains all
//! requests.
//!
//! Shutdown begins with a [lame duck](https://sre.google/sre-book/load-balancing-datacenter/) phase: the gateway is not
//! ready any more and still accepts connections. Then it stops accepting and drains: requests in flight end, or are
//! aborted after the shutdown timeout.

use std::{
    collections::BTreeMap,
    fmt,
    process::ExitCode,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use cluster::{
    ObjectMap, ObjectVersion, Transport, WatchSource, Watches, WriteGate,
    access::AuthMode,
    cache::Keys,
    client::{Client, ConnectError, connect},
    crash::CrashPoint,
    last_invocation::LastInvocationWriter,
    metrics::ApiMetrics,
    resource::Resource,
    reviews::Reviewer,
    transport::DEADLINE,
    watches::named,
};
use daemon::{
    ids::random_hex,
    runtime::{Runtime, RuntimeError, exit_code},
    tls::{H2, HTTP1, Tls, TlsError},
};
use telemetry::{SpanCounters, TelemetryConfig, TelemetryError, Tracing};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{interval, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    admin::Admin,
    args::{FlagError, GatewayArgs, GatewaySettings},
    audit::AuditLog,
    auth::{Auth, Authorizer},
    clients::ClientLimiter,
    clock::Clock,
    endpoints, invocations,
    limits::{LimitTime, RateLimiter, follow_gateways},
    meters::Meters,
    metrics::GatewayMetrics,
    object::{self, Object, RoutedKind},
    record::RequestLog,
    root::RootLimits,
    routes::{Route, Routes},
    serve::{accept_on_all, bind},
    state::GatewayContext,
    traces::RequestTraces,
};

/// Interval at which idle connections and expired early readiness are swept.
const SWEEP: Duration = Duration::from_secs(5);

/// Reasons why the process ended.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// A flag has a value that cannot be used.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// No client of the API server can be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system has no random numbers.
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    /// A variable of OpenTelemetry has a value that cannot be used.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The thread of the audit, or that of the spans, cannot be started.
    #[error("start the thread of the audit or of the spans: {0}")]
    Log(std::io::Error),
    /// The threads that serve connections ended.
    #[error("serve connections: {0}")]
    Threads(std::io::Error),
    /// An address cannot be bound, or a task ended.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Gateway before it serves: its flags are read, and it has a client of the API server.
pub struct Gateway {
    args: GatewayArgs,
    transport: Arc<Transport>,
    shared: Arc<GatewayContext>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").finish_non_exhaustive()
    }
}

/// Listeners that are bound already. In place of one that is missing, the address of the flag is bound.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For clients.
    pub clients: Option<std::net::TcpListener>,
    /// For probes, metrics and the scaler.
    pub admin: Option<TcpListener>,
}

/// Counts the requests that a gateway serves now.
#[derive(Clone)]
pub struct RequestCount(Arc<GatewayContext>);

impl fmt::Debug for RequestCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestCount").field(&self.get()).finish()
    }
}

impl Gateway {
    /// Returns the counter of the requests that it serves.
    pub fn requests(&self) -> RequestCount {
        RequestCount(self.shared.clone())
    }
}

impl RequestCount {
    /// Returns the number of requests that a Pod serves or that wait for one.
    pub fn get(&self) -> usize {
        let count = |route: &Arc<Route>| {
            let served: usize = route.all.iter().map(|pod| pod.in_flight() as usize).sum();
            served + route.workload.demand().waiting
        };
        self.0.routes.all().iter().map(count).sum()
    }
}

/// Runs until SIGTERM or SIGINT and the last request. The exit code is 0, or 1 for a failure, or 2 for a wrong flag or variable.
pub async fn run(args: GatewayArgs) -> ExitCode {
    let is_usage = |error: &GatewayError| {
        matches!(error, GatewayError::Flag(_) | GatewayError::Tls(_) | GatewayError::Telemetry(_))
    };
    let serves =
        async { serve(prepare(args, None, &BTreeMap::new()).await?, Listeners::default(), Runtime::new()?).await };
    exit_code("the gateway", serves.await, is_usage)
}

/// Reads the flags, and the variables of OpenTelemetry, and takes a given client of the API server or makes that of the configured
/// cluster. The `offered` variables of OpenTelemetry count where those of the process name no collector. Called in a runtime of tokio.
///
/// # Errors
/// A flag or variable cannot be used, or no client can be made.
pub async fn prepare(
    args: GatewayArgs,
    given: Option<Client>,
    offered: &BTreeMap<String, String>,
) -> Result<Gateway, GatewayError> {
    let settings = GatewaySettings::read(&args)?;
    let mut telemetry = TelemetryConfig::read(&|name: &str| std::env::var(name).ok())?;
    if telemetry.endpoint.is_none() {
        telemetry = TelemetryConfig::read(&|name: &str| offered.get(name).cloned())?;
    }
    let api_metrics = ApiMetrics::default();
    let transport = connect(given, WriteGate::always(), CrashPoint::default(), api_metrics.clone(), DEADLINE).await?;
    let auth = match settings.auth {
        AuthMode::None => Auth::None { any_host: args.auth.insecure() },
        AuthMode::Kubernetes => {
            Auth::Kubernetes(Authorizer::new(Reviewer::new(transport.clone()), args.auth.audiences()))
        }
    };
    let (clock, meters) = (Clock::new(), Arc::new(Meters::new(args.metrics.by_workload)));
    let spans = SpanCounters::default();
    let metrics = GatewayMetrics::new(meters.clone(), |registry| {
        api_metrics.register(registry);
        spans.register(registry);
    });
    let instance = random_hex::<8>()?;
    let own = telemetry.platform_attributes("gateway", &instance, &args.operator_namespace);
    let tracing = Tracing::start(&telemetry, &own, spans.clone())?;
    let dropped = metrics.audit_dropped.clone();
    let audit = AuditLog::start(args.audit, std::io::stdout(), dropped).map_err(GatewayError::Log)?;
    let traces = RequestTraces::start(tracing, telemetry.sampler, spans).map_err(GatewayError::Log)?;
    let shared = Arc::new(GatewayContext {
        settings,
        routes: Routes::with_meters(clock, meters),
        auth,
        keys: Keys::default(),
        clients: ClientLimiter::new(args.max_in_flight_per_client),
        connections: ClientLimiter::new(args.max_connections_per_address),
        root: RootLimits::default(),
        limits: RateLimiter::default(),
        log: RequestLog { audit, traces },
        metrics,
        clock,
        instance,
        watch_health: Default::default(),
        leaving: Default::default(),
        closing: CancellationToken::new(),
        cold_starts: Default::default(),
    });
    Ok(Gateway { args, transport, shared })
}

/// Serves until the token of the runtime is cancelled, and drains then.
///
/// # Errors
/// An address cannot be bound, or the gateway cannot go on.
pub async fn serve(gateway: Gateway, bound: Listeners, mut runtime: Runtime) -> Result<(), GatewayError> {
    let Gateway { args, transport, shared } = gateway;
    let GatewayArgs { listen, admin_listen, admin_service, namespaces, lame_duck, shutdown_timeout, .. } = args;
    let operator_namespace = args.operator_namespace;
    let shutdown = runtime.shutdown();
    let bind = |address| bind(address).map_err(|error| RuntimeError::Listen(address, error));
    let mut listeners = vec![(bound.clients.map_or_else(|| bind(listen), Ok)?, None)];
    let tasks = runtime.tasks();
    if let Some((listen, cert, key)) = args.tls.read() {
        let tls = Tls::load(cert, key, &[H2, HTTP1])?;
        tasks.spawn(tls.clone().watch_files());
        listeners.push((bind(listen)?, Some(tls)));
    }
    let admin_listener = match bound.admin {
        Some(listener) => listener,
        None => Runtime::listen(admin_listen).await?,
    };

    let board = shared.watch_health.clone();
    let watches = Watches { namespaces: named(namespaces), transport: transport.clone(), watch_health: board.clone() };
    watch(&shared, &watches, tasks);
    // Without authentication there is no caller's name to sign, and the right to read the keys, or where the gateways are, may be
    // missing.
    let own_board = if matches!(shared.auth, Auth::None { .. }) { Arc::default() } else { board.clone() };
    if !admin_service.is_empty() {
        let watches = Watches { namespaces: Vec::new(), transport: transport.clone(), watch_health: own_board.clone() };
        follow_gateways(&shared, &watches, (operator_namespace.clone(), admin_service), tasks);
    }
    tasks.spawn(shared.keys.clone().follow(operator_namespace, transport.clone(), own_board));
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
            sweeping.limits.sweep(LimitTime::now(&sweeping.clock));
            sweeping.measure_budgets();
        }
    });
    let (writing, stop) = (shared.clone(), CancellationToken::new());
    let stamper = LastInvocationWriter::new(transport);
    let stamps = tokio::spawn(invocations::run(stamper, move || writing.routes.all(), stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %listen, %admin_listen, "gateway started");

    let ends = async {
        shutdown.cancelled().await;
        tracing::info!("shutting down");
        shared.leaving.store(true, Relaxed);
        // Lame duck: meanwhile the clients and load balancers learn that this gateway is not ready.
        sleep(lame_duck).await;
        shared.closing.cancel();
        std::future::pending::<()>().await;
    };
    let main = async {
        tokio::select! {
            ended = accept_on_all(listeners, shared.clone(), shutdown_timeout) => ended.map_err(GatewayError::Threads),
            () = ends => Ok(()),
        }
    };
    let outcome = runtime.run(main).await;
    // The serving threads would keep the process alive.
    shared.closing.cancel();
    stop.cancel();
    let _ = stamps.await;
    shared.log.flush().await;
    outcome
}

/// Starts every watch. Changes of the informer caches update the routes.
fn watch(shared: &Arc<GatewayContext>, watches: &Watches, tasks: &mut JoinSet<()>) {
    for kind in RoutedKind::ALL {
        let map = Arc::<ObjectMap<Object>>::default();
        let routes = shared.clone();
        map.subscribe(move |change| {
            if change.new.as_ref().is_some_and(|object| object.has_limits()) {
                routes.limits.set_used();
            }
            routes.routes.object(kind, &change.key, change.new.clone());
        });
        let decode = Arc::new(move |head: &ObjectVersion, json: &str| object::read(kind, head, json));
        let source = WatchSource { resource: kind.resource(), labels: None, fields: None, decode };
        watches.watch(source, &map, tasks);
    }
    let map = Arc::new(ObjectMap::default());
    let routes = shared.clone();
    map.subscribe(move |change| routes.routes.slice(&change.key, change.old.as_deref(), change.new.as_ref()));
    let decode = Arc::new(endpoints::read);
    let source =
        WatchSource { resource: Resource::ENDPOINT_SLICE, labels: Some(endpoints::LABELS), fields: None, decode };
    watches.watch(source, &map, tasks);
}
