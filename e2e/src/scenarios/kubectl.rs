//! Tests kubectl, of the version that belongs to the cluster, on our objects and on Deployments: the verbs of a user's day. `hack/e2e
//! local` runs it on the API server in memory.

use std::{process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout},
    time::{Instant, timeout_at},
};

use crate::{
    kinds::{AGENT, DEPLOYMENT, TOOL},
    manifests::{agent, tool},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::ObjectExt as _,
    scenario::{Scenario, scenarios},
    watch::poll,
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    kubectl_applies_explains_describes_labels_and_deletes,
    kubectl_scales_waits_and_watches,
    kubectl_restarts_a_rollout_and_follows_logs,
    kubectl_reads_the_log_of_a_container_before_its_restart,
);

/// Longest wait for a line of a command that goes on.
const SOON: Duration = Duration::from_secs(60);
/// Image of our runtime.
const RUNNER: &str = "recif.local/runner:dev";

/// Runs kubectl in the namespace and returns its standard output.
async fn kubectl(ns: &Namespace, arguments: &[&str]) -> Result<String> {
    ns.env.kubectl(&[arguments, &["-n", &ns.name]].concat()).await
}

/// Runs kubectl in the namespace, which itself waits no longer than [`START_TIMEOUT`], and returns its standard output.
async fn kubectl_waits(ns: &Namespace, arguments: &[&str]) -> Result<String> {
    ns.env.kubectl_within(START_TIMEOUT + Duration::from_secs(10), &[arguments, &["-n", &ns.name]].concat()).await
}

/// Applies an object from standard input and returns what kubectl says of it.
async fn apply(ns: &Namespace, arguments: &[&str], object: &Value) -> Result<String> {
    let arguments = [&["apply", "-n", &ns.name, "-f", "-"][..], arguments].concat();
    ns.env.kubectl_with(&arguments, object.to_string()).await
}

