//! Tests that the public keys of the gateways are rendered with a template that changes for another reason, and never alone.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fake::{Operator, Sim, agent, id, object};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the value of a variable in a container of the Deployment `a`.
fn variable(sim: &Sim, container: &str, name: &str) -> Value {
    let template = sim.store().at(&id("Deployment", "a"), "/spec/template/spec");
    let lists = [&template["initContainers"], &template["containers"]];
    let mut containers = lists.into_iter().flat_map(|list| list.as_array().cloned().unwrap_or_default());
    let container = containers.find(|found| found["name"] == container).unwrap();
    let env = container["env"].as_array().cloned().unwrap_or_default();
    env.into_iter().find(|found| found["name"] == name).map_or(Value::Null, |found| found["value"].clone())
}

fn keys(sim: &Sim) -> Value {
    variable(sim, "proxy", "RECIF_CALLER_KEYS")
}

fn template(sim: &Sim) -> Value {
    sim.store().at(&id("Deployment", "a"), "/spec/template")
}

async fn edit(sim: &Sim, operator: &mut Operator, image: &str) {
    sim.store().edit(&id("Agent", "a"), |body| body["spec"]["image"] = json!(image));
    operator.run(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn keys_come_with_the_next_template_and_a_rotation_rolls_nothing() {
    let sim = Sim::new();
    sim.store().create(&id("Agent", "a"), agent(json!({})));
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(keys(&sim), Value::Null, "an operator of before");
    let old = template(&sim);
    sim.take_requests();

    sim.rotate("one,two");
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE * 30).await;
    assert_eq!(sim.take_requests(), [], "an upgrade alone");
    sim.store().edit(&id("Agent", "a"), |body| body["spec"]["expose"] = json!({ "anonymousPaths": ["/a"] }));
    operator.run(MINUTE).await;
    assert_eq!(template(&sim)["spec"], old["spec"], "what does not change the template brings nothing new");
    edit(&sim, &mut operator, "registry/two:1").await;
    assert_eq!(keys(&sim), "one,two");
    assert_eq!(variable(&sim, "proxy", "RECIF_KIND"), "Agent");
    assert_eq!(variable(&sim, "agent", "RECIF_SIDECAR"), "true");
    let hook = |template: &Value| template["spec"]["initContainers"][0]["lifecycle"]["preStop"].clone();
    assert_eq!(hook(&old)["httpGet"]["path"], "/_recif/lame-duck");
    assert_eq!(hook(&template(&sim)), json!({ "exec": { "command": ["/recif-proxy", "lame-duck"] } }));

    let with_keys = template(&sim);
    sim.take_requests();
    sim.rotate("two,three");
    operator.run(MINUTE * 30).await;
    Operator::start(&sim).run(MINUTE * 30).await;
    assert_eq!(sim.take_requests(), [], "a rotation");
    assert_eq!(template(&sim), with_keys);
    let mut operator = Operator::start(&sim);
    edit(&sim, &mut operator, "registry/three:1").await;
    assert_eq!(keys(&sim), "two,three");
    sim.store().edit(&id("Agent", "a"), |body| {
        body["spec"]["env"] = json!([{ "name": "RECIF_SIDECAR", "value": "mine" }]);
    });
    operator.run(MINUTE).await;
    assert_eq!(variable(&sim, "agent", "RECIF_SIDECAR"), "mine");
}

#[tokio::test(start_paused = true)]
async fn a_new_workload_has_them_at_once_and_without_a_sidecar_never() {
    let sim = Sim::new();
    sim.rotate("one,two");
    sim.store().create(&id("Agent", "a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(keys(&sim), "one,two");
    assert_eq!(variable(&sim, "proxy", "RECIF_REQUIRE_IDENTITY"), Value::Null);
    sim.store().edit(&id("Agent", "a"), |body| body["spec"]["proxy"] = json!({ "requireIdentity": true }));
    operator.run(MINUTE).await;
    assert_eq!(variable(&sim, "proxy", "RECIF_REQUIRE_IDENTITY"), "true");
    sim.store().edit(&id("Agent", "a"), |body| body["spec"]["proxy"] = json!({ "enabled": false }));
    operator.run(MINUTE).await;
    assert_eq!(variable(&sim, "agent", "RECIF_SIDECAR"), Value::Null);
    assert_eq!(sim.store().at(&id("Agent", "a"), "/status/callerKeys"), Value::Null);
    sim.store().create(
        &id("MCPServer", "m"),
        object(
            "MCPServer",
            json!({ "transportType": "http",
        "deployment": { "image": "registry/http:1", "port": 80, "replicas": 1 } }),
        ),
    );
    operator.run(MINUTE).await;
    let template = sim.store().at(&id("Deployment", "m"), "/spec/template").to_string();
    assert!(template.contains("RECIF_CALLER_KEYS") && !template.contains("RECIF_SIDECAR"), "it is no runner of ours");
}

#[tokio::test(start_paused = true)]
async fn pods_that_know_no_key_are_told_of_until_they_are_rolled_out() {
    let sim = Sim::new();
    sim.rotate("one,two");
    sim.store().create(&id("Agent", "a"), agent(json!({})));
    Operator::start(&sim).run(MINUTE).await;
    let ready = |sim: &Sim| {
        let conditions = sim.store().at(&id("Agent", "a"), "/status/conditions");
        let found =
            conditions.as_array().into_iter().flatten().find(|found| found["type"] == "Ready").cloned().unwrap();
        found["reason"].as_str().unwrap_or_default().to_owned()
    };
    sim.take_requests();
    sim.rotate("two,three");
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(sim.take_requests(), [], "one rotation");
    sim.rotate("three,four");
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE * 30).await;
    assert_eq!(sim.take_writes(), ["Status Agent/a"], "it is said once");
    assert_eq!(ready(&sim), "UnknownKeys");
    assert_eq!(sim.store().at(&id("Agent", "a"), "/status/phase"), "Running");
    sim.store().edit(&id("Agent", "a"), |body| {
        body["metadata"]["annotations"] = json!({ crds::ROLLOUT_AT: "2026-01-01T00:00:00Z" });
    });
    operator.run(MINUTE * 2).await;
    assert_eq!((ready(&sim).as_str(), keys(&sim)), ("Running", json!("three,four")));
}

#[tokio::test(start_paused = true)]
async fn a_repair_of_a_workload_with_keys_is_no_rollout() {
    let sim = Sim::new();
    sim.rotate("one,two");
    sim.store().create(&id("Agent", "a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let before = template(&sim);
    let moves = |sim: &Sim| {
        let history = sim.store().at(&id("Agent", "a"), "/status/history");
        history.as_array().into_iter().flatten().filter(|entry| entry["from"] != entry["to"]).count()
    };
    let known = moves(&sim);
    sim.store().edit_as(&id("Deployment", "a"), "/spec/progressDeadlineSeconds", Some(json!(5)), "kubectl");
    operator.run(MINUTE).await;
    assert_eq!(sim.store().at(&id("Deployment", "a"), "/spec/progressDeadlineSeconds"), 600);
    assert_eq!((moves(&sim), template(&sim)), (known, before));
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_learns_to_tell_that_its_pod_is_ready_with_the_next_template_only() {
    let sim = Sim::new();
    sim.store().create(&id("Agent", "a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let asked = |sim: &Sim| variable(sim, "proxy", "RECIF_READINESS");
    let reported = |sim: &Sim| sim.store().at(&id("Agent", "a"), "/status/tellsReady");
    assert_eq!((asked(&sim), reported(&sim)), (json!("/healthz"), json!(true)), "a new one can at once");
    // Status that an older operator left.
    sim.store().edit(&id("Agent", "a"), |body| {
        body["status"].as_object_mut().unwrap().remove("tellsReady");
    });
    sim.store().edit(&id("Agent", "a"), |body| body["spec"]["expose"] = json!({ "anonymousPaths": ["/a"] }));
    operator.run(MINUTE).await;
    assert_eq!((asked(&sim), reported(&sim)), (Value::Null, Value::Null), "no other template, nothing new in it");
    edit(&sim, &mut operator, "registry/two:1").await;
    assert_eq!((asked(&sim), reported(&sim)), (json!("/healthz"), json!(true)));
}

#[tokio::test(start_paused = true)]
async fn the_sidecars_port_moves_to_the_workloads_container_with_the_next_template_only() {
    let sim = Sim::new();
    sim.store().create(&id("Agent", "a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let ports = |sim: &Sim, container: &str| {
        sim.store().at(&id("Deployment", "a"), &format!("/spec/template/spec/{container}/ports"))
    };
    let port = json!({ "name": "http", "containerPort": 8888 });
    let own = ports(&sim, "containers/0")[0].clone();
    assert_eq!(ports(&sim, "containers/0"), json!([own, port]));
    assert_eq!(ports(&sim, "initContainers/0"), Value::Null);
    // Status that an older operator left.
    sim.store().edit(&id("Agent", "a"), |body| {
        body["status"].as_object_mut().unwrap().remove("declaresPort");
    });
    sim.store().edit(&id("Agent", "a"), |body| body["spec"]["expose"] = json!({ "anonymousPaths": ["/a"] }));
    operator.run(MINUTE).await;
    assert_eq!((ports(&sim, "containers/0"), ports(&sim, "initContainers/0")), (json!([own]), json!([port])));
    edit(&sim, &mut operator, "registry/two:1").await;
    assert_eq!(ports(&sim, "containers/0"), json!([own, port]));
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_not_known_now_are_not_taken_away() {
    let sim = Sim::new();
    sim.rotate("one,two");
    sim.store().create(&id("Agent", "a"), agent(json!({})));
    Operator::start(&sim).run(MINUTE).await;
    sim.forget_keys();
    let mut operator = Operator::start(&sim);
    edit(&sim, &mut operator, "registry/two:1").await;
    assert_eq!(keys(&sim), "one,two");
}
