//! Runs one scenario: the operator behind the fault proxy, the script in many namespaces, and the oracles at the end.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{
    fault::{CallRecord, FaultLayer, FaultProxy, FaultRule},
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
use serde_json::{Value, json};
use tokio::{
    sync::OnceCell,
    time::{Instant, sleep},
};

use crate::{
    Args,
    counts::{check_request_rate, describe_difference, is_change, writes},
    invariants::InvariantChecker,
    masked,
    scenarios::{FaultScenario, OperatorTermination},
    script::{ScriptNamespace, described},
};

/// Identity of the operator, always the same, so that it holds its lease again after it was killed.
const UID: &str = "faults";
/// Time without a write after which a namespace counts as settled.
const QUIET: Duration = Duration::from_secs(10);
/// Longest wait for the settled state after the faults: the longest back-off, plus twice the time of the undisturbed run.
const BACKOFF: Duration = Duration::from_secs(60);

/// Result of an undisturbed run, which is the baseline.
pub(crate) struct BaselineRun {
    state: BTreeMap<String, Value>,
    creations: BTreeMap<String, usize>,
    /// Largest number of writes of the operator in one namespace.
    writes: usize,
    took: Duration,
    memory: f64,
}

/// State at the end of a run, before the oracles judge it.
struct FaultRun {
    namespaces: Vec<ScriptNamespace>,
    invariants: InvariantChecker,
    proxy: FaultProxy,
    operator: OperatorProcess,
    /// Time from the end of the faults until everything was settled.
    settled_after: Duration,
    log: PathBuf,
}

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
                for place in self.namespaces_of(scenario.name, seeds) {
                    let _ = place.remove().await;
                }
                return Err(error);
            }
        };
        let judged = self.check_oracles(scenario, reference, &mut run).await;
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
        let place = &run.namespaces[0];
        let state = masked::masked_state(place).await?;
        for other in &run.namespaces[1..] {
            let found = masked::difference(&state, &masked::masked_state(other).await?);
            ensure!(found.is_none(), "two undisturbed runs differ: {}", found.unwrap_or_default());
        }
        let writes = run.namespaces.iter().map(|place| writes(&run.proxy, &place.name)).max().unwrap_or_default();
        let (_, memory) = process::memory(run.operator.pid)?;
        let reference =
            BaselineRun { state, creations: run.invariants.creation_counts(&place.name), writes, took, memory };
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
        let places = self.namespaces_of(name, count);
        try_join_all(places.iter().map(ScriptNamespace::make)).await?;
        Ok(places)
    }

    fn namespaces_of(&self, name: &str, count: usize) -> Vec<ScriptNamespace> {
        let prefix = name.to_lowercase();
        let place = |at| ScriptNamespace { client: self.client.clone(), name: format!("{prefix}-{at:02}") };
        (0..count).map(place).collect()
    }

    /// Waits until the namespaces are equal to those of the undisturbed run.
    pub(crate) async fn await_equal_to_baseline(&self, places: &[ScriptNamespace]) -> Result<()> {
        let reference = self.baseline().await?;
        let begun = Instant::now();
        for place in places {
            while let Some(difference) = masked::difference(&reference.state, &masked::masked_state(place).await?) {
                ensure!(begun.elapsed() < BACKOFF, "O1: {}: {BACKOFF:?} after the faults: {difference}", place.name);
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
        let judge = InvariantChecker::start(&self.client).await?;
        let places = self.create_namespaces(scenario.name, count).await?;
        if !at_start {
            proxy.faults.schedule.set(scenario.rules);
        }
        let plan = proxy.faults.schedule.clone();
        let window = scenario.window.map(|length| {
            tokio::spawn(async move {
                sleep(length).await;
                plan.set(&[]);
                Instant::now()
            })
        });
        let scripts = places.clone().into_iter().map(|place| tokio::spawn(async move { place.play().await }));
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
                try_join_all(places.iter().map(|place| place.patch("Agent", "plain", prompt.clone()))).await?;
            }
            tries += 1;
            let as_planned;
            (operator, as_planned) = self.restart_operator(scenario.termination, operator, tries, &proxy, &log).await?;
            ended += u64::from(as_planned);
        }
        if edited {
            let prompt = json!({"spec": {"systemPrompt": null}});
            try_join_all(places.iter().map(|place| place.patch("Agent", "plain", prompt.clone()))).await?;
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
        self.settle(&places, &mut [&mut operator], &log).await?;
        let settled_after = over.elapsed();
        Ok(FaultRun { namespaces: places, invariants: judge, proxy, operator, settled_after, log })
    }

    /// Waits until all agents are in the state in which the script leaves them.
    pub(crate) async fn settle(
        &self,
        places: &[ScriptNamespace],
        operators: &mut [&mut OperatorProcess],
        log: &Path,
    ) -> Result<()> {
        let over = Instant::now();
        let patience = BACKOFF + self.baseline.get().map_or(BACKOFF, |reference| 2 * reference.took);
        loop {
            let mut open = Vec::new();
            for place in places {
                let agents = place.agents().await?;
                if !ScriptNamespace::is_settled(&agents) {
                    open.push(format!("{}: {}", place.name, described(&agents)));
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
            ensure!(over.elapsed() < patience, "{patience:?} after the faults: {}", open.join("\n  "));
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

    async fn check_oracles(
        &self,
        scenario: &FaultScenario,
        reference: &BaselineRun,
        run: &mut FaultRun,
    ) -> Result<String> {
        // Changes during a lost watch are seen when the watch is back, which takes up to its longest back-off.
        self.await_equal_to_baseline(&run.namespaces).await?;
        // The writes of the last step may not have come back over the watch yet.
        sleep(Duration::from_secs(2)).await;
        let mark = run.proxy.faults.log.now();
        sleep(QUIET).await;
        let patience = BACKOFF + 2 * reference.took;
        let settled = run.settled_after;
        ensure!(settled < patience, "O3: as it should be only {settled:?} after the faults, {patience:?} is the bound");
        let written: Vec<_> = run.proxy.faults.log.since(mark);
        // The namespaces of the previous scenario may still be terminating.
        let is_ours = |entry: &&CallRecord| run.namespaces.iter().any(|place| place.name == entry.call.namespace);
        let written = written.iter().filter(is_ours).filter(|entry| is_change(entry));
        let written: Vec<_> = written.map(|entry| entry.call.to_string()).collect();
        ensure!(written.is_empty(), "O4: within {QUIET:?} of rest it wrote {written:?}");
        let unguarded = run.proxy.faults.log.since(Duration::ZERO);
        let unguarded = unguarded.iter().find(|entry| is_change(entry) && !entry.has_precondition);
        if let Some(entry) = unguarded {
            bail!("O5: neither uid nor version: {}", entry.call);
        }
        for place in &run.namespaces {
            let made = run.invariants.creation_counts(&place.name);
            ensure!(
                made == reference.creations,
                "O2: {}: {}",
                place.name,
                describe_difference(&reference.creations, &made)
            );
            let found = writes(&run.proxy, &place.name);
            let most = reference.writes * (1 + scenario.writes as usize);
            ensure!(found <= most, "O7: {}: {found} writes, undisturbed {}", place.name, reference.writes);
        }
        for rule in scenario.rules {
            let met = run.proxy.faults.log.hit_count(rule.fault);
            ensure!(met >= run.namespaces.len().min(4), "only {met} calls met {:?}, which shows nothing", rule.fault);
        }
        let violations = run.invariants.violations(&run.namespaces);
        ensure!(violations.is_empty(), "O5, O6: {violations:?}");
        ensure!(run.operator.exit_status()?.is_none(), "O8: the operator ended; see {}", run.log.display());
        let log = std::fs::read_to_string(&run.log).unwrap_or_default();
        ensure!(!log.contains("panicked"), "O8: it panicked; see {}", run.log.display());
        let (_, memory) = process::memory(run.operator.pid)?;
        let more = memory / reference.memory;
        ensure!(more <= 1.5, "O8: {memory:.0} MB, undisturbed {:.0}", reference.memory);
        check_request_rate(&run.proxy)?;
        Ok(format!("settled after {:.1} s, {memory:.0} MB ({more:.2} × undisturbed)", run.settled_after.as_secs_f32()))
    }

    async fn tear_down(&self, run: FaultRun) -> Result<()> {
        for place in &run.namespaces {
            place.remove().await?;
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
        OperatorProcess::start(&start).await
    }
}
