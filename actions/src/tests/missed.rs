//! Tests missed watch events: everything is rechecked in the end, without a request.

use std::time::Duration;

use serde_json::json;

use super::{MINUTE, status};
use crate::fake::{Cascade, Health, Operator, Sim, agent, agent_id, child_id, id, secret};

/// Longest recheck period.
const RECHECKED: Duration = Duration::from_secs(721);

/// Starts a cluster with a running Agent whose operator ignores its watches from then on.
async fn ignoring_watches() -> (Sim, Operator) {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Running"));
    operator.ignores_watches = true;
    sim.take_requests();
    (sim, operator)
}

#[tokio::test(start_paused = true)]
async fn a_running_agent_is_looked_at_in_turn_from_the_cache() {
    let (sim, mut operator) = ignoring_watches().await;
    operator.run(RECHECKED * 4).await;
    assert_eq!(sim.take_requests(), []);
    sim.store().delete(&child_id("ConfigMap"), Cascade::Background);
    operator.run(RECHECKED).await;
    assert_eq!(sim.take_writes(), ["Apply ConfigMap/a-config"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_agent_is_looked_at_in_turn() {
    let (sim, mut operator) = ignoring_watches().await;
    operator.ignores_watches = false;
    sim.store().set_health(Health::Bad(None));
    operator.run(6 * MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Failed"));
    operator.ignores_watches = true;
    sim.store().set_health(Health::Good);
    operator.run(RECHECKED).await;
    assert_eq!(status(&sim, "/phase"), json!("Running"));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_agent_is_drained_and_let_go_in_turn() {
    let (sim, mut operator) = ignoring_watches().await;
    sim.store().delete(&agent_id("a"), Cascade::Background);
    operator.run(RECHECKED * 2).await;
    assert_eq!(sim.store().get(&agent_id("a")), None);
}

#[tokio::test(start_paused = true)]
async fn a_reference_is_looked_at_in_turn() {
    let sim = Sim::new();
    let spec = json!({"type": "openai", "credentialsRef": {"name": "keys"}, "credentialKeys": ["KEY"]});
    sim.store().create(&id("PluginConfig", "pc"), crate::fake::object("PluginConfig", spec));
    sim.store().create(&id("Secret", "keys"), secret(json!({"KEY": "MQ=="})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let phase = || sim.store().at(&id("PluginConfig", "pc"), "/status/phase");
    assert_eq!(phase(), json!("Available"));
    operator.ignores_watches = true;
    sim.store().delete(&id("Secret", "keys"), Cascade::Background);
    operator.run(RECHECKED).await;
    assert_eq!(phase(), json!("Resolving"));
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_looked_at_in_turn_in_each_phase() {
    let sim = Sim::new();
    let env = json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "KEY"}}}]);
    sim.store().create(&agent_id("a"), agent(json!({"env": env})));
    let spec = json!({"type": "openai", "credentialsRef": {"name": "keys"}, "credentialKeys": ["KEY"]});
    sim.store().create(&id("PluginConfig", "pc"), crate::fake::object("PluginConfig", spec));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Resolving"));
    operator.ignores_watches = true;
    sim.store().set_health(Health::Bad(None));
    sim.store().create(&id("Secret", "keys"), secret(json!({"KEY": "MQ=="})));
    operator.run(RECHECKED + MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Deploying"));
    assert_eq!(sim.store().at(&id("PluginConfig", "pc"), "/status/phase"), json!("Available"));
    sim.store().set_health(Health::Good);
    operator.run(RECHECKED).await;
    assert_eq!(status(&sim, "/phase"), json!("Running"));
    sim.store().grace = 5 * MINUTE;
    sim.store().delete(&agent_id("a"), Cascade::Background);
    operator.run(RECHECKED * 3).await;
    assert_eq!(sim.store().get(&agent_id("a")), None);
}
