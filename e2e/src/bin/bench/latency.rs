//! Measures the time from a change to its effect by the timestamps of the API server's audit log.

use anyhow::{Context as _, Result, ensure};
use e2e::audit::{AuditEvent, OPERATOR};
use serde_json::json;

use crate::{
    bench_env::{BenchEnv, names},
    table::BenchMeasurement,
};

/// Number of agents, created one after the other.
const AGENTS: usize = 30;
/// Goal for the median time from the stored agent to its first stored child, in milliseconds.
const GOAL: f64 = 10.0;

/// Measures the time from the response to the creation of an agent to the response to the first apply of a child.
pub(crate) async fn first_child(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    env.operator().await?;
    let agents_namespace = env.single_scenario_namespace().await?;
    agents_namespace.clear().await?;
    env.settle().await?;
    let mark = env.audit.mark().await?;
    for (count, name) in names(AGENTS).enumerate() {
        agents_namespace.agent(&name, json!({})).await?;
        agents_namespace.running(count + 1).await?;
    }
    let log = env.audit.since(mark).await?;
    let mut spans =
        names(AGENTS).map(|name| ChildLatency::of(&log, &agents_namespace.name, &name)).collect::<Result<Vec<_>>>()?;
    agents_namespace.clear().await?;
    spans.sort_by(|a, b| a.total.total_cmp(&b.total));
    let (median, slow) = (&spans[spans.len() / 2], &spans[spans.len() * 9 / 10]);
    let note = format!(
        "p90 {:.2}; {} requests before it, of which the API server had {:.2} ms",
        slow.total, median.requests, median.in_server
    );
    Ok(vec![BenchMeasurement::at_most("created → first child stored, p50", GOAL, median.total, "ms").with_note(&note)])
}

/// Latency of one agent, in milliseconds.
struct ChildLatency {
    total: f64,
    /// Part of it in which the API server was handling one of the operator's requests for this agent.
    in_server: f64,
    /// Number of these requests, including the first child's apply.
    requests: usize,
}

impl ChildLatency {
    fn of(log: &[AuditEvent], namespace: &str, agent: &str) -> Result<Self> {
        let config = format!("{agent}-config");
        let about = |request: &&AuditEvent| {
            request.namespace() == namespace
                && (request.name() == agent || request.name() == config)
                && !request.is_upkeep()
        };
        let created =
            log.iter().filter(about).find(|request| request.verb == "create" && request.resource() == "agents");
        let created = created.with_context(|| format!("the creation of {agent} is not in the audit log"))?.answered;
        let ours = || log.iter().filter(about).filter(|request| request.is_by(OPERATOR));
        let child = ours().filter(|request| request.is_write() && !request.resource().starts_with("agents"));
        let child = child.map(|request| request.answered).min().with_context(|| format!("{agent} has no child"))?;
        ensure!(child > created, "{agent} had a child before it was created");
        let before: Vec<&AuditEvent> = ours().filter(|request| request.answered <= child).collect();
        let in_server = before.iter().map(|request| milliseconds(request.received, request.answered)).sum();
        Ok(Self { total: milliseconds(created, child), in_server, requests: before.len() })
    }
}

fn milliseconds(from: jiff::Timestamp, to: jiff::Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1000.0
}
