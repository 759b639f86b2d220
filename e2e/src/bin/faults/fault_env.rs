//! Runs one scenario: the operator behind the fault proxy, and the script in many namespaces.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{
    fault::{FaultLayer, FaultProxy, FaultRule},
    local_operator::{
        operator::{self, OperatorOptions, OperatorProcess},
        process, ready_marker,
    },
};
use futures::future::try_join_all;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tokio::{
    sync::OnceCell,
    time::{Instant, sleep},
};

use crate::{
    args::Args,
    invariants::InvariantChecker,
    masked,
    oracles::{BACKOFF, BaselineRun, FaultRun},
    scenarios::{FaultScenario, OperatorTermination},
    script::{ScriptNamespace, described},
    writes::WriteCounts,
};

/// Identity of the operator, always the same, so that it holds its lease again after it was killed.
const UID: &str = "faults";

/// Cluster and the state that all runs share.
pub(crate) struct FaultEnv {
    pub(crate) args: Args,
    pub(crate) client: Client,
    upstream: Kubeconfig,
    baseline: OnceCell<BaselineRun>,
}

impl FaultEnv {
    /// Connects to the cluster and starts the loop that marks Deployments as ready.
    pub(crate) async fn connect(args: &Args) -> Result<Self> {
        let client = Client::try_from(Config::infer().await.context("read KUBECONFIG")?).context("make a client")?;
        let path = operator::kubeconfig(&client, &args.kubeconfig, &args.state).await?;
        let upstream = Kubeconfig::read_from(&path).context("read the operator's kubeconfig")?;
        tokio::spawn(ready_marker::run(client.clone()));
        Ok(Self { args: args.clone(), client, upstream, baseline: OnceCell::new() })
    }

    /// Returns the baseline; the undisturbed run is played once.
    pub(crate) async fn baseline(&self) -> Result<&BaselineRun> {
        self.baseline.get_or_try_init(|| self.run_baseline()).await
    }

    /// Plays a scenario and checks the oracles.
    pub(crate) async fn play(&self, scenario: &FaultScenario) -> Result<String> {
        let reference = self.baseline().await?;
        let seeds = scenario.seeds(self.args.seeds);
        let run = self.run(scenario, seeds).await;
        let mut run = match run {
            Ok(run) => run,
            Err(error) => {
                // The next scenario must not find its objects.
                for namespace in self.namespaces_of(scenario.name, seeds) {
                    let _ = namespace.remove().await;
                }
                return Err(error);
            }
        };
        // Changes during a lost watch are seen when the watch is back, which takes up to its longest back-off.
        let judged = match self.await_equal_to_baseline(&run.namespaces).await {
            Ok(()) => run.check_oracles(scenario, reference).await,
            Err(error) => Err(error),
        };
        self.tear_down(run).await?;
        judged
    }

    async fn run_baseline(&self) -> Result<BaselineRun> {
        let nothing = FaultScenario {
            name: "reference",
            rules: &[],
            window: None,
            writes: 1,
            termination: OperatorTermination::Never,
        };
        let begun = Instant::now();
        // The same number of namespaces as in a scenario makes the memory comparable.
        let run = self.run(&nothing, self.args.seeds.max(3)).await?;
        let took = begun.elapsed();
        let namespace = &run.namespaces[0];
        let state = masked::masked_state(namespace).await?;
        for other in &run.namespaces[1..] {
            let found = masked::difference(&state, &masked::masked_state(other).await?);
            ensure!(found.is_none(), "two undisturbed runs differ: {}", found.unwrap_or_default());
        }
        let writes = run.namespaces.iter().map(|namespace| WriteCounts::of(&run.proxy, &namespace.name));
        let writes = writes.max_by_key(|found| found.counted).unwrap_or_default();
        let (_, memory) = process::memory(run.operator.pid)?;
        let reference =
            BaselineRun { state, creations: run.invariants.creation_counts(&namespace.name), writes, took, memory };
        self.tear_down(run).await?;
        Ok(reference)
    }

    /// Starts a proxy without faults.
    pub(crate) async fn proxy(&self) -> Result<FaultProxy> {
        let config = Config::from_custom_kubeconfig(self.upstream.clone(), &KubeConfigOptions::default()).await?;
        FaultProxy::start(config, FaultLayer::new(self.args.seed)).await
    }

