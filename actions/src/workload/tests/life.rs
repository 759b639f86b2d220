//! Tests the life of an Agent from creation to Running and back, without faults: the number of writes, and which they are.

use std::time::Duration;

use serde_json::{Value, json};

use super::scenarios::phase;
use crate::fake::{Cascade, Operator, Sim, agent, agent_id, child_id, tool, tool_id};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn from_create_to_running_it_is_four_statuses_the_finalizer_and_one_write_per_child() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({"databaseUrl": "postgresql://u:p@db/x"})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let requests: Vec<_> = sim.take_requests().iter().map(ToString::to_string).collect();
    assert_eq!(
        requests,
        [
            "Status Agent/a",
            "Status Agent/a",
            "Apply ServiceAccount/a",
            "Apply ConfigMap/a-config",
            "Apply Secret/a-config",
            "Metadata Agent/a",
            "Status Agent/a",
            "Apply Service/a",
            "Apply Deployment/a",
            "Status Agent/a",
        ]
    );
    assert_eq!(sim.store().at(&agent_id("a"), "/status/phase"), json!("Running"));
    let conditions = sim.store().at(&agent_id("a"), "/status/conditions");
    let undated = |found: &&Value| found["lastTransitionTime"] == json!(meta::UNSET_TIME.to_string());
    assert_eq!(conditions.as_array().and_then(|all| all.iter().find(undated)), None, "the schema's time is no time");
    let mut operator = Operator::start(&sim);
    operator.run(20 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "a restart");
}

#[tokio::test(start_paused = true)]
async fn in_a_namespace_that_is_deleted_it_goes_at_once() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.take_requests();
    sim.store().grace = 20 * MINUTE;
    sim.store().delete_namespace(crate::fake::NS);
    operator.run(MINUTE).await;
    assert_eq!(sim.take_writes(), ["Status Agent/a", "Metadata Agent/a"], "it waits for no Pod");
    assert_eq!(sim.store().get(&agent_id("a")), None);
}

/// The namespace controller deletes one kind after the other, and may come to the Agents last.
#[tokio::test(start_paused = true)]
async fn in_a_namespace_that_is_deleted_its_children_are_not_made_again() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({})));
    sim.store().create(&agent_id("b"), agent(json!({"tools": ["never"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.take_requests();
    sim.store().not_yet_deleted = ["Agent"].into();
    sim.store().delete_namespace(crate::fake::NS);
    operator.run(10 * MINUTE).await;
    assert_eq!(sim.store().get(&child_id("Deployment")), None);
    let requests: Vec<_> = sim.take_requests().iter().map(ToString::to_string).collect();
    assert_eq!(requests, ["Status Agent/b"], "the one that runs needs no write, the one that waits says for what");
    let conditions = sim.store().at(&agent_id("b"), "/status/conditions");
    let reports = |found: &Value| found["type"] == "Ready" && found["message"] == "the namespace is being deleted";
    assert!(conditions.as_array().is_some_and(|all| all.iter().any(reports)), "{conditions:#}");

    sim.store().not_yet_deleted.clear();
    sim.store().delete_namespace(crate::fake::NS);
    operator.run(MINUTE).await;
    assert_eq!(sim.take_writes(), ["Status Agent/a", "Metadata Agent/a"], "the other one has no finalizer yet");
    for name in ["a", "b"] {
        assert_eq!(sim.store().get(&agent_id(name)), None);
    }
}

#[tokio::test(start_paused = true)]
async fn deleting_it_deletes_the_deployment_and_lets_it_go() {
    let sim = Sim::new();
    sim.store().create(&tool_id("weather"), tool("http://weather"));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["weather"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(sim.store().at(&agent_id("a"), "/status/phase"), json!("Running"));
    sim.take_requests();
    sim.store().delete(&agent_id("a"), Cascade::Background);
    operator.run(MINUTE).await;
    assert_eq!(sim.take_writes(), ["Status Agent/a", "Delete Deployment/a", "Metadata Agent/a"]);
    assert_eq!(sim.store().get(&agent_id("a")), None);
    assert_eq!(sim.store().get(&child_id("Service")), None);
}

#[tokio::test(start_paused = true)]
async fn a_condition_goes_with_the_field_that_it_is_about() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({"knowledgeBases": ["docs"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let says = |sim: &Sim| {
        let conditions = sim.store().at(&agent_id("a"), "/status/conditions");
        conditions.as_array().into_iter().flatten().any(|found| found["type"] == "KnowledgeBasesConfigured")
    };
    assert_eq!((phase(&sim), says(&sim)), ("Running".into(), true));
    sim.store().edit(&agent_id("a"), |body| body["spec"]["knowledgeBases"] = json!([]));
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), says(&sim)), ("Running".into(), false));
}