/// Command that goes on, and its lines.
struct Follower {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Follower {
    fn start(ns: &Namespace, arguments: &[&str]) -> Result<Self> {
        let mut command = ns.env.kubectl_command();
        command.args(arguments).args(["-n", &ns.name]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().context("start kubectl")?;
        let lines = BufReader::new(process.stdout.take().context("no standard output")?).lines();
        Ok(Self { process, lines })
    }

    /// Waits for a line that fits.
    async fn line(&mut self, what: &str, fits: impl Fn(&str) -> bool) -> Result<String> {
        let mut seen = Vec::new();
        let deadline = Instant::now() + SOON;
        while let Ok(line) = timeout_at(deadline, self.lines.next_line()).await {
            match line? {
                Some(line) if fits(&line) => return Ok(line),
                Some(line) => seen.push(line),
                None => bail!("it ended without the line {what}: {seen:#?}"),
            }
        }
        bail!("no line {what} within {SOON:?}: {seen:#?}")
    }

    /// Waits for its end, and checks that it is a success.
    async fn ends(mut self) -> Result<()> {
        let deadline = Instant::now() + SOON;
        while timeout_at(deadline, self.lines.next_line()).await.context("it does not end")??.is_some() {}
        let status = timeout_at(deadline, self.process.wait()).await.context("it does not end")??;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

async fn kubectl_applies_explains_describes_labels_and_deletes(ns: Namespace) -> Result<()> {
    let shop = |prompt: &str| agent("shop", json!({"systemPrompt": prompt, "replicas": 0}));
    for (prompt, done) in [("first", "created"), ("first", "unchanged"), ("second", "configured")] {
        let said = apply(&ns, &[], &shop(prompt)).await?;
        ensure!(said == format!("agent.agents.recif.dev/shop {done}\n"), "instead of {done}: {said}");
    }
    ensure!(ns.get(AGENT, "shop").await?.text("/spec/systemPrompt") == "second", "the apply changed nothing");
    let clock = |text: &str| tool("clock", json!({ "description": text }));
    for text in ["first", "second"] {
        let said = apply(&ns, &["--server-side"], &clock(text)).await?;
        ensure!(said == "tool.agents.recif.dev/clock serverside-applied\n", "{said}");
    }
    let other = ["--server-side", "--field-manager", "other"];
    let refused = apply(&ns, &other, &clock("third")).await;
    ensure!(refused.is_err_and(|error| format!("{error:#}").contains("conflict")), "another manager took a field");
    apply(&ns, &["--server-side", "--field-manager", "other", "--force-conflicts"], &clock("third")).await?;
    ensure!(ns.get(TOOL, "clock").await?.text("/spec/description") == "third", "the forced apply changed nothing");

    let explained = kubectl(&ns, &["explain", "agent.spec.replicas"]).await?;
    ensure!(explained.contains("FIELD: replicas <integer>") && explained.contains("Number of Pods"), "{explained}");
    let described = kubectl(&ns, &["describe", "agent", "shop"]).await?;
    ensure!(described.contains("System Prompt:") && described.contains("second"), "{described}");
    let labelled = kubectl(&ns, &["label", "agent", "shop", "team=blue"]).await?;
    ensure!(labelled.trim() == "agent.agents.recif.dev/shop labeled", "{labelled}");
    let found = kubectl(&ns, &["get", "agents", "-l", "team=blue", "-o", "name"]).await?;
    ensure!(found == "agent.agents.recif.dev/shop\n", "{found}");

    let deleted = kubectl(&ns, &["delete", "agent/shop", "tool/clock"]).await?;
    ensure!(deleted.matches(" deleted").count() == 2, "{deleted}");
    ensure!(ns.find(AGENT, "shop").await?.is_none() && ns.find(TOOL, "clock").await?.is_none(), "they are there");
    Ok(())
}

async fn kubectl_scales_waits_and_watches(ns: Namespace) -> Result<()> {
    let mut watch = Follower::start(&ns, &["get", "agents", "-w"])?;
    ns.apply(&agent("grows", json!({"replicas": 0}))).await?;
    watch.line("of the columns", |line| line.starts_with("NAME ") && line.contains("PHASE")).await?;
    watch.line("of the stopped agent", |line| line.starts_with("grows ") && line.contains("Terminated")).await?;
    let scaled = kubectl(&ns, &["scale", "agent/grows", "--replicas=2"]).await?;
    ensure!(scaled.trim() == "agent.agents.recif.dev/grows scaled", "{scaled}");
    let ready = ["wait", "--for", "jsonpath={.status.replicas}=2", "agent/grows", "--timeout", "90s"];
    let waited = kubectl_waits(&ns, &ready).await?;
    ensure!(waited.trim() == "agent.agents.recif.dev/grows condition met", "{waited}");
    let waited = kubectl_waits(&ns, &["wait", "--for", "condition=Ready", "agent/grows", "--timeout", "90s"]).await?;
    ensure!(waited.trim() == "agent.agents.recif.dev/grows condition met", "{waited}");
    watch.line("of the running agent", |line| line.starts_with("grows ") && line.contains("Running")).await?;
    watch.process.kill().await.context("end the watch")?;
    // Of several objects kubectl shows no Events. An Event is written beside what it is about.
    let pods = kubectl(&ns, &["get", "pods", "-l", "app.kubernetes.io/name=grows", "-o", "name"]).await?;
    let pod = pods.lines().next().context("no Pod is there")?;
    poll(REPORT_TIMEOUT, "an Event that says that it has started", || async {
        let described = kubectl(&ns, &["describe", pod]).await?;
        Ok((described.contains("Events:") && described.contains("Started")).then_some(()))
    })
    .await
}

async fn kubectl_restarts_a_rollout_and_follows_logs(ns: Namespace) -> Result<()> {
    ns.start(&agent("talks", json!({}))).await?;
    let before = ns.pod_uids("talks").await?;
    let mut log = Follower::start(&ns, &["logs", "-f", "deployment/talks", "-c", "agent"])?;
    log.line("of its log", |line| line.contains("listening")).await?;
    let restarted = kubectl(&ns, &["rollout", "restart", "deployment/talks"]).await?;
    ensure!(restarted.trim() == "deployment.apps/talks restarted", "{restarted}");
    let done = kubectl_waits(&ns, &["rollout", "status", "deployment/talks", "--timeout", "90s"]).await?;
    ensure!(done.contains("successfully rolled out"), "{done}");
    let now = ns.pod_uids("talks").await?;
    ensure!(now.len() == 1 && now != before, "the Pods are {now:?}, and were {before:?}");
    // The log ends with its Pod.
    log.ends().await
}

/// Returns the log before the restart, if it names the variable that is wrong.
async fn previous_log(ns: &Namespace, workload: &str) -> Result<Option<String>> {
    let log = kubectl(ns, &["logs", workload, "-p"]).await?;
    Ok(Some(log).filter(|log| log.contains("CORAIL_STORAGE")))
}

async fn kubectl_reads_the_log_of_a_container_before_its_restart(ns: Namespace) -> Result<()> {
    let broken = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "broken"},
        "spec": {
            "selector": {"matchLabels": {"app": "broken"}},
            "template": {
                "metadata": {"labels": {"app": "broken"}},
                "spec": {
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "runner", "image": RUNNER, "imagePullPolicy": "IfNotPresent",
                        "env": [{"name": "CORAIL_STORAGE", "value": "nowhere"}],
                        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                    }],
                },
            },
        },
    });
    apply(&ns, &["--server-side"], &broken).await?;
    let previous = || previous_log(&ns, "deployment/broken");
    poll(START_TIMEOUT, "the log before the restart", previous).await?;
    ns.delete(DEPLOYMENT, "broken").await
}
