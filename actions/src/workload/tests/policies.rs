//! Tests the NetworkPolicy of a workload: created with it, removed with the flag or the sidecar, and never beside one of another
//! owner.

use std::time::Duration;

use crds::Agent;
use serde_json::{Value, json};

use super::{budgets::LASTING, running::running, scenarios::phase};
use crate::{
    fake::{Cascade, Operator, Sim, agent, agent_id, id, settings},
    kind::ControlledKind,
    render::RenderSettings,
};

const MINUTE: Duration = Duration::from_secs(60);

fn operator(sim: &Sim, network_policies: bool) -> Operator {
    Operator::with(sim, Agent::registry().unwrap(), RenderSettings { network_policies, ..settings() })
}

fn policy(sim: &Sim) -> Option<Value> {
    sim.store().get(&id("NetworkPolicy", "a-sidecar")).map(|found| found.body["spec"].clone())
}

fn foreign(labels: Value) -> Value {
    json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {},
        "spec": { "podSelector": { "matchLabels": labels }, "policyTypes": ["Ingress"] } })
}

async fn edit(sim: &Sim, operator: &mut Operator, field: &str, value: Value) {
    sim.store().edit(&agent_id("a"), |body| body["spec"][field] = value);
    operator.run(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_workload_is_ten_writes_and_one_of_them_its_policy() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = operator(&sim, true);
    operator.run(MINUTE).await;
    let writes = sim.take_writes();
    assert_eq!(writes.len(), 10, "{writes:?}");
    let at = |what: &str| writes.iter().position(|write| write == what).unwrap();
    assert!(at("Apply NetworkPolicy/a-sidecar") < at("Apply Deployment/a"), "no Pod is open for a moment: {writes:?}");
    operator.run(MINUTE * 30).await;
    Operator::start(&sim).run(MINUTE * 30).await;
    assert_eq!(sim.take_requests(), [], "what is in order costs nothing, with the flag or without");
}

#[tokio::test(start_paused = true)]
async fn it_comes_and_goes_with_the_next_change() {
    let (sim, _) = running().await;
    let mut on = operator(&sim, true);
    on.run(MINUTE * 30).await;
    assert_eq!((sim.take_requests(), policy(&sim)), (vec![], None), "an upgrade alone");
    edit(&sim, &mut on, "image", json!("registry/two:1")).await;
    assert!(policy(&sim).is_some());
    edit(&sim, &mut on, "port", json!(9000)).await;
    assert_eq!(policy(&sim).unwrap()["ingress"][0]["ports"][0]["endPort"], 8999);
    sim.store().delete(&id("NetworkPolicy", "a-sidecar"), Cascade::Background);
    on.run(MINUTE).await;
    assert!(policy(&sim).is_some(), "it is put back");
    drop(on);
    let mut off = operator(&sim, false);
    sim.take_requests();
    off.run(MINUTE * 30).await;
    assert_eq!(sim.take_requests(), []);
    assert!(policy(&sim).is_some());
    edit(&sim, &mut off, "image", json!("registry/three:1")).await;
    assert_eq!(policy(&sim), None);
}

#[tokio::test(start_paused = true)]
async fn there_is_none_beside_a_foreign_policy() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = operator(&sim, true);
    operator.run(MINUTE).await;
    sim.store().create(&id("NetworkPolicy", "other"), foreign(json!({ "recif.dev/agent": "b" })));
    operator.run(MINUTE * 20).await;
    assert!(policy(&sim).is_some(), "that one is about others");
    sim.store().create(&id("NetworkPolicy", "deny"), foreign(json!({})));
    operator.run(MINUTE * 20).await;
    assert_eq!(policy(&sim), None, "ours would let in what that one keeps out");
    assert_eq!(sim.store().at(&agent_id("a"), "/status/phase"), json!("Running"));
    sim.take_requests();
    operator.run(MINUTE * 20).await;
    assert_eq!(sim.take_requests(), []);
    sim.store().delete(&id("NetworkPolicy", "deny"), Cascade::Background);
    edit(&sim, &mut operator, "image", json!("registry/two:1")).await;
    assert!(policy(&sim).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_policy_ends_ours_in_every_phase_that_lasts() {
    for (expected, keep) in LASTING {
        let sim = Sim::new();
        sim.store().create(&agent_id("a"), agent(json!({})));
        let mut operator = operator(&sim, true);
        operator.run(MINUTE).await;
        keep(&sim);
        operator.run(MINUTE).await;
        assert_eq!((phase(&sim).as_str(), policy(&sim).is_some()), (expected, true));
        sim.store().create(&id("NetworkPolicy", "deny"), foreign(json!({})));
        operator.run(MINUTE).await;
        assert_eq!((phase(&sim).as_str(), policy(&sim)), (expected, None), "ours lets in what that one keeps out");
        sim.take_requests();
        operator.run(MINUTE * 5).await;
        let again = sim.take_writes().into_iter().filter(|write| write.contains("NetworkPolicy")).count();
        assert_eq!((phase(&sim).as_str(), again), (expected, 0));
    }
}
