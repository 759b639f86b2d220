//! Tests the key that holds an Agent's system prompt, and the description and protocol that a Tool takes from the Agent it asks.

use serde_json::{Value, json};

use super::{
    running::MINUTE,
    scenarios::{message, phase},
};
use crate::fake::{Operator, Sim, agent, agent_id, child_id, id, object, secret};

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": data})
}

fn content_hash(sim: &Sim, agent: &str) -> Value {
    sim.store().at(&agent_id(agent), "/status/contentHash")
}

#[tokio::test(start_paused = true)]
async fn the_key_of_the_system_prompt_is_waited_for_and_its_change_replaces_the_pods() {
    for (kind, source) in [("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")] {
        let sim = Sim::new();
        let prompts = id(kind, "prompts");
        let with = |data| if kind == "Secret" { secret(data) } else { config_map(data) };
        let from = json!({source: {"name": "prompts", "key": "seller"}});
        sim.store().create(&agent_id("a"), agent(json!({"systemPromptFrom": from})));
        let mut operator = Operator::start(&sim);
        operator.run(MINUTE).await;
        let name = kind.to_lowercase();
        assert_eq!((phase(&sim), message(&sim)), ("Resolving".into(), format!("{name} \"prompts\" not found")));
        sim.store().create(&prompts, with(json!({"other": "MQ=="})));
        operator.run(MINUTE).await;
        assert_eq!(message(&sim), format!("{name} \"prompts\" has no key \"seller\""));
        sim.store().edit(&prompts, |body| body["data"]["seller"] = json!("MQ=="));
        operator.run(MINUTE).await;
        assert_eq!(phase(&sim), "Running");
        let variables = sim.store().at(&child_id("Deployment"), "/spec/template/spec/containers/0/env");
        let prompt = json!({"name": "CORAIL_SYSTEM_PROMPT", "valueFrom": from});
        assert!(variables.as_array().unwrap().contains(&prompt), "{variables}");

        let before = content_hash(&sim, "a");
        sim.take_requests();
        sim.store().edit(&prompts, |body| body["data"]["other"] = json!("Mg=="));
        operator.run(MINUTE).await;
        assert_eq!((content_hash(&sim, "a"), sim.take_writes()), (before.clone(), vec![]), "another key of {kind}");
        sim.store().edit(&prompts, |body| body["data"]["seller"] = json!("Mg=="));
        operator.run(MINUTE).await;
        assert_eq!(phase(&sim), "Running");
        assert_ne!(content_hash(&sim, "a"), before, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_a_description_has_that_of_the_agent_it_asks() {
    let sim = Sim::new();
    sim.store().create(&agent_id("seller"), agent(json!({"description": "Sells kettles."})));
    let ask = |description: &str| {
        let spec = json!({"name": "ask", "type": "agent", "agentRef": {"name": "seller"}, "description": description});
        object("Tool", spec)
    };
    sim.store().create(&id("Tool", "plain"), ask(""));
    sim.store().create(&id("Tool", "own"), ask("Asks for a price."));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["plain"]})));
    sim.store().create(&agent_id("b"), agent(json!({"tools": ["own"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let tools = || sim.store().at(&child_id("ConfigMap"), "/data/CORAIL_TOOLS").to_string();
    assert!(tools().contains("Sells kettles."), "{}", tools());
    let before = [content_hash(&sim, "a"), content_hash(&sim, "b")];
    sim.store().edit(&agent_id("seller"), |body| body["spec"]["description"] = json!("Sells pots."));
    operator.run(MINUTE).await;
    assert!(tools().contains("Sells pots."), "{}", tools());
    assert_ne!(content_hash(&sim, "a"), before[0]);
    assert_eq!(content_hash(&sim, "b"), before[1], "its Tool has a description of its own");
}

#[tokio::test(start_paused = true)]
async fn users_of_a_tool_are_told_the_protocol_of_the_agent_it_asks() {
    let sim = Sim::new();
    sim.store().create(&agent_id("seller"), agent(json!({})));
    let ask = json!({"name": "ask", "type": "agent", "agentRef": {"name": "seller"}, "description": "Asks."});
    sim.store().create(&id("Tool", "ask"), object("Tool", ask));
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["ask"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let tools = || sim.store().at(&child_id("ConfigMap"), "/data/CORAIL_TOOLS").to_string();
    assert!(!tools().contains("agentProtocol"), "{}", tools());
    let before = content_hash(&sim, "a");
    sim.store().edit(&agent_id("seller"), |body| body["spec"]["protocol"] = json!("a2a"));
    operator.run(MINUTE).await;
    assert!(tools().contains(r#"\"agentProtocol\":\"a2a\""#), "{}", tools());
    assert_ne!(content_hash(&sim, "a"), before);
    sim.store().edit(&agent_id("seller"), |body| body["spec"]["protocol"] = json!("chat"));
    operator.run(MINUTE).await;
    assert_eq!(content_hash(&sim, "a"), before, "chat is what an agent without a protocol speaks");
}
