//! `recif trace` and `recif why` say the truth.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Scenario, scenarios};
use crate::{
    manifests::agent,
    namespace::{Namespace, SAID},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Shared:
    why_says_what_a_running_a_waiting_and_a_failed_agent_are,
    trace_shows_every_phase_in_order,
);

async fn why_says_what_a_running_a_waiting_and_a_failed_agent_are(ns: Namespace) -> Result<()> {
    ns.apply(&agent("runs", json!({}))).await?;
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    ns.apply(&agent("fails", json!({"storage": "postgresql"}))).await?;
    ns.says("waits", SAID, "Resolving", &["Tool/nowhere"]).await?;
    ns.says("fails", SAID, "Failed", &["MissingDatabaseUrl"]).await?;
    ns.running("runs").await?;
    for (name, words) in [
        ("runs", &["Running"][..]),
        ("waits", &["Resolving", "Tool/nowhere"]),
        ("fails", &["Failed", "MissingDatabaseUrl"]),
    ] {
        let said = ns.env.recif(&["why", &format!("agent/{name}"), "-n", &ns.name]).await?;
        ensure!(words.iter().all(|word| said.contains(word)), "of {name}, instead of {words:?}: {said}");
    }
    Ok(())
}

async fn trace_shows_every_phase_in_order(ns: Namespace) -> Result<()> {
    ns.apply(&agent("waits", json!({"tools": ["nowhere"]}))).await?;
    ns.start(&agent("runs", json!({}))).await?;
    let shown = ns.env.recif(&["trace", "agent/runs", "-n", &ns.name]).await?;
    let mut rest = shown.as_str();
    for phase in ["Pending", "Resolving", "Rendering", "Deploying", "Running"] {
        let Some(at) = rest.find(phase) else { anyhow::bail!("no {phase} in its place: {shown}") };
        rest = &rest[at..];
    }
    let shown = ns.env.recif(&["trace", "agent/waits", "-n", &ns.name]).await?;
    ensure!(shown.contains("Resolving") && shown.contains("nowhere"), "of the one that waits: {shown}");
    ensure!(!shown.contains("Rendering"), "of the one that waits: {shown}");
    Ok(())
}
