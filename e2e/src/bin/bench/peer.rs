//! Runs an operator in Go (`hack/bench/peer`) that sends the same requests for each agent, to compare the cost of the same
//! work.

use std::{fs::File, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use e2e::local_operator::process;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{
    agents::AgentNamespace,
    bare,
    bench_env::{BenchEnv, BenchOptions, names},
    template::ApplyTemplate,
};

const READY_WITHIN: Duration = Duration::from_secs(60);

/// Measures the other operator from the creation of this many agents until all are Running: its CPU time, and its resident
/// memory in MB at that moment. The operator of this repository does not run meanwhile.
pub(crate) async fn cost(env: &BenchEnv, template: &ApplyTemplate, agents: usize) -> Result<(Duration, f64)> {
    let namespace = AgentNamespace::ensure(&env.client, "peer").await?;
    let mut peer = start(&env.options, template).await?;
    let pid = peer.id().context("the peer ended at once")?;
    let before = process::cpu(pid)?;
    namespace.agents(names(agents)).await?;
    namespace.running(agents).await?;
    let used = process::cpu(pid)?.saturating_sub(before);
    let (resident, _) = process::memory(pid)?;
    peer.kill().await.context("end the peer")?;
    bare::remove(&namespace, agents).await?;
    Ok((used, resident))
}

async fn start(options: &BenchOptions, template: &ApplyTemplate) -> Result<Child> {
    let path = options.state.join("peer.json");
    let file = File::create(&path).with_context(|| format!("write {}", path.display()))?;
    let statuses: Vec<_> = bare::statuses(template).collect();
    let children: Vec<_> =
        template.children_of(&template.agent, "OWNER-UID")?.into_iter().map(|(_, body)| body).collect();
    serde_json::to_writer(file, &json!({"agent": template.agent, "statuses": statuses, "children": children}))?;
    let mut command = Command::new(&options.peer);
    command.arg(&path).env("KUBECONFIG", &options.kubeconfig);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut peer = command.spawn().with_context(|| format!("start {}", options.peer.display()))?;
    let mut text = BufReader::new(peer.stdout.take().context("the peer has no output")?).lines();
    let ready = timeout(READY_WITHIN, text.next_line()).await.context("the peer does not become ready")??;
    ensure!(ready.as_deref() == Some("ready"), "the peer ended");
    Ok(peer)
}
