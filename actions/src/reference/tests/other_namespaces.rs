//! Tests Tools that ask Agents of other namespaces, over the simulated cluster.

use serde_json::{Value, json};

use super::{
    MINUTE,
    chain::{message, phase},
};
use crate::fake::{ObjectId, Operator, Sim, agent, agent_id, id, object, tool_id};

/// Returns the id of an object in another namespace than that of all tests.
fn in_shop(kind: &'static str, name: &str) -> ObjectId {
    ObjectId { namespace: "shop".to_owned(), ..id(kind, name) }
}

fn asks(namespace: &str, name: &str) -> Value {
    let asked = json!({"namespace": namespace, "name": name});
    object("Tool", json!({"name": "ask", "type": "agent", "agentRef": asked}))
}

/// Lets the Agent admit these namespaces, and then enqueues the Tool: the simulation enqueues only objects of one namespace, and the
/// operator's index across namespaces has its own tests.
async fn admit(sim: &Sim, operator: &mut Operator, asked: &ObjectId, allowed: Value) {
    let from = allowed["from"].clone();
    sim.store().edit(asked, |body| body["spec"]["allowedNamespaces"] = allowed);
    operator.run(MINUTE).await;
    sim.store().edit(&tool_id("ask"), |body| body["metadata"]["labels"]["look"] = from);
    operator.run(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_another_namespace_is_asked_while_it_admits_those_who_ask() {
    let sim = Sim::new();
    let (asked, ask, boss) = (in_shop("Agent", "seller"), tool_id("ask"), agent_id("a"));
    sim.store().create(&asked, agent(json!({"description": "Sells kettles.", "protocol": "a2a"})));
    sim.store().create(&ask, asks("shop", "seller"));
    sim.store().create(&boss, agent(json!({"tools": ["ask"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let refusal =
        r#"agent "shop/seller" may not be used from namespace "team": let its spec.allowedNamespaces allow it"#;
    assert_eq!((phase(&sim, &ask), message(&sim, &ask)), ("Resolving".to_owned(), refusal.to_owned()));
    assert_eq!(message(&sim, &boss), format!("{refusal} (referenced by tool \"ask\")"));
    admit(&sim, &mut operator, &asked, json!({"from": "All"})).await;
    assert_eq!(phase(&sim, &ask), "Available", "{}", message(&sim, &ask));
    assert_eq!(phase(&sim, &boss), "Running", "{}", message(&sim, &boss));
    let tools = sim.store().at(&id("ConfigMap", "a-config"), "/data/CORAIL_TOOLS").to_string();
    for text in ["http://seller.shop.svc.cluster.local:8000", "Sells kettles.", r#"\"agentProtocol\":\"a2a\""#] {
        assert!(tools.contains(text), "{text}: {tools}");
    }
    admit(&sim, &mut operator, &asked, json!({"from": "Same"})).await;
    assert_eq!(message(&sim, &ask), refusal);
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_another_namespace_that_speaks_plain_http_is_named_with_it() {
    let sim = Sim::new();
    let (asked, ask) = (in_shop("Agent", "seller"), tool_id("ask"));
    sim.store().create(&asked, agent(json!({"protocol": "http"})));
    sim.store().create(&ask, asks("shop", "seller"));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let refused = message(&sim, &ask);
    assert!(refused.contains("may not be used from namespace"), "it tells nothing of itself: {refused}");
    admit(&sim, &mut operator, &asked, json!({"from": "All"})).await;
    let expected = r#"agent "shop/seller" speaks plain http: only chat and a2a agents can be tools"#;
    assert_eq!((phase(&sim, &ask), message(&sim, &ask)), ("Error".to_owned(), expected.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn the_namespace_of_the_tool_may_be_written_out() {
    let sim = Sim::new();
    sim.store().create(&agent_id("seller"), agent(json!({})));
    sim.store().create(&tool_id("ask"), asks("team", "seller"));
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(phase(&sim, &tool_id("ask")), "Available", "{}", message(&sim, &tool_id("ask")));
}

#[tokio::test(start_paused = true)]
async fn agents_of_two_namespaces_that_ask_each_other_name_the_cycle() {
    let sim = Sim::new();
    let all = json!({"from": "All"});
    let (here, there) = (agent_id("a"), in_shop("Agent", "b"));
    sim.store().create(&here, agent(json!({"tools": ["ask"], "allowedNamespaces": all})));
    sim.store().create(&tool_id("ask"), asks("shop", "b"));
    sim.store().create(&there, agent(json!({"tools": ["back"], "allowedNamespaces": all})));
    sim.store().create(&in_shop("Tool", "back"), asks("team", "a"));
    Operator::start(&sim).run(MINUTE).await;
    for (member, cycle) in [
        (&here, "Agent/a → Tool/ask → Agent/shop/b → Tool/shop/back → Agent/a"),
        (&tool_id("ask"), "Tool/ask → Agent/shop/b → Tool/shop/back → Agent/a → Tool/ask"),
        (&there, "Agent/b → Tool/back → Agent/team/a → Tool/team/ask → Agent/b"),
        (&in_shop("Tool", "back"), "Tool/back → Agent/team/a → Tool/team/ask → Agent/b → Tool/back"),
    ] {
        assert_eq!(message(&sim, member), format!("cycle: {cycle}"));
        assert_eq!(sim.store().at(member, "/status/conditions/0/reason"), json!("ReferenceCycle"), "{member}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_an_agent_does_not_admit_is_on_no_cycle() {
    let sim = Sim::new();
    let back = in_shop("Tool", "back");
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["ask"]})));
    sim.store().create(&tool_id("ask"), asks("shop", "b"));
    sim.store().create(&in_shop("Agent", "b"), agent(json!({"tools": ["back"], "allowedNamespaces": {"from": "All"}})));
    sim.store().create(&back, asks("team", "a"));
    Operator::start(&sim).run(MINUTE).await;
    let refusal = r#"agent "team/a" may not be used from namespace "shop""#;
    assert!(message(&sim, &back).contains(refusal), "{}", message(&sim, &back));
    for member in [agent_id("a"), tool_id("ask")] {
        let said = message(&sim, &member);
        assert!(!said.contains("cycle"), "{said}");
    }
}
