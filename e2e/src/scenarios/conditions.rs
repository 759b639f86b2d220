//! Tests conditions, the machine-readable contract: the rules of kstatus hold at every moment that a watch can observe.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{
    kinds::{AGENT, TOOL},
    manifests::{agent, tool},
    namespace::{Namespace, REPORT_TIMEOUT, START_TIMEOUT},
    object::{Object, ObjectExt as _},
    scenario::{Scenario, scenarios},
};

pub(super) const SCENARIOS: &[Scenario] = scenarios!(Parallel:
    conditions_follow_the_phase_at_every_moment,
    ready_is_never_true_of_a_spec_that_does_not_run_yet,
    a_tools_conditions_follow_its_phase_at_every_moment,
);

async fn conditions_follow_the_phase_at_every_moment(ns: Namespace) -> Result<()> {
    let recorder = ns.record(AGENT, "model").await?;
    ns.apply(&agent("model", json!({"tools": ["late"]}))).await?;
    ns.await_agent_not_ready("model", REPORT_TIMEOUT, "Resolving", &["late"]).await?;
    ns.provide(&tool("late", json!({}))).await?;
    ns.await_agent_running("model").await?;
    ns.edit(AGENT, "model", json!({"spec": {"storage": "postgresql"}})).await?;
    ns.await_agent_not_ready("model", REPORT_TIMEOUT, "Failed", &["MissingDatabaseUrl"]).await?;
    ns.edit(AGENT, "model", json!({"spec": {"storage": null, "replicas": 0}})).await?;
    let stopped = |it: &Object| it.phase() == "Terminated" && it.is_current();
    let last = ns.until(AGENT, "model", START_TIMEOUT, "is Terminated", stopped).await?;
    let seen = recorder.up_to(&last).await?;
    seen.iter().try_for_each(consistent)
}

async fn a_tools_conditions_follow_its_phase_at_every_moment(ns: Namespace) -> Result<()> {
    let recorder = ns.record(TOOL, "model").await?;
    ns.provide(&tool("model", json!({}))).await?;
    ns.edit(TOOL, "model", json!({"spec": {"type": "cli"}})).await?;
    ns.until(TOOL, "model", REPORT_TIMEOUT, "is in Error", |it| it.phase() == "Error" && it.is_current()).await?;
    ns.edit(TOOL, "model", json!({"spec": {"binary": "kubectl"}})).await?;
    let last = ns
        .until(TOOL, "model", REPORT_TIMEOUT, "is Available", |it| it.phase() == "Available" && it.is_current())
        .await?;
    let seen = recorder.up_to(&last).await?;
    seen.iter().try_for_each(consistent)
}

/// Checks the conditions of one observation against the table of phases and conditions.
fn consistent(it: &Object) -> Result<()> {
    let [ready, reconciling, stalled] = ["Ready", "Reconciling", "Stalled"].map(|type_| it.condition(type_));
    let text = [ready, reconciling, stalled].map(|condition| condition.status);
    let expected: &[[&str; 3]] = match it.phase() {
        "Running" => &[["True", "False", "False"], ["False", "True", "False"]],
        "Available" | "Terminated" => &[["True", "False", "False"]],
        "Failed" | "Error" => &[["False", "False", "True"]],
        _ => &[["False", "True", "False"]],
    };
    ensure!(expected.contains(&text), "Ready, Reconciling, Stalled are {text:?}: {}", it.describe());
    let observed = it.number("/status/observedGeneration");
    for type_ in ["Ready", "Reconciling", "Stalled", "Available"] {
        let condition = it.condition(type_);
        ensure!(!condition.status.is_empty(), "no condition {type_}: {}", it.describe());
        ensure!(!condition.reason.is_empty(), "{type_} has no reason: {}", it.describe());
        ensure!(
            condition.observed_generation == observed,
            "{type_} speaks of generation {}: {}",
            condition.observed_generation,
            it.describe()
        );
    }
    Ok(())
}

async fn ready_is_never_true_of_a_spec_that_does_not_run_yet(ns: Namespace) -> Result<()> {
    let first = ns.start(&agent("edited", json!({"systemPrompt": "0"}))).await?;
    let recorder = ns.record(AGENT, "edited").await?;
    let mut last = first.clone();
    for round in 1..=3 {
        let edited = ns.edit(AGENT, "edited", json!({"spec": {"systemPrompt": round.to_string()}})).await?;
        // Criterion of `kubectl wait --for=condition=Ready`: True, and of no older generation.
        let accepted = |it: &Object| {
            let ready = it.condition("Ready");
            ready.is_true() && ready.observed_generation >= edited.generation()
        };
        last = ns.until(AGENT, "edited", START_TIMEOUT, "is accepted by kubectl wait", accepted).await?;
        let prompts = ns.chat_with_pods("/prompt").await?;
        let is_new = prompts.iter().all(|prompt| prompt.contains(&round.to_string()));
        ensure!(is_new, "accepted while its prompts are still {prompts:?}");
    }
    let seen = recorder.up_to(&last).await?;
    let observed = |it: &Object| it.number("/status/observedGeneration");
    for (before, after) in seen.iter().zip(seen.iter().skip(1)) {
        ensure!(
            observed(before) == observed(after) || !after.condition("Ready").is_true(),
            "Ready with the first look at a new spec: {}",
            after.describe()
        );
        ensure!(observed(after) <= after.generation(), "ahead of the spec: {}", after.describe());
    }
    Ok(())
}
