//! Counts the requests for the start of one agent.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::{agents::AgentNamespace, bench_env::BenchEnv, counts::RequestCounts, table::BenchMeasurement};

/// Phases after Pending up to Running, each of which is one status write.
const PHASES: usize = 4;
const EVENTS: usize = 3;
/// Status patches per second by another client.
const RATE: u32 = 50;

/// Counts the requests from creation to Running, without and with a podTemplate.
pub(crate) async fn one_agent(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    env.operator().await?;
    let namespace = env.single_scenario_namespace().await?;
    namespace.clear().await?;
    let plain = started(env, &namespace, "plain", json!({})).await?;
    let overlay = json!({"podTemplate": {"metadata": {"labels": {"team": "bench"}}}});
    let overlaid = started(env, &namespace, "overlaid", overlay).await?;
    namespace.clear().await?;
    Ok(vec![request_row("requests of one agent", &plain, 0), request_row("requests with podTemplate", &overlaid, 1)])
}

fn request_row(what: &str, counts: &RequestCounts, dry_runs: usize) -> BenchMeasurement {
    let RequestCounts { children, events, .. } = *counts;
    let goal = format!(
        "0 reads, {} writes + ≤ {EVENTS} events{}",
        1 + PHASES + children,
        if dry_runs > 0 { ", 1 dry-run" } else { "" },
    );
    let ok = counts.reads == 0
        && (counts.metadata, counts.status, counts.other_writes, counts.dry_runs) == (1, PHASES, 0, dry_runs)
        && events <= EVENTS
        && children >= 4;
    let row = BenchMeasurement::new(what, goal, counts.to_string(), ok);
    if ok { row } else { row.with_note(&counts.breakdown()) }
}

/// Counts the same requests while another client patches the status all the time.
pub(crate) async fn beside_a_stranger(env: &mut BenchEnv) -> Result<Vec<BenchMeasurement>> {
    env.operator().await?;
    let namespace = env.single_scenario_namespace().await?;
    namespace.clear().await?;
    let alone = started(env, &namespace, "alone", json!({})).await?;

    let mark = env.audit.mark().await?;
    namespace.agent("beset", json!({})).await?;
    let patches = tokio::select! {
        running = namespace.running(2) => running.and(Ok(0))?,
        result = patch_as_stranger(&namespace, "beset", None) => result?,
    };
    // An agent is Running after a few patches; the other client continues for a while, so that late requests are counted,
    // too.
    let more = patch_as_stranger(&namespace, "beset", Some(2 * RATE)).await?;
    env.settle().await?;
    let beset = env.counts(mark).await?;
    namespace.running(2).await?;
    namespace.clear().await?;
    let ok = beset.total() <= alone.total();
    let row = BenchMeasurement::new(
        format!("{RATE} foreign status patches/s during the start"),
        format!("Running, ≤ {} requests", alone.total()),
        format!("Running, {} requests", beset.total()),
        ok,
    );
    let row = if ok { row } else { row.with_note(&beset.breakdown()) };
    Ok(vec![row.with_note(&format!("{} patches after Running", patches + more))])
}

/// Creates one agent and returns the operator's requests until it is Running and the operator is idle.
async fn started(env: &BenchEnv, namespace: &AgentNamespace, name: &str, fields: Value) -> Result<RequestCounts> {
    env.settle().await?;
    let already = namespace.len().await?;
    let mark = env.audit.mark().await?;
    namespace.agent(name, fields).await?;
    namespace.running(already + 1).await?;
    env.settle().await?;
    env.counts(mark).await
}

/// Patches a status field that the operator does not own; returns the number of patches.
async fn patch_as_stranger(namespace: &AgentNamespace, name: &str, times: Option<u32>) -> Result<u32> {
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut round = 0_u32;
    while times.is_none_or(|times| round < times) {
        ticks.tick().await;
        let at = format!("2026-01-01T{:02}:{:02}:{:02}Z", round / 3600 % 24, round / 60 % 60, round % 60);
        let patch = Patch::Merge(json!({"status": {"lastInvocationAt": at}}));
        namespace.agents.patch_status(name, &PatchParams::default(), &patch).await.context("patch as a stranger")?;
        round += 1;
    }
    Ok(round)
}
