//! Checks that the operator sends no requests when there is nothing to reconcile.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    agents::TOOL,
    bench_env::{BenchEnv, names},
    counts::RequestCounts,
    table::BenchMeasurement,
};

/// Upper bound for the time in which the operator would react to a change by another client.
const REACTION: Duration = Duration::from_secs(15);

/// Checks that without changes the operator sends only watches and lease updates.
pub(crate) async fn steady(env: &mut BenchEnv, agents: usize) -> Result<Vec<BenchMeasurement>> {
    env.ensure_agents(agents).await?;
    let mark = env.audit.mark().await?;
    let before = env.cpu().await?;
    sleep(env.window()).await;
    let counts = env.counts(mark).await?;
    let used = env.cpu().await?.saturating_sub(before);
    let what = format!("steady state, {agents} agents, {} s", env.window().as_secs());
    Ok(vec![zero_row(what, "0 reads, 0 writes", &counts, counts.total()).with_note(&format!("CPU {used:?}"))])
}

/// Restarts the operator, which finds no drift.
pub(crate) async fn restart(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    let agents = env.many();
    env.ensure_agents(agents).await?;
    env.stop_operator().await?;
    let mark = env.audit.mark().await?;
    let ready_after = env.operator().await?.ready_after;
    sleep(REACTION).await;
    let used = env.cpu().await?;
    env.settle().await?;
    let counts = env.counts(mark).await?;
    Ok(vec![
        zero_row(format!("restart, {agents} agents: writes"), "0 writes", &counts, counts.writes()),
        BenchMeasurement::at_most(format!("restart, {agents} agents: ready"), 3.0, ready_after.as_secs_f64(), "s")
            .with_note(&format!("CPU {used:?} in {REACTION:?}")),
    ])
}

/// Changes an annotation, which no reconcile depends on, on a Tool that all agents use.
pub(crate) async fn shared_tool(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    let agents = env.many();
    let crowd = env.ensure_agents(agents).await?;
    let mark = env.audit.mark().await?;
    let note = Patch::Merge(json!({"metadata": {"annotations": {"example.com/note": format!("{mark:?}")}}}));
    crowd.tools.patch(TOOL, &PatchParams::default(), &note).await.context("annotate the tool")?;
    sleep(REACTION).await;
    let counts = env.counts(mark).await?;
    Ok(vec![zero_row(format!("annotation on a Tool of {agents} agents"), "0 writes", &counts, counts.writes())])
}

/// Patches the status of an agent and annotates its children as another client.
pub(crate) async fn foreign_changes(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    let crowd = env.ensure_agents(1).await?;
    let name = names(1).next().context("one name")?;
    let params = PatchParams::default();

    let mark = env.audit.mark().await?;
    let status = Patch::Merge(json!({"status": {"lastInvocationAt": "2026-01-01T00:00:00Z"}}));
    crowd.agents.patch_status(&name, &params, &status).await.context("patch the status")?;
    sleep(REACTION).await;
    let on_status = env.counts(mark).await?;

    let mark = env.audit.mark().await?;
    let note = Patch::Merge(json!({"metadata": {"annotations": {"example.com/note": "seen"}}}));
    let deployments: Api<Deployment> = Api::namespaced(env.client.clone(), &crowd.name);
    deployments.patch(&name, &params, &note).await.context("annotate the Deployment")?;
    let config_maps: Api<ConfigMap> = Api::namespaced(env.client.clone(), &crowd.name);
    config_maps.patch(&format!("{name}-config"), &params, &note).await.context("annotate the ConfigMap")?;
    sleep(REACTION).await;
    let on_children = env.counts(mark).await?;
    Ok(vec![
        zero_row("status changed by a stranger", "0 requests", &on_status, on_status.total()),
        zero_row("foreign annotation on children", "0 requests", &on_children, on_children.total()),
    ])
}

fn zero_row(what: impl Into<String>, goal: &str, counts: &RequestCounts, unwanted: usize) -> BenchMeasurement {
    let row = BenchMeasurement::new(what, goal, counts.to_string(), unwanted == 0);
    if unwanted == 0 { row } else { row.with_note(&counts.breakdown()) }
}
