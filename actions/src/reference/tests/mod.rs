//! Tests the life of a Tool over the simulated cluster.

mod chain;
mod other_namespaces;

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    discovery::McpToolDefinition,
    fake::{Cascade, Operator, Sim, id, object, tool, tool_id},
};

const MINUTE: Duration = Duration::from_secs(60);

fn status(sim: &Sim, pointer: &str) -> Value {
    sim.store().at(&tool_id("weather"), &format!("/status{pointer}"))
}

fn conditions(sim: &Sim) -> Vec<(String, String, String, String)> {
    let list = status(sim, "/conditions");
    let text = |found: &Value, field: &str| found[field].as_str().unwrap_or_default().to_owned();
    let conditions = list
        .as_array()
        .into_iter()
        .flatten()
        .map(|found| (text(found, "type"), text(found, "status"), text(found, "reason"), text(found, "message")));
    conditions.collect()
}

fn expected_condition(type_: &str, status: &str, reason: &str, message: &str) -> (String, String, String, String) {
    (type_.into(), status.into(), reason.into(), message.into())
}

#[tokio::test(start_paused = true)]
async fn a_valid_tool_is_available_after_two_writes_and_then_costs_nothing() {
    let sim = Sim::new();
    sim.store().create(&tool_id("weather"), tool("http://weather"));
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(sim.take_writes(), ["Status Tool/weather"; 2]);
    assert_eq!(status(&sim, "/phase"), json!("Available"));
    let all = conditions(&sim);
    for (type_, holds) in [("Ready", "True"), ("Reconciling", "False"), ("Stalled", "False"), ("Available", "True")] {
        assert!(all.contains(&expected_condition(type_, holds, "Available", "")), "{type_}: {all:?}");
    }
    Operator::start(&sim).run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_tool_says_what_it_lacks_until_it_is_edited() {
    let cases = [
        (json!({"type": "http"}), "HTTP tool requires an endpoint"),
        (json!({"type": "cli"}), "CLI tool requires a binary"),
    ];
    for (fields, message) in cases {
        let sim = Sim::new();
        let mut body = tool("http://weather");
        body["spec"] = json!({"name": "weather"});
        for (key, value) in fields.as_object().into_iter().flatten() {
            body["spec"][key] = value.clone();
        }
        sim.store().create(&tool_id("weather"), body);
        let mut operator = Operator::start(&sim);
        operator.run(MINUTE).await;
        assert_eq!(status(&sim, "/phase"), json!("Error"));
        let all = conditions(&sim);
        for (type_, holds) in [("Ready", "False"), ("Stalled", "True"), ("Available", "False")] {
            assert!(all.contains(&expected_condition(type_, holds, "InvalidSpec", message)), "{type_}: {all:?}");
        }
        sim.take_requests();
        operator.run(60 * MINUTE).await;
        assert_eq!(sim.take_requests(), [], "looking writes nothing");
        sim.store().edit(&tool_id("weather"), |body| body["spec"] = tool("http://weather")["spec"].clone());
        operator.run(MINUTE).await;
        assert_eq!(status(&sim, "/phase"), json!("Available"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_has_no_finalizer_and_goes_without_a_write() {
    let sim = Sim::new();
    sim.store().create(&tool_id("weather"), tool("http://weather"));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    sim.take_requests();
    sim.store().delete(&tool_id("weather"), Cascade::Foreground);
    operator.run(MINUTE).await;
    assert_eq!((sim.take_requests(), sim.store().get(&tool_id("weather"))), (vec![], None));
}

#[tokio::test(start_paused = true)]
async fn a_tool_on_an_agent_that_speaks_plain_http_says_so_until_the_agent_speaks_another_protocol() {
    let sim = Sim::new();
    sim.store().create(&id("Agent", "b"), object("Agent", json!({"name": "B", "framework": "custom"})));
    let ask = json!({"name": "weather", "type": "agent", "agentRef": {"name": "b"}});
    sim.store().create(&tool_id("weather"), object("Tool", ask));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Available"));
    let speak = |protocol: &str| sim.store().edit(&id("Agent", "b"), |body| body["spec"]["protocol"] = json!(protocol));
    speak("http");
    operator.run(MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Error"));
    let message = "agent \"b\" speaks plain http: only chat and a2a agents can be tools";
    assert!(conditions(&sim).contains(&expected_condition("Ready", "False", "PlainHttp", message)));
    speak("a2a");
    operator.run(10 * MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Available"));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_calls_what_only_gateways_may_call_says_so_until_it_is_opened() {
    for (kind, spec, fields) in [
        ("Agent", json!({"name": "B", "framework": "corail"}), json!({"type": "agent", "agentRef": {"name": "b"}})),
        (
            "MCPServer",
            json!({"transportType": "http", "deployment": {"image": "registry/http:1", "port": 80}}),
            json!({"type": "mcp", "mcpServerRef": {"kind": "MCPServer", "name": "b", "toolName": "read"}}),
        ),
    ] {
        let sim = Sim::new();
        let read = McpToolDefinition { name: "read".into(), input_schema: json!({}), ..McpToolDefinition::default() };
        sim.serve("http://b.team.svc.cluster.local:80/mcp", crate::fake::lists_tools(&[read]));
        sim.store().create(&id(kind, "b"), object(kind, spec));
        let mut body = object("Tool", json!({"name": "weather"}));
        for (key, value) in fields.as_object().into_iter().flatten() {
            body["spec"][key] = value.clone();
        }
        sim.store().create(&tool_id("weather"), body);
        let mut operator = Operator::start(&sim);
        operator.run(MINUTE).await;
        assert_eq!(status(&sim, "/phase"), json!("Available"), "{kind}");
        sim.store().edit(&id(kind, "b"), |body| body["spec"]["proxy"] = json!({"requireIdentity": true}));
        operator.run(MINUTE).await;
        assert_eq!(status(&sim, "/phase"), json!("Error"), "{kind}");
        let message =
            format!("{} \"b\" answers only requests through the gateway (proxy.requireIdentity)", kind.to_lowercase());
        assert!(
            conditions(&sim).contains(&expected_condition("Ready", "False", "IdentityRequired", &message)),
            "{kind}"
        );
        sim.store().edit(&id(kind, "b"), |body| drop(body["spec"].as_object_mut().unwrap().remove("proxy")));
        operator.run(10 * MINUTE).await;
        assert_eq!(status(&sim, "/phase"), json!("Available"), "{kind}");
    }
}
