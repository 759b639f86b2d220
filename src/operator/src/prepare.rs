//! Flags of `recif operator`, read and checked before anything runs.

use std::{collections::BTreeMap, fmt, net::SocketAddr, time::Duration};

use actions::render::RenderSettings;
use cluster::{client, watches::named};
use daemon::{metrics::MetricsArgs, runtime::RuntimeError};
use mcp::{Cidr, ClosedPorts, LOOPBACK_RANGES};
use telemetry::TelemetryConfig;

use super::{args::OperatorArgs, discovery::DiscoveryNetwork, settings};

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
    pub(super) namespaces: Vec<String>,
    /// Address of the probes; `None` to serve none.
    pub listen: Option<SocketAddr>,
    pub(super) leader_elect: bool,
    pub(super) lease_name: String,
    pub(super) workers: u16,
    pub(super) pod_uid: String,
    pub(super) settings: RenderSettings,
    pub(super) scaler_interval: Duration,
    pub(super) gateway_service: String,
    /// Network in which MCP servers are queried.
    pub network: DiscoveryNetwork,
    pub(super) by_workload: bool,
    pub(super) crash_at: Option<String>,
    pub(super) lose_wakes: bool,
    pub(super) telemetry: TelemetryConfig,
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
