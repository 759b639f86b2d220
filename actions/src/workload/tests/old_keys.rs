//! A container of an old Pod that restarts during a rollout still finds the keys it was made with.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fake::{Operator, Sim, agent, agent_id, child_id, id, object};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_key_that_is_no_longer_rendered_goes_after_the_rollout() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({"systemPrompt": "Be brief."})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.take_requests();

    let prompts = |requests: &[crate::fake::Request]| -> Vec<Value> {
        let applied = requests.iter().filter(|request| request.to_string() == "Apply ConfigMap/a-config");
        applied.map(|request| request.body["data"]["CORAIL_SYSTEM_PROMPT"].clone()).collect()
    };
    sim.store().edit(&agent_id("a"), |body| {
        body["spec"].as_object_mut().expect("a spec").remove("systemPrompt");
        body["spec"]["strategy"] = json!("react");
    });
    operator.run(MINUTE).await;
    let requests = sim.take_requests();
    assert_eq!(prompts(&requests), [json!("Be brief."), Value::Null], "kept for the rollout, then gone");
    let rolled = requests.iter().position(|request| request.to_string() == "Apply Deployment/a");
    let last = requests.iter().rposition(|request| request.to_string() == "Apply ConfigMap/a-config");
    assert!(rolled < last, "{requests:?}");
    assert_eq!(sim.store().at(&child_id("ConfigMap"), "/data/CORAIL_SYSTEM_PROMPT"), Value::Null);
    assert_eq!(sim.store().at(&agent_id("a"), "/status/phase"), json!("Running"));

    operator.run(20 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "afterwards");
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_takes_no_key_away_reads_no_value() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({"systemPrompt": "Be brief."})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.take_requests();
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("Be long."));
    operator.run(MINUTE).await;
    let requests: Vec<_> = sim.take_requests().iter().map(ToString::to_string).collect();
    assert!(!requests.iter().any(|request| request.starts_with("Look")), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn old_keys_stay_only_as_far_as_the_object_can_hold_them() {
    let sim = Sim::new();
    sim.store().create(&id("PluginConfig", "p"), object("PluginConfig", json!({"type": "stub"})));
    let spec = |prompts: Value| {
        let model = json!({"provider": "stub", "model": "echo", "pluginConfigRef": {"name": "p"}});
        json!({"prompts": prompts, "modelSpec": model})
    };
    let prompt = |name: &str, size: usize| json!({"prompt": {"name": name, "content": "x".repeat(size)}});
    sim.store().create(&id("Flow", "f"), object("Flow", spec(json!([prompt("large", 600 << 10), prompt("small", 9)]))));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.take_requests();

    sim.store().edit(&id("Flow", "f"), |body| body["spec"] = spec(json!([prompt("renamed", 600 << 10)])));
    operator.run(MINUTE).await;
    let requests = sim.take_requests();
    let applied = requests.iter().filter(|request| request.to_string() == "Apply ConfigMap/f-prompts");
    let keys: Vec<Vec<&String>> = applied.map(|it| it.body["data"].as_object().unwrap().keys().collect()).collect();
    assert_eq!(keys, [vec!["renamed.prompt", "small.prompt"], vec!["renamed.prompt"]]);
    assert_eq!(sim.store().at(&id("Flow", "f"), "/status/phase"), json!("Running"));
}
