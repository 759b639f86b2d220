//! The cluster, the operator in it, and the agents that scenarios share.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::Args;
use e2e::{
    audit::{Audit, AuditEvent, AuditOffset},
    local_operator::{
        operator::{self, OperatorOptions, OperatorProcess},
        ready_marker,
    },
};
use kube::{Client, Config};
use tokio::{task::AbortHandle, time::sleep};

use crate::{agents::AgentNamespace, counts::RequestCounts, table::print_progress};

/// The namespace of what only one scenario needs.
const ONE: &str = "one";
/// The namespace of the many.
const CROWD: &str = "crowd";

/// Where the operator serves its probes.
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

/// What scenarios act on.
pub(crate) struct BenchEnv {
    /// A client with every right.
    pub(crate) client: Client,
    pub(crate) audit: Audit,
    pub(crate) options: BenchOptions,
    operator_kubeconfig: PathBuf,
    operator: Option<OperatorProcess>,
    marker: AbortHandle,
}

impl BenchEnv {
    /// Connects to the cluster.
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

    /// How long nothing may be asked when there is nothing to do.
    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs(self.options.window)
    }

    /// The operator, started if it does not run.
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

    /// Ends the operator, if it runs.
    pub(crate) async fn stop_operator(&mut self) {
        if let Some(operator) = self.operator.take()
            && let Err(error) = operator.stop().await
        {
            print_progress(&format!("{error:#}"));
        }
    }

    /// A namespace for agents that only one scenario needs.
    pub(crate) async fn single_scenario_namespace(&self) -> Result<AgentNamespace> {
        AgentNamespace::ensure(&self.client, ONE).await
    }

    /// The namespace of the many, whoever is in it.
    pub(crate) async fn shared_namespace(&self) -> Result<AgentNamespace> {
        AgentNamespace::ensure(&self.client, CROWD).await
    }

    /// Makes it so that there are `count` agents in all, Running, and nothing is left to do for them.
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

    /// Leaves no agent.
    pub(crate) async fn remove_agents(&mut self) -> Result<()> {
        self.operator().await?;
        self.single_scenario_namespace().await?.clear().await?;
        self.shared_namespace().await?.clear().await
    }

    /// Waits until the operator has asked for nothing during three seconds.
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

    /// The operator's requests since the mark, upkeep left out.
    pub(crate) async fn requests(&self, mark: AuditOffset) -> Result<Vec<AuditEvent>> {
        let mut requests = self.audit.requests_by_operator(mark, None).await?;
        requests.retain(|request| !request.is_upkeep());
        Ok(requests)
    }

    /// The operator's requests since the mark, counted.
    pub(crate) async fn counts(&self, mark: AuditOffset) -> Result<RequestCounts> {
        Ok(RequestCounts::of(&self.requests(mark).await?))
    }
}

impl Drop for BenchEnv {
    fn drop(&mut self) {
        self.marker.abort();
    }
}

/// Names for agents.
pub(crate) fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("agent-{number:04}"))
}
