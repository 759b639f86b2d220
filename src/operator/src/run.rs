//! `recif operator`: the process, which watches, serves its probes, and reconciles while it holds the Lease.

use std::{net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use actions::{
    applied::AppliedRecords,
    deps::Deps,
    render::{PodSecurity, RenderSettings},
};
use clap::ArgAction;
use cluster::{
    ChildWriter, LeaderElector, LeaseObject, WatchHealth, Watches, WriteGate,
    cache::{IDENTITY_SECRET, InformerReader, Keys},
    client,
    crash::CrashPoint,
    events::event_queue,
    secret::SecretObject,
    transport::DEADLINE,
    watches::named,
};
use daemon::{
    admin::Probes,
    ids::random_hex,
    logs::{self, DEFAULT_FILTER, LogFormat},
    metrics::MetricsArgs,
    runtime::{Runtime, RuntimeError, exit_code},
};
use futures::future::{join_all, join4};
use machine::{Clock, PhaseTrace, Sink, SystemClock};
use mcp::{Cidr, ClosedPorts, DENIED_RANGES, LOOPBACK_RANGES};
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use super::{
    bindings::BindingController,
    controller::{Controller, ControllerContext, trigger_on_new_keys},
    controllers::{controllers, trigger_discovered},
    discovery::{Discoverer, DiscoveryNetwork},
    settings,
    sinks::EventSink,
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

/// Options of `recif operator`.
#[derive(Debug, clap::Args)]
pub struct OperatorArgs {
    /// Namespaces to work in, separated by commas; all when empty
    #[arg(long, env = "RECIF_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    namespaces: Vec<String>,
    /// Address of /metrics, /healthz and /readyz
    #[arg(long, env = "RECIF_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// How log lines look
    #[arg(long, env = "RECIF_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
    /// What is logged: a level, or target=level, separated by commas
    #[arg(long, env = "RECIF_LOG", default_value = DEFAULT_FILTER, value_name = "FILTER")]
    log: String,
    /// Write only while holding the lease; =false for a replica that is alone for sure
    #[arg(
        long, env = "RECIF_LEADER_ELECT", default_value_t = true, action = ArgAction::Set, require_equals = true,
        num_args = 0..=1, default_missing_value = "true", value_name = "BOOL"
    )]
    leader_elect: bool,
    /// Name of the lease, in the operator's namespace
    #[arg(long, env = "RECIF_LEASE_NAME", default_value = "recif-operator", value_name = "NAME")]
    lease_name: String,
    /// Namespace of the operator: of its lease, and of single-label hosts in its own URLs
    #[arg(long, env = "POD_NAMESPACE", default_value = "recif-system", value_name = "NAMESPACE")]
    operator_namespace: String,
    /// DNS domain of the cluster
    #[arg(long, env = "RECIF_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    cluster_domain: String,
    /// Objects of one kind that are worked on at the same time
    #[arg(long, env = "RECIF_WORKERS", default_value_t = 16, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Uid of this Pod: its identity as a holder of the lease; random when empty
    #[arg(long, env = "POD_UID", default_value = "", value_name = "UID")]
    pod_uid: String,
    /// Database of agents that name none of their own
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "DSN")]
    database_url: Option<String>,
    /// Namespaces whose agents inherit DATABASE_URL, separated by commas, or * for all: every user who may create an Agent
    /// there can read that database. Those of --namespaces when empty
    #[arg(long, env = "RECIF_DATABASE_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    database_namespaces: Vec<String>,
    /// Ollama of agents that use one
    #[arg(long, env = "OLLAMA_BASE_URL", hide_env_values = true, value_name = "URL")]
    ollama_base_url: Option<String>,
    /// Image of Agents that name none, or corail:latest; one that runs keeps its image until it changes or is rolled out.
    /// corail:latest itself when empty, which has to be on the nodes
    #[arg(long, env = "RECIF_AGENT_IMAGE", default_value = "", value_name = "IMAGE")]
    agent_image: String,
    /// Image of Flows and FlowSets that name none; one that runs keeps its image until it changes or is rolled out
    #[arg(long, env = "RECIF_RUNNER_IMAGE", default_value = "recif.local/runner:dev", value_name = "IMAGE",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    runner_image: String,
    /// Image of the sidecar of Agents, Flows and FlowSets; one that runs keeps its image until it changes or is rolled out
    #[arg(long, env = "RECIF_PROXY_IMAGE", default_value = "recif.local/proxy:dev", value_name = "IMAGE",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    proxy_image: String,
    /// Give each workload with a sidecar a NetworkPolicy that closes the port of its image, unless another policy selects its
    /// Pods; =false takes it away with the next change of each
    #[arg(
        long, env = "RECIF_NETWORK_POLICIES", default_value_t = true, action = ArgAction::Set, require_equals = true,
        num_args = 0..=1, default_missing_value = "true", value_name = "BOOL"
    )]
    network_policies: bool,
    /// The Pod Security level that a podTemplate may not go beyond: restricted, baseline or privileged
    #[arg(long, env = "RECIF_POD_SECURITY", default_value = "baseline", value_name = "LEVEL",
        value_parser = settings::pod_security)]
    pod_security: PodSecurity,
    /// How often the scaler asks workloads with traffic for their load, such as 1s
    #[arg(long, env = "RECIF_SCALER_INTERVAL", default_value = "1s", value_name = "TIME", value_parser = settings::interval)]
    scaler_interval: Duration,
    /// Service whose Pods are the gateways, as namespace/name: they report waiting requests to the scaler; none when empty
    #[arg(
        long,
        env = "RECIF_GATEWAY_SERVICE",
        default_value = "recif-system/recif-gateway-admin",
        value_name = "NAME"
    )]
    gateway_service: String,
    /// Addresses that no MCP server may have, as ranges separated by commas; the default denies link-local addresses and the
    /// metadata services of clouds; the operator's own (loopback) are denied besides, unless --local
    #[arg(long, env = "RECIF_MCP_DENY_CIDR", value_delimiter = ',', default_values = DENIED_RANGES, value_name = "RANGES")]
    mcp_deny_cidr: Vec<Cidr>,
    /// The operator runs on a developer's machine: MCP servers may be on loopback
    #[arg(long, env = "RECIF_LOCAL")]
    local: bool,
    /// TCP ports on loopback that no MCP server may have, separated by commas
    #[arg(long, env = "RECIF_CLOSED_PORTS", value_delimiter = ',', value_name = "PORTS",
        value_parser = clap::value_parser!(u16).range(1..))]
    closed_ports: Vec<u16>,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// For tests: end the process at its n-th write, given as N:before, N:unacked or N:after
    #[arg(long, env = "RECIF_CRASH_AT", value_name = "N:SIDE")]
    crash_at: Option<String>,
    /// For tests: lose one wake of a hundred, and look at every object again within five seconds
    #[arg(long, env = "RECIF_LOSE_WAKES")]
    lose_wakes: bool,
}

