//! `recif operator`: the process, which watches, serves its probes, and reconciles while it holds the Lease.

use std::{collections::BTreeMap, fmt, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use actions::{applied::AppliedRecords, deps::Deps, render::RenderSettings};
use cluster::{
    ChildWriter, LeaderElector, LeaseObject, WatchHealth, Watches, WriteGate,
    cache::{IDENTITY_SECRET, InformerReader, Keys},
    client::{self, Client},
    crash::CrashPoint,
    events::event_queue,
    secret::SecretObject,
    transport::DEADLINE,
    watches::named,
};
use daemon::{
    admin::Probes,
    ids::random_hex,
    logs,
    metrics::MetricsArgs,
    runtime::{Runtime, RuntimeError, exit_code},
};
use futures::future::{join_all, join4};
use machine::{Clock, PhaseTrace, Sink, SystemClock};
use mcp::{Cidr, ClosedPorts, LOOPBACK_RANGES};
use prometheus_client::registry::Registry;
use telemetry::TelemetryConfig;
use tokio::time::timeout;

use super::{
    args::OperatorArgs,
    bindings::BindingController,
    controller::{Controller, ControllerContext, trigger_on_new_keys},
    controllers::{controllers, trigger_discovered},
    discovery::{Discoverer, DiscoveryNetwork},
    settings,
    sinks::EventSink,
    spans::{StepSpanSink, start_tracing},
    watches::{WatchedCaches, watch_gateways},
};
use crate::{
    metrics::{OperatorMetrics, StepMetrics},
    scaler::{GatewayMap, LiveFleet, Scaler},
};

/// Deadline of a request for the Lease, which is renewed within 6 s or lost.
const LEASE_TIMEOUT: Duration = Duration::from_millis(2500);
/// Longest wait at the end for the release of the Lease, and for queued Events to leave.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait of a new leader for the keys of the gateways.
const KEYS_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason for the end of the process.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// A flag, or a variable of OpenTelemetry, has a value that cannot be used.
    #[error("{0}")]
    Flag(String),
    /// No client of the API server can be made.
    #[error(transparent)]
    Connect(#[from] client::ConnectError),
    /// The tables of the state machine contradict themselves.
    #[error("the tables of the state machine are wrong: {0}")]
    Table(#[from] machine::TableError),
    /// The system has no random numbers.
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    /// An address cannot be bound, or a task ended.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Operator before it runs, with its flags read.
pub struct Operator {
    namespaces: Vec<String>,
    /// Address of the probes; `None` to serve none.
    pub listen: Option<SocketAddr>,
    leader_elect: bool,
    lease_name: String,
    workers: u16,
    pod_uid: String,
    settings: RenderSettings,
    scaler_interval: Duration,
    gateway_service: String,
    /// Network in which MCP servers are queried.
    pub network: DiscoveryNetwork,
    by_workload: bool,
    crash_at: Option<String>,
    lose_wakes: bool,
    telemetry: TelemetryConfig,
}

impl Operator {
    /// Uses these variables of OpenTelemetry, also for Pods, unless this process's own name a collector.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn offer_telemetry(&mut self, variables: BTreeMap<String, String>) -> Result<(), OperatorError> {
        if self.telemetry.endpoint.is_none() {
            let offered = settings::own_telemetry(&|name: &str| variables.get(name).cloned());
            self.telemetry = offered.map_err(OperatorError::Flag)?;
        }
        if self.settings.telemetry.is_empty() {
            self.settings.telemetry = variables;
        }
        Ok(())
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}

/// Runs until SIGTERM or SIGINT: exit code 0; 1 if the operator cannot continue, 2 for a wrong flag.
pub async fn run(args: OperatorArgs) -> ExitCode {
    exit_code("the operator", operate(args).await, |error| matches!(error, OperatorError::Flag(_)))
}

async fn operate(args: OperatorArgs) -> Result<(), OperatorError> {
    let (log_format, log) = (args.log_format, args.log.clone());
    let operator = prepare(args)?;
    logs::init(log_format, &log).map_err(|error| OperatorError::Flag(format!("--log {log}: {error}")))?;
    reconcile(operator, None, Runtime::new()?).await
}

/// Reads the flags, but for those of logs, which are the process's.
///
/// # Errors
/// A flag cannot be used.
pub fn prepare(args: OperatorArgs) -> Result<Operator, OperatorError> {
    let OperatorArgs {
        namespaces,
        listen,
        log_format: _,
        log: _,
        leader_elect,
        lease_name,
        operator_namespace,
        cluster_domain,
        workers,
        pod_uid,
        database_url,
        database_namespaces,
        ollama_base_url,
        agent_image,
        runner_image,
        proxy_image,
        network_policies,
        cluster_cidrs,
        pod_otel,
        pod_security,
        scaler_interval,
        gateway_service,
        mcp_deny_cidr: mut denied,
        local,
        closed_ports,
        metrics: MetricsArgs { by_workload },
        crash_at,
        lose_wakes,
    } = args;
    if !local {
        denied.extend(LOOPBACK_RANGES.iter().filter_map(|range| range.parse::<Cidr>().ok()));
    }
    let namespaces = named(namespaces);
    let database = settings::database(database_url, database_namespaces, &namespaces).map_err(OperatorError::Flag)?;
    let variable = |name: &str| std::env::var(name).ok();
    let own_telemetry = settings::own_telemetry(&variable).map_err(OperatorError::Flag)?;
    let telemetry = match pod_otel {
        true => settings::pod_telemetry(&variable, &operator_namespace, &cluster_domain),
        false => Ok(BTreeMap::new()),
    };
    let telemetry = telemetry.map_err(OperatorError::Flag)?;
    let operators = (operator_namespace, cluster_domain);
    let images = [agent_image, runner_image, proxy_image];
    let settings = settings::settings(operators, database, ollama_base_url, images, pod_security);
    let settings = settings.map_err(OperatorError::Flag)?;
    let settings = RenderSettings { network_policies, cluster_cidrs, telemetry, ..settings };
    let closed = ClosedPorts::new(Vec::new(), local).and(closed_ports.unwrap_or_default());
    let network = DiscoveryNetwork { denied, closed, hosts: None };
    Ok(Operator {
        namespaces,
        listen: Some(listen),
        leader_elect,
        lease_name,
        workers,
        pod_uid,
        settings,
        scaler_interval,
        gateway_service,
        network,
        by_workload,
        crash_at,
        lose_wakes,
        telemetry: own_telemetry,
    })
}

/// Reconciles until the token of the runtime is cancelled, through a given client or that of the configured cluster.
///
/// # Errors
/// A flag cannot be used, no client can be made, an address cannot be bound, or the operator cannot go on.
pub async fn reconcile(operator: Operator, given: Option<Client>, mut runtime: Runtime) -> Result<(), OperatorError> {
    let Operator {
        namespaces,
        listen,
        leader_elect,
        lease_name,
        workers,
        pod_uid,
        settings,
        scaler_interval,
        gateway_service,
        network,
        by_workload,
        crash_at,
        lose_wakes,
        telemetry,
    } = operator;
    let operator_namespace = settings.operator_namespace.clone();
    let crash = crash_at.filter(|at| !at.is_empty()).map(|at| CrashPoint::parse(&at)).transpose();
    let crash = crash.map_err(OperatorError::Flag)?.unwrap_or_default();
    let gateway_service = settings::gateways(&gateway_service).map_err(OperatorError::Flag)?;
    // A process outside of a Pod has no uid.
    let identity = if pod_uid.is_empty() { random_hex::<8>()? } else { pod_uid };

    let mut registry = Registry::default();
    let maps = Arc::new(WatchedCaches::default());
    let OperatorMetrics { steps, scaler, api, spans } =
        OperatorMetrics::new(&mut registry, &maps.caches.kinds, by_workload);
    let tracing = start_tracing(&telemetry, &identity, &operator_namespace, spans).map_err(OperatorError::Flag)?;
    let authority = if leader_elect { WriteGate::by_lease() } else { WriteGate::always() };
    // A transport of its own: a dead connection must be noticed before the Lease expires.
    let lease_transport =
        client::connect(given.clone(), WriteGate::always(), CrashPoint::default(), api.clone(), LEASE_TIMEOUT).await?;
    let transport = client::connect(given, authority.clone(), crash, api, DEADLINE).await?;
    let (events, event_sender) = event_queue(transport.clone(), identity.clone());

    let board = Arc::new(WatchHealth::default());
    let children = Arc::new(ChildWriter::new(transport.clone(), maps.caches.children.clone()));
    let discoverer = Arc::new(Discoverer::new(children.clone(), network, maps.caches.keys.clone()));
    let deps = Deps {
        cache: Arc::new(InformerReader::new(&maps.caches, board.clone())),
        client: children,
        discovery: discoverer.clone(),
        settings: Arc::new(settings),
        applied_records: Default::default(),
        debounce: Default::default(),
        prompt_rejections: Default::default(),
    };
    let steps_sink = Arc::new(steps.clone());
    let sinks: Vec<Arc<dyn Sink>> =
        vec![Arc::new(PhaseTrace), steps_sink, Arc::new(EventSink(events)), Arc::new(StepSpanSink(tracing.clone()))];
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let behind_gateways = Arc::<GatewayMap>::default();
    let fleet = LiveFleet::new(&transport, &maps.caches, &deps.cache, &clock, behind_gateways.clone(), board.clone());
    let scaler = Arc::new(Scaler::new(Arc::new(fleet), scaler_interval, maps.caches.keys.clone(), scaler));
    let deps = Arc::new(deps);
    let users = Arc::default();
    let instance = format!("{operator_namespace}/{lease_name}");
    let shared = ControllerContext {
        maps: maps.clone(),
        transport: transport.clone(),
        deps,
        clock,
        referrer_queues: users,
        sinks,
        instance,
        drop_triggers: lose_wakes,
        watch_health: board.clone(),
    };
    let controllers = controllers(&shared)?;
    trigger_discovered(&shared, &discoverer);

    let stop = runtime.shutdown();
    let listener = match listen {
        Some(address) => Some(Runtime::listen(address).await?),
        None => None,
    };
    let watches = Watches { namespaces, transport: transport.clone(), watch_health: board.clone() };
    let tasks = runtime.tasks();
    let holder = BindingController::new(&shared, &watches, tasks);
    maps.watch(&watches, tasks);
    let keys = maps.caches.keys.clone();
    tasks.spawn(trigger_on_new_keys(keys.subscribe(), maps.clone(), shared.referrer_queues.clone()));
    tasks.spawn(keys.clone().follow(operator_namespace.clone(), transport.clone(), board.clone()));
    let secret = SecretObject::new(transport.clone(), operator_namespace.clone(), IDENTITY_SECRET);
    if let Some(service) = gateway_service {
        watch_gateways(&watches, service, &behind_gateways, tasks);
    }
    if let Some(listener) = listener {
        runtime.serve_probes(listener, probes(registry, board.clone(), controllers.clone(), steps.clone()));
    }
    let events = tokio::spawn(event_sender.run(stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), identity, listen = listen.map(display), "operator started");

    let mut election = leader_elect.then(|| {
        let row = board.add_started(format!("lease {operator_namespace}/{lease_name}"));
        let api = Arc::new(LeaseObject::new(lease_transport, operator_namespace, lease_name, board.clone()));
        let board = board.clone();
        LeaderElector::new(api, identity, authority, move |error| board.report(row, error))
    });
    let work = LeaderTasks {
        controllers,
        workers: workers.into(),
        scaler,
        discoverer,
        binding_controller: holder,
        keys,
        secret,
    };
    let main = async {
        let leading = run_as_leader(&board, election.as_mut(), &work, &shared.deps.applied_records, &steps);
        tokio::select! { biased; () = stop.cancelled() => {}, () = leading => {} }
        Ok(())
    };
    let outcome = runtime.run(main).await;
    tracing::info!("operator stops");
    if let Some(election) = &mut election {
        let _ = timeout(FLUSH_TIMEOUT, election.release()).await;
    }
    stop.cancel();
    let _ = tokio::join!(timeout(FLUSH_TIMEOUT, events), tracing.shutdown());
    outcome
}

/// Tasks of a leader.
struct LeaderTasks {
    controllers: Arc<[Arc<dyn Controller>]>,
    workers: usize,
    scaler: Arc<Scaler>,
    discoverer: Arc<Discoverer>,
    binding_controller: BindingController,
    keys: Keys,
    secret: SecretObject,
}

/// Leads whenever this replica may; never returns.
async fn run_as_leader(
    board: &WatchHealth,
    mut election: Option<&mut LeaderElector>,
    work: &LeaderTasks,
    baselines: &AppliedRecords,
    steps: &StepMetrics,
) {
    board.settled().await;
    match board.notes().as_slice() {
        [] => tracing::info!("every watch has started"),
        lines => {
            tracing::warn!(refused = lines.len(), first = lines[0], "led is what is known: some watches are refused")
        }
    }
    loop {
        let controllers = join_all(work.controllers.iter().map(|controller| controller.run(work.workers)));
        let lead = async {
            // The first objects should be rendered with the keys, but missing keys do not keep the leader from its work.
            let _ = timeout(KEYS_TIMEOUT, work.keys.ensure(&work.secret)).await;
            join4(
                controllers,
                work.scaler.clone().run(),
                work.keys.maintain(&work.secret),
                work.binding_controller.run(),
            )
            .await
        };
        let Some(election) = &mut election else {
            steps.leading(true);
            lead.await;
            return;
        };
        election.acquire().await;
        tracing::info!("holding the lease");
        // Records of steps that ended after the last term are out of date.
        baselines.clear();
        work.discoverer.clear();
        steps.leading(true);
        // Losing the Lease drops every step in flight.
        tokio::select! {
            () = election.renew() => {}
            _ = lead => {}
        }
        steps.leading(false);
        work.discoverer.clear();
        tracing::warn!("the lease is lost: standing by");
    }
}

fn probes(
    registry: Registry,
    board: Arc<WatchHealth>,
    controllers: Arc<[Arc<dyn Controller>]>,
    steps: StepMetrics,
) -> Probes {
    let (noting, kinds, telling) = (board.clone(), controllers.clone(), steps.clone());
    let refresh = move || steps.refresh(&controllers);
    let notes = move || -> Vec<String> { noting.notes().into_iter().chain(telling.outdated_crds(&kinds)).collect() };
    Probes { registry, unready: Box::new(move || board.unready()), notes: Box::new(notes), refresh: Box::new(refresh) }
}
