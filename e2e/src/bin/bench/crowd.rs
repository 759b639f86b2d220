//! Measures the creation of many agents at once: the cost of the operator next to that of the API server alone.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use e2e::audit::{AuditEvent, OPERATOR};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    agents::AgentNamespace,
    bare,
    bench_env::{BenchEnv, names},
    peer,
    table::{BenchMeasurement, print_progress},
    template::ApplyTemplate,
};

/// Goal for the operator's CPU time for all agents, in seconds.
const CPU: f64 = 2.0;
/// Goal for the operator's time as a multiple of the bare loop's.
const FACTOR: f64 = 1.3;

/// Creates many agents. The same requests without the operator are timed first.
pub(crate) async fn created_at_once(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    let agents = env.many();
    let template = template(env).await?;
    let bare = bare_loop(env, &template, agents).await?;
    print_progress(&format!("the bare loop took {bare:.1?}"));
    let (peer_cpu, peer_memory) = peer::cost(env, &template, agents).await?;
    print_progress(&format!("the operator in Go took {peer_cpu:.2?} of CPU, and holds {peer_memory:.0} MB"));

    env.operator().await?;
    let crowd = env.shared_namespace().await?;
    crowd.clear().await?;
    env.settle().await?;
    let mark = env.audit.mark().await?;
    let before = env.cpu().await?;
    let started = Instant::now();
    tokio::try_join!(crowd.agents(names(agents)), crowd.running(agents))?;
    let running_after = started.elapsed();
    env.settle().await?;
    let used = env.cpu().await?.saturating_sub(before);
    let log = env.audit.since(mark).await?;
    let present_after = children_present(&log, &crowd.name)?;
    let requests = env.counts(mark).await?;

    let factor = present_after.as_secs_f64() / bare.as_secs_f64();
    let times = format!("{present_after:.1?} against {bare:.1?}; all Running after {running_after:.1?}");
    Ok(vec![
        BenchMeasurement::at_most(format!("{agents} agents at once: operator CPU"), CPU, used.as_secs_f64(), "s")
            .with_note(&format!(
                "{:.2} × an operator in Go that renders nothing; {requests}, of these {} events",
                used.as_secs_f64() / peer_cpu.as_secs_f64(),
                requests.events
            )),
        BenchMeasurement::at_most(format!("{agents} agents at once: children present"), FACTOR, factor, "× bare loop")
            .with_note(&times),
    ])
}

/// Records the requests that the operator sends for one agent, and stops the operator.
async fn template(env: &mut BenchEnv) -> Result<ApplyTemplate> {
    env.operator().await?;
    let example = env.single_scenario_namespace().await?;
    example.clear().await?;
    example.agent("example-agent", json!({})).await?;
    example.running(1).await?;
    env.settle().await?;
    let template = ApplyTemplate::of(&example, "example-agent").await?;
    example.clear().await?;
    env.stop_operator().await?;
    Ok(template)
}

/// Measures the time of the same requests without an operator, in another namespace.
async fn bare_loop(env: &BenchEnv, template: &ApplyTemplate, agents: usize) -> Result<Duration> {
    let agents_namespace = AgentNamespace::ensure(&env.client, "bare").await?;
    let took = bare::send(&agents_namespace, template, agents).await?;
    bare::remove(&agents_namespace, agents).await?;
    Ok(took)
}

/// Returns the time from the arrival of the first agent to the response to the last apply that created a child.
fn children_present(log: &[AuditEvent], namespace: &str) -> Result<Duration> {
    let here = || log.iter().filter(|request| request.namespace() == namespace);
    let first =
        here().filter(|request| request.verb == "create" && request.resource() == "agents").map(|it| it.received);
    let first = first.min().context("no agent was created")?;
    let made: Vec<&AuditEvent> =
        here().filter(|request| request.is_by(OPERATOR) && request.verb == "patch" && request.code() == 201).collect();
    let kinds: BTreeSet<String> = made.iter().map(|request| request.resource()).collect();
    ensure!(kinds.contains("deployments"), "the operator made no Deployment, only {kinds:?}");
    let last = made.iter().map(|request| request.answered).max().context("no child was made")?;
    Ok(Duration::try_from(last.duration_since(first)).unwrap_or_default())
}