/// Longest wait of a new leader for the keys of the gateways.
const KEYS_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason for the end of the process.
#[derive(Debug, thiserror::Error)]
enum OperatorError {
    #[error("{0}")]
    Flag(String),
    #[error(transparent)]
    Connect(#[from] client::ConnectError),
    #[error("the tables of the state machine are wrong: {0}")]
    Table(#[from] machine::TableError),
    #[error("the system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// Runs until SIGTERM or SIGINT: exit code 0; 1 if the operator cannot continue, 2 for a wrong flag.
pub async fn run(args: OperatorArgs) -> ExitCode {
    exit_code("the operator", operate(args).await, |error| matches!(error, OperatorError::Flag(_)))
}

async fn operate(args: OperatorArgs) -> Result<(), OperatorError> {
    let OperatorArgs {
        namespaces,
        listen,
        log_format,
        log,
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
    let operators = (operator_namespace.clone(), cluster_domain);
    let images = [agent_image, runner_image, proxy_image];
    let settings = settings::settings(operators, database, ollama_base_url, images, pod_security);
    let settings = settings.map_err(OperatorError::Flag)?;
    let settings = RenderSettings { network_policies, ..settings };
    logs::init(log_format, &log).map_err(|error| OperatorError::Flag(format!("--log {log}: {error}")))?;
    let crash = crash_at.filter(|at| !at.is_empty()).map(|at| CrashPoint::parse(&at)).transpose();
    let crash = crash.map_err(OperatorError::Flag)?.unwrap_or_default();
    let gateway_service = settings::gateways(&gateway_service).map_err(OperatorError::Flag)?;
    // A process outside of a Pod has no uid.
    let identity = if pod_uid.is_empty() { random_hex::<8>()? } else { pod_uid };

    let mut registry = Registry::default();
    let maps = Arc::new(WatchedCaches::default());
    let OperatorMetrics { steps, scaler, api } = OperatorMetrics::new(&mut registry, &maps.caches.kinds, by_workload);
    let authority = if leader_elect { WriteGate::by_lease() } else { WriteGate::always() };
    // A transport of its own: a dead connection must be noticed before the Lease expires.
    let lease_transport =
        client::connect(WriteGate::always(), CrashPoint::default(), api.clone(), LEASE_TIMEOUT).await?;
    let transport = client::connect(authority.clone(), crash, api, DEADLINE).await?;
    let (events, event_sender) = event_queue(transport.clone(), identity.clone());

    let board = Arc::new(WatchHealth::default());
    let children = Arc::new(ChildWriter::new(transport.clone(), maps.caches.children.clone()));
    let network = DiscoveryNetwork { denied, closed: ClosedPorts::new(closed_ports, local), hosts: None };
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
    let sinks: Vec<Arc<dyn Sink>> = vec![Arc::new(PhaseTrace), Arc::new(steps.clone()), Arc::new(EventSink(events))];
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

    let mut runtime = Runtime::new()?;
    let stop = runtime.shutdown();
    let listener = Runtime::listen(listen).await?;
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
    runtime.serve_probes(listener, probes(registry, board.clone(), controllers.clone(), steps.clone()));
    let events = tokio::spawn(event_sender.run(stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), identity, %listen, "operator started");

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
    let _ = timeout(FLUSH_TIMEOUT, events).await;
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
