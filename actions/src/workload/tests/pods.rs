//! Tests the Pods and children of an Agent while it changes.

use std::time::Duration;

use serde_json::json;

use super::{
    running::running,
    scenarios::{lose, phase},
};
use crate::fake::{Cascade, Health, agent_id, child_id, id, secret, tool_id};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn after_an_edit_it_runs_when_the_new_pods_do_and_not_before() {
    let (sim, mut operator) = running().await;
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
    operator.run(SECOND).await;
    assert_eq!(phase(&sim), "Deploying", "old Pods say nothing about the new template");
    operator.run(10 * SECOND).await;
    assert_eq!(phase(&sim), "Running");
}

#[tokio::test(start_paused = true)]
async fn what_pods_need_to_start_comes_back_while_they_start() {
    for kind in ["ServiceAccount", "ConfigMap", "Secret"] {
        let (sim, mut operator) = running().await;
        sim.store().set_health(Health::Bad(None));
        sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
        operator.run(10 * SECOND).await;
        assert_eq!(phase(&sim), "Deploying");
        lose(&mut sim.store(), kind);
        operator.run(2 * SECOND).await;
        assert!(sim.store().get(&child_id(kind)).is_some(), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_made_is_never_removed() {
    let (sim, mut operator) = running().await;
    lose(&mut sim.store(), "Secret");
    sim.store().create(&child_id("Secret"), secret(json!({"THEIRS": "MQ=="})));
    sim.store().edit(&agent_id("a"), |body| drop(body["spec"].as_object_mut().unwrap().remove("databaseUrl")));
    let uid = sim.store().at(&agent_id("a"), "/metadata/uid");
    let owner = json!({"apiVersion": "agents.recif.dev/v1", "kind": "Agent", "name": "a", "uid": uid});
    let notes = json!({"apiVersion": "v1", "metadata": {"ownerReferences": [owner]}, "data": {"a": "b"}});
    sim.store().create(&id("ConfigMap", "notes"), notes);
    operator.run(20 * MINUTE).await;
    assert_eq!(phase(&sim), "Running");
    assert_eq!(sim.store().at(&child_id("Secret"), "/data"), json!({"THEIRS": "MQ=="}));
    assert!(sim.store().get(&id("ConfigMap", "notes")).is_some(), "it was never applied by us");
}

#[tokio::test(start_paused = true)]
async fn available_follows_the_pods_also_while_it_waits_for_a_reference() {
    let (sim, mut operator) = running().await;
    sim.store().delete(&tool_id("weather"), Cascade::Background);
    operator.run(MINUTE).await;
    for (health, holds) in [(Health::Good, "True"), (Health::Bad(None), "False"), (Health::Good, "True")] {
        sim.store().set_health(health);
        operator.run(10 * SECOND).await;
        let conditions = sim.store().at(&agent_id("a"), "/status/conditions");
        let found = conditions.as_array().unwrap().iter().find(|found| found["type"] == "Available").unwrap().clone();
        assert_eq!((phase(&sim), found["status"].clone()), ("Resolving".into(), json!(holds)));
    }
}
