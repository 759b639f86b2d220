//! `recif operator`: the process, which watches, serves its probes, and reconciles while it holds the Lease.

use std::{process::ExitCode, sync::Arc, time::Duration};

use actions::deps::Deps;
use cluster::{
    ChildWriter, LeaderElector, LeaseObject, WatchHealth, Watches, WriteGate,
    cache::{IDENTITY_SECRET, InformerReader},
    client::{self, Client},
    crash::CrashPoint,
    events::event_queue,
    secret::SecretObject,
    transport::DEADLINE,
};
use daemon::{
    admin::Probes,
    ids::random_hex,
    logs,
    runtime::{Runtime, exit_code},
};
use machine::{Clock, PhaseTrace, Sink, SystemClock};
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use super::{
    args::OperatorArgs,
    bindings::BindingController,
    controller::{Controller, ControllerContext, trigger_on_new_keys},
    controllers::{controllers, trigger_discovered},
    discovery::Discoverer,
    leader_tasks::LeaderTasks,
    prepare::{Operator, OperatorError, prepare},
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
        let leading = work.run_as_leader(&board, election.as_mut(), &shared.deps.applied_records, &steps);
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
