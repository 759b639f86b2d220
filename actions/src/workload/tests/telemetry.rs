//! Tests that the variables of OpenTelemetry come with a template that changes for another reason, and never alone.

use std::time::Duration;

use crds::Agent;
use serde_json::{Value, json};

use crate::{
    fake::{Operator, Sim, agent, id, secret, settings},
    kind::ControlledKind,
    render::RenderSettings,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns an operator that hands these variables to Pods.
fn with_telemetry(sim: &Sim, variables: &[(&str, &str)]) -> Operator {
    let telemetry = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Operator::with(sim, Agent::registry().unwrap(), RenderSettings { telemetry, ..settings() })
}

/// Returns the value of a variable in the container of the agent.
fn variable(sim: &Sim, name: &str) -> Value {
    let containers = sim.store().at(&id("Deployment", "a"), "/spec/template/spec/containers");
    let containers = containers.as_array().cloned().unwrap_or_default();
    let container = containers.into_iter().find(|found| found["name"] == "agent").unwrap();
    let env = container["env"].as_array().cloned().unwrap_or_default();
    env.into_iter().find(|found| found["name"] == name).map_or(Value::Null, |found| found["value"].clone())
}

async fn edit(sim: &Sim, operator: &mut Operator, image: &str) {
    sim.store().edit(&id("Agent", "a"), |body| body["spec"]["image"] = json!(image));
    operator.run(MINUTE).await;
}

/// Returns the attributes that name the workload.
fn own_attributes(sim: &Sim) -> String {
    let hash = sim.store().at(&id("Agent", "a"), "/status/contentHash");
    format!("k8s.namespace.name=team,recif.kind=Agent,service.version={}", hash.as_str().unwrap())
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

#[tokio::test(start_paused = true)]
async fn they_come_with_the_next_template_and_a_change_of_them_rolls_nothing() {
    let sim = Sim::new();
    sim.store().create(&id("Agent", "a"), agent(json!({})));
    with_telemetry(&sim, &[]).run(MINUTE).await;
    assert_eq!((variable(&sim, ENDPOINT), variable(&sim, "OTEL_SERVICE_NAME")), (Value::Null, Value::Null));
    sim.take_requests();

    let mut operator = with_telemetry(&sim, &[(ENDPOINT, "http://one:4318"), ("OTEL_RESOURCE_ATTRIBUTES", "team=a")]);
    operator.run(MINUTE * 30).await;
    assert_eq!(sim.take_requests(), [], "an upgrade alone");
    edit(&sim, &mut operator, "registry/two:1").await;
    assert_eq!(variable(&sim, ENDPOINT), "http://one:4318");
    assert_eq!(variable(&sim, "OTEL_SERVICE_NAME"), "a");
    assert_eq!(variable(&sim, "OTEL_RESOURCE_ATTRIBUTES"), format!("team=a,{}", own_attributes(&sim)));

    sim.take_requests();
    let mut operator = with_telemetry(&sim, &[(ENDPOINT, "http://two:4318")]);
    operator.run(MINUTE * 30).await;
    assert_eq!(sim.take_requests(), [], "another collector");
    edit(&sim, &mut operator, "registry/three:1").await;
    assert_eq!(variable(&sim, ENDPOINT), "http://two:4318");
    assert_eq!(variable(&sim, "OTEL_RESOURCE_ATTRIBUTES"), own_attributes(&sim));
    let mut operator = with_telemetry(&sim, &[]);
    edit(&sim, &mut operator, "registry/four:1").await;
    assert_eq!((variable(&sim, ENDPOINT), variable(&sim, "OTEL_SERVICE_NAME")), (Value::Null, Value::Null));
}

#[tokio::test(start_paused = true)]
async fn what_the_user_sets_stays() {
    let sim = Sim::new();
    let env = json!([{ "name": ENDPOINT, "value": "http://mine:4318" }]);
    sim.store().create(&id("Agent", "a"), agent(json!({ "env": env })));
    with_telemetry(&sim, &[(ENDPOINT, "http://one:4318"), ("OTEL_BSP_SCHEDULE_DELAY", "5")]).run(MINUTE).await;
    assert_eq!(variable(&sim, ENDPOINT), "http://mine:4318");
    assert_eq!(variable(&sim, "OTEL_BSP_SCHEDULE_DELAY"), "5");
}

const CAPTURE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

#[tokio::test(start_paused = true)]
async fn where_content_is_captured_the_runner_learns_which_variables_are_secret() {
    let from_secret =
        |name: &str| json!({ "name": name, "valueFrom": { "secretKeyRef": { "name": "keys", "key": "k" } } });
    let plain = json!({ "name": "PLAIN", "value": "x" });
    let own = |value: &str| json!({ "name": CAPTURE, "value": value });
    for (env, variables, expected) in [
        (
            json!([from_secret("A"), plain, from_secret("B")]),
            &[(ENDPOINT, "http://one:4318"), (CAPTURE, "true")][..],
            json!("A,B"),
        ),
        (json!([from_secret("A"), plain]), &[(ENDPOINT, "http://one:4318"), (CAPTURE, "false")], Value::Null),
        (json!([from_secret("A"), plain]), &[(ENDPOINT, "http://one:4318")], Value::Null),
        (json!([plain]), &[(ENDPOINT, "http://one:4318"), (CAPTURE, "true")], Value::Null),
        (json!([from_secret("A"), own("false")]), &[(ENDPOINT, "http://one:4318"), (CAPTURE, "true")], Value::Null),
        (json!([from_secret("A"), own("TRUE")]), &[], json!("A")),
        (json!([from_secret("A"), from_secret(CAPTURE)]), &[], json!(format!("A,{CAPTURE}"))),
    ] {
        let sim = Sim::new();
        sim.store().create(&id("Secret", "keys"), secret(json!({ "k": "eA==" })));
        sim.store().create(&id("Agent", "a"), agent(json!({ "env": env })));
        with_telemetry(&sim, variables).run(MINUTE).await;
        assert_eq!(variable(&sim, "RECIF_SECRET_VARIABLES"), expected, "{env} {variables:?}");
    }

    let sim = Sim::new();
    sim.store().create(&id("Secret", "keys"), secret(json!({ "k": "eA==" })));
    let sources = json!([{ "prefix": "DB_", "secretRef": { "name": "keys" } }]);
    let spec = json!({ "env": [own("true")], "envFrom": sources, "databaseUrl": "postgres://ada:pass@db/x" });
    sim.store().create(&id("Agent", "a"), agent(spec));
    with_telemetry(&sim, &[]).run(MINUTE).await;
    assert_eq!(variable(&sim, "RECIF_SECRET_VARIABLES"), "DB_*");
}