    /// Returns the path of an operator's log.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.args.state.join(format!("logs/{name}.log"))
    }

    /// Creates this many namespaces for a scenario.
    pub(crate) async fn create_namespaces(&self, name: &str, count: usize) -> Result<Vec<ScriptNamespace>> {
        let namespaces = self.namespaces_of(name, count);
        try_join_all(namespaces.iter().map(ScriptNamespace::make)).await?;
        Ok(namespaces)
    }

    fn namespaces_of(&self, name: &str, count: usize) -> Vec<ScriptNamespace> {
        let prefix = name.to_lowercase();
        let namespace = |at| ScriptNamespace { client: self.client.clone(), name: format!("{prefix}-{at:02}") };
        (0..count).map(namespace).collect()
    }

    /// Waits until the namespaces are equal to those of the undisturbed run.
    pub(crate) async fn await_equal_to_baseline(&self, namespaces: &[ScriptNamespace]) -> Result<()> {
        let reference = self.baseline().await?;
        let begun = Instant::now();
        for namespace in namespaces {
            while let Some(difference) = masked::difference(&reference.state, &masked::masked_state(namespace).await?) {
                ensure!(
                    begun.elapsed() < BACKOFF,
                    "O1: {}: {BACKOFF:?} after the faults: {difference}",
                    namespace.name
                );
                sleep(Duration::from_secs(1)).await;
            }
        }
        Ok(())
    }

    /// Plays the script in this many namespaces under the faults, and waits until everything is settled.
    async fn run(&self, scenario: &FaultScenario, count: usize) -> Result<FaultRun> {
        let proxy = self.proxy().await?;
        let log = self.log(scenario.name);
        // Faults of lists and watches are active from the start; all others only begin after the operator has started.
        let at_start = |rule: &FaultRule| rule.filter.verbs.iter().all(|verb| matches!(*verb, "list" | "watch"));
        let at_start = scenario.rules.iter().all(|rule| !rule.filter.verbs.is_empty() && at_start(rule));
        if at_start {
            proxy.faults.schedule.set(scenario.rules);
        }
        let mut operator = self.operator(&proxy, &log, UID, None).await?;
        let invariants = InvariantChecker::start(&self.client).await?;
        let namespaces = self.create_namespaces(scenario.name, count).await?;
        if !at_start {
            proxy.faults.schedule.set(scenario.rules);
        }
        let schedule = proxy.faults.schedule.clone();
        let window = scenario.window.map(|length| {
            tokio::spawn(async move {
                sleep(length).await;
                schedule.set(&[]);
                Instant::now()
            })
        });
        let scripts =
            namespaces.clone().into_iter().map(|namespace| tokio::spawn(async move { namespace.play().await }));
        let scripts: Vec<_> = scripts.collect();
        let (mut ended, mut tries, mut edited) = (0, 0, false);
        let until = scenario.window.map(|length| Instant::now() + length);
        // A short script may end before the operator ended often enough for a meaningful result.
        while scenario.termination != OperatorTermination::Never
            && until.is_none_or(|until| Instant::now() < until)
            && tries < 100
        {
            if scripts.iter().all(tokio::task::JoinHandle::is_finished) {
                if ended >= 4 {
                    break;
                }
                // The operator must end while it has something to reconcile.
                edited = true;
                let prompt = json!({"spec": {"systemPrompt": format!("You were edited {tries} times.")}});
                try_join_all(namespaces.iter().map(|namespace| namespace.patch("Agent", "plain", prompt.clone())))
                    .await?;
            }
            tries += 1;
            let as_planned;
            (operator, as_planned) = self.restart_operator(scenario.termination, operator, tries, &proxy, &log).await?;
            ended += u64::from(as_planned);
        }
        if edited {
            let prompt = json!({"spec": {"systemPrompt": null}});
            try_join_all(namespaces.iter().map(|namespace| namespace.patch("Agent", "plain", prompt.clone()))).await?;
        }
        for script in scripts {
            script.await.context("the script panicked")??;
        }
        ensure!(
            scenario.termination == OperatorTermination::Never || ended >= 4,
            "the operator ended {ended} times, which shows nothing"
        );
        let over = match window {
            Some(window) => window.await.context("the window panicked")?,
            None => Instant::now(),
        };
        proxy.faults.schedule.set(&[]);
        if scenario.termination == OperatorTermination::AtWrite {
            operator.kill().await?;
            operator = self.operator(&proxy, &log, UID, None).await?;
        }
        self.settle(&namespaces, &mut [&mut operator], &log).await?;
        let settled_after = over.elapsed();
        Ok(FaultRun { namespaces, invariants, proxy, operator, settled_after, log })
    }

    /// Waits until all agents are in the state in which the script leaves them.
    pub(crate) async fn settle(
        &self,
        namespaces: &[ScriptNamespace],
        operators: &mut [&mut OperatorProcess],
        log: &Path,
    ) -> Result<()> {
        let over = Instant::now();
        let longest = BACKOFF + self.baseline.get().map_or(BACKOFF, |reference| 2 * reference.took);
        loop {
            let mut open = Vec::new();
            for namespace in namespaces {
                let agents = namespace.agents().await?;
                if !ScriptNamespace::is_settled(&agents) {
                    open.push(format!("{}: {}", namespace.name, described(&agents)));
                }
            }
            if open.is_empty() {
                return Ok(());
            }
            for operator in &mut *operators {
                if let Some(status) = operator.exit_status()? {
                    bail!("the operator ended: {status}; see {}", log.display());
                }
            }
            ensure!(over.elapsed() < longest, "{longest:?} after the faults: {}", open.join("\n  "));
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Waits for the operator to end, or kills it, and starts it again; also returns whether it ended as the scenario
    /// requires.
    async fn restart_operator(
        &self,
        ends: OperatorTermination,
        mut operator: OperatorProcess,
        number: u64,
        proxy: &FaultProxy,
        log: &Path,
    ) -> Result<(OperatorProcess, bool)> {
        if let OperatorTermination::Killed(after) = ends {
            sleep(Duration::from_millis(after)).await;
            operator.kill().await?;
            return Ok((self.operator(proxy, log, UID, None).await?, true));
        }
        // An operator that does not reach its write is killed: the script may have ended.
        let deadline = Instant::now() + Duration::from_secs(5);
        while number > 1 && operator.exit_status()?.is_none() && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
        let as_planned = operator.exit_status()?.is_some();
        operator.kill().await?;
        for attempt in 0..10_u64 {
            let drawn = proxy.faults.schedule.draw((number, attempt));
            let write = (drawn * 60.0) as u64 + 1;
            let side = ["before", "unacked", "after"][((drawn * 3000.0) as usize) % 3];
            // It may reach its write before it is ready.
            if let Ok(operator) = self.operator(proxy, log, UID, Some(&format!("{write}:{side}"))).await {
                return Ok((operator, as_planned));
            }
        }
        Ok((self.operator(proxy, log, UID, None).await?, as_planned))
    }

    async fn tear_down(&self, run: FaultRun) -> Result<()> {
        for namespace in &run.namespaces {
            namespace.remove().await?;
        }
        run.operator.stop().await
    }

    /// Starts an operator behind a proxy; `uid` is the identity with which it holds the lease.
    pub(crate) async fn operator(
        &self,
        proxy: &FaultProxy,
        log: &Path,
        uid: &str,
        crash_at: Option<&str>,
    ) -> Result<OperatorProcess> {
        self.operator_of(&self.args.program, proxy, log, uid, crash_at).await
    }

    /// Starts an operator with this binary.
    pub(crate) async fn operator_of(
        &self,
        program: &Path,
        proxy: &FaultProxy,
        log: &Path,
        uid: &str,
        crash_at: Option<&str>,
    ) -> Result<OperatorProcess> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": format!("http://{}", proxy.address)}}],
            "users": [{"name": "it", "user": {}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        let kubeconfig = self.args.state.join(format!("{uid}.kubeconfig"));
        std::fs::write(&kubeconfig, config.to_string()).with_context(|| format!("write {}", kubeconfig.display()))?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let probes: SocketAddr = free.context("find a port for the probes")?;
        let start = OperatorOptions {
            program,
            kubeconfig: &kubeconfig,
            log,
            probes,
            uid,
            arguments: &[],
            variables: &[("RECIF_CRASH_AT", crash_at.unwrap_or_default())],
        };
        proxy.faults.log.record_client_start();
        OperatorProcess::start(&start).await
    }
}
