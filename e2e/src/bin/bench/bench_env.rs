//! Cluster, operator process and agents that the benchmarks share.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Args;
use e2e::{
    audit::{Audit, AuditEvent, AuditMark},
    local_operator::{
        operator::{self, OperatorOptions, OperatorProcess},
        ready_marker,
    },
};
use kube::{Client, Config};
use tokio::{task::AbortHandle, time::sleep};

use crate::{agents::AgentNamespace, counts::RequestCounts};

/// Namespace for the objects of a single benchmark.
const ONE: &str = "one";
/// Namespace of the many agents.
const CROWD: &str = "crowd";

/// Address of the operator's probes.
const PROBES: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Where things are, and how much of them.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchOptions {
    /// How many agents are many.
    #[arg(long, default_value_t = 1000)]
    many: usize,
    /// How long nothing may be asked when there is nothing to do, in seconds.
    #[arg(long, default_value_t = 180)]
    window: u64,
    /// The cluster's state folder, which holds the API server's audit log.
    #[arg(long, env = "RECIF_STATE")]
    pub(crate) state: PathBuf,
    /// The built `recif`.
    #[arg(long, env = "RECIF_BIN")]
    program: PathBuf,
    /// The built operator in Go that does the same work.
    #[arg(long, env = "RECIF_PEER")]
    pub(crate) peer: PathBuf,
    /// The archive of the operator's image.
    #[arg(long, env = "RECIF_IMAGE_ARCHIVE")]
    pub(crate) image: PathBuf,
    /// How the cluster is reached.
    #[arg(long, env = "KUBECONFIG")]
    pub(crate) kubeconfig: PathBuf,
}

/// Environment of the benchmarks.
///
/// Invariant: at most one operator process runs, `operator`.
pub(crate) struct BenchEnv {
    /// Client with every permission.
    pub(crate) client: Client,
    pub(crate) audit: Audit,
    pub(crate) options: BenchOptions,
    operator_kubeconfig: PathBuf,
    operator: Option<OperatorProcess>,
    marker: AbortHandle,
}

impl BenchEnv {
    /// Connects to the cluster and starts the loop that marks Deployments as ready.
    pub(crate) async fn connect(options: BenchOptions) -> Result<Self> {
        let config = Config::infer().await.context("read KUBECONFIG")?;
        let client = Client::try_from(config).context("make a client")?;
        let audit = Audit::new(client.clone(), options.state.join("audit.log"));
        let operator_kubeconfig = operator::kubeconfig(&client, &options.kubeconfig, &options.state).await?;
        let marker = tokio::spawn(ready_marker::run(client.clone())).abort_handle();
        Ok(Self { client, audit, options, operator_kubeconfig, operator: None, marker })
    }

    pub(crate) fn many(&self) -> usize {
        self.options.many
    }

    /// Returns the time for which the operator must be idle in the steady state.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(self.options.window)
    }

    /// Returns the operator process, started if none runs.
    pub(crate) async fn operator(&mut self) -> Result<&OperatorProcess> {
        let operator = match self.operator.take() {
            Some(operator) => operator,
            None => {
                let log = self.options.state.join("logs/operator.log");
                let start = OperatorOptions {
                    program: &self.options.program,
                    kubeconfig: &self.operator_kubeconfig,
                    log: &log,
                    probes: PROBES,
                    uid: "bench",
                    arguments: &[],
                    variables: &[],
                };
                OperatorProcess::start(&start).await?
            }
        };
        Ok(self.operator.insert(operator))
    }

    /// Stops the operator, if it runs.
    pub(crate) async fn stop_operator(&mut self) -> Result<()> {
        match self.operator.take() {
            Some(operator) => operator.stop().await,
            None => Ok(()),
        }
    }

    /// Returns the namespace for the agents of a single benchmark.
    pub(crate) async fn single_scenario_namespace(&self) -> Result<AgentNamespace> {
        AgentNamespace::ensure(&self.client, ONE).await
    }

    /// Returns the namespace of the many agents, without a change to its agents.
    pub(crate) async fn shared_namespace(&self) -> Result<AgentNamespace> {
        AgentNamespace::ensure(&self.client, CROWD).await
    }

    /// Creates or deletes agents until exactly `count` exist, all are Running and the operator is idle.
    pub(crate) async fn ensure_agents(&mut self, count: usize) -> Result<AgentNamespace> {
        self.operator().await?;
        self.single_scenario_namespace().await?.clear().await?;
        let crowd = self.shared_namespace().await?;
        if crowd.len().await? != count {
            crowd.clear().await?;
            crowd.agents(names(count)).await?;
        }
        crowd.running(count).await?;
        self.settle().await?;
        Ok(crowd)
    }

    /// Deletes all agents.
    pub(crate) async fn remove_agents(&mut self) -> Result<()> {
        self.operator().await?;
        self.single_scenario_namespace().await?.clear().await?;
        self.shared_namespace().await?.clear().await
    }

    /// Waits until the operator has sent no request except upkeep for three seconds; gives up after 20 rounds.
    pub(crate) async fn settle(&self) -> Result<()> {
        for _ in 0..20 {
            let mark = self.audit.mark().await?;
            sleep(Duration::from_secs(3)).await;
            if self.counts(mark).await?.total() == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Returns the operator's requests since the mark, without upkeep.
    pub(crate) async fn requests(&self, mark: AuditMark) -> Result<Vec<AuditEvent>> {
        let mut requests = self.audit.requests_by_operator(mark, None).await?;
        requests.retain(|request| !request.is_upkeep());
        Ok(requests)
    }

    /// Returns the counts of the operator's requests since the mark.
    pub(crate) async fn counts(&self, mark: AuditMark) -> Result<RequestCounts> {
        Ok(RequestCounts::of(&self.requests(mark).await?))
    }
}

impl Drop for BenchEnv {
    fn drop(&mut self) {
        self.marker.abort();
    }
}

/// Returns this many names of agents.
pub(crate) fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("agent-{number:04}"))
}
