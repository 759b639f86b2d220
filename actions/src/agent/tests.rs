//! Tests the image of agents that name none, in the simulated cluster.

use std::time::Duration;

use crds::{Agent, ROLLOUT_AT, pod_problem::PodProblem};
use serde_json::{Value, json};

use crate::{
    fake::{Health, Operator, Sim, agent, agent_id, child_id, settings},
    kind::ControlledKind,
    render::{PROXY, RenderSettings},
};

const MINUTE: Duration = Duration::from_secs(60);

/// Starts an operator with this `--agent-image`.
fn with_flag(sim: &Sim, agent_image: &str) -> Operator {
    let settings = RenderSettings { agent_image: agent_image.to_owned(), ..settings() };
    Operator::with(sim, Agent::registry().unwrap(), settings)
}

/// Starts a cluster in which the agent `a` with this spec runs, under an operator with this flag.
async fn running(flag: &str, spec: Value) -> Sim {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(spec));
    with_flag(&sim, flag).run(MINUTE).await;
    assert_eq!(status(&sim, "/phase"), "Running");
    sim.take_requests();
    sim
}

fn status(sim: &Sim, pointer: &str) -> Value {
    sim.store().at(&agent_id("a"), &format!("/status{pointer}"))
}

/// Returns image and pull policy of the container.
fn container(sim: &Sim) -> [Value; 2] {
    let container = sim.store().at(&child_id("Deployment"), "/spec/template/spec/containers/0");
    ["image", "imagePullPolicy"].map(|field| container[field].clone())
}

fn set(sim: &Sim, field: &str, value: Value) {
    sim.store().edit(&agent_id("a"), |body| body["spec"][field] = value);
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_an_image_runs_the_operators_and_any_other_its_own() {
    let cases = [
        (json!({}), "r/agent:1", ["r/agent:1", "IfNotPresent"], json!("r/agent:1")),
        (json!({"image": "corail:latest"}), "r/agent:1", ["r/agent:1", "IfNotPresent"], json!("r/agent:1")),
        (json!({"imagePullPolicy": "Always"}), "r/agent:1", ["r/agent:1", "Always"], json!("r/agent:1")),
        (json!({}), "local:1", ["local:1", "Never"], json!("local:1")),
        (json!({}), "", ["corail:latest", "Never"], Value::Null),
        (json!({"image": "corail:2"}), "r/agent:1", ["corail:2", "Never"], Value::Null),
        (json!({"image": "r/mine:1"}), "r/agent:1", ["r/mine:1", "IfNotPresent"], Value::Null),
    ];
    for (spec, flag, expected, pinned) in cases {
        let sim = running(flag, spec.clone()).await;
        assert_eq!(container(&sim), expected.map(Value::from), "{spec} with {flag:?}");
        assert_eq!(status(&sim, "/images/agent"), pinned, "{spec} with {flag:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_flag_restarts_nothing_and_comes_with_the_next_template() {
    for (before, after) in [("r/agent:1", "r/agent:2"), ("", "r/agent:2"), ("r/agent:1", ""), ("local:1", "r/agent:2")]
    {
        let sim = running(before, json!({})).await;
        let old = container(&sim);
        let mut operator = with_flag(&sim, after);
        operator.run(20 * MINUTE).await;
        assert_eq!(sim.take_requests(), [], "{before:?} {after:?}");
        // What changes no template: a repair, and another number of Pods.
        sim.store().edit_as(&child_id("Deployment"), "/spec/progressDeadlineSeconds", Some(json!(5)), "kubectl");
        operator.run(MINUTE).await;
        set(&sim, "replicas", json!(2));
        operator.run(MINUTE).await;
        set(&sim, "name", json!("Another name"));
        operator.run(MINUTE).await;
        assert_eq!(container(&sim), old, "{before:?} {after:?}");
        set(&sim, "systemPrompt", json!("Be brief."));
        operator.run(MINUTE).await;
        let expected = if after.is_empty() { ["corail:latest", "Never"] } else { [after, "IfNotPresent"] };
        assert_eq!(container(&sim), expected.map(Value::from), "{before:?} {after:?}");
        let pin = status(&sim, "/images/agent");
        assert_eq!(pin.as_str().unwrap_or_default(), after);
        // The digest of the template agrees with what was rendered: the next step finds nothing new.
        sim.take_requests();
        set(&sim, "name", json!("A third name"));
        with_flag(&sim, "r/agent:3").run(MINUTE).await;
        assert_eq!(container(&sim), expected.map(Value::from), "{before:?} {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollout_and_an_edit_of_the_image_bring_the_operators() {
    for edit in [
        (|body: &mut Value| body["metadata"]["annotations"] = json!({ROLLOUT_AT: "2026-01-01T00:00:00Z"}))
            as fn(&mut Value),
        |body| body["spec"]["proxy"] = json!({"enabled": false}),
    ] {
        let sim = running("", json!({})).await;
        sim.store().edit(&agent_id("a"), edit);
        with_flag(&sim, "r/agent:1").run(MINUTE).await;
        assert_eq!(container(&sim)[0], "r/agent:1");
    }
    let sim = running("", json!({"image": "r/mine:1"})).await;
    set(&sim, "image", json!("corail:latest"));
    let mut operator = with_flag(&sim, "r/agent:1");
    operator.run(MINUTE).await;
    assert_eq!(container(&sim)[0], "r/agent:1");
    set(&sim, "image", json!("r/mine:1"));
    operator.run(MINUTE).await;
    assert_eq!((container(&sim)[0].clone(), status(&sim, "/images/agent")), (json!("r/mine:1"), Value::Null));
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_sidecar_keeps_its_image_too() {
    let sim = running("", json!({"proxy": {"enabled": false}})).await;
    assert_eq!(status(&sim, "/images"), Value::Null);
    set(&sim, "name", json!("Another name"));
    let mut operator = with_flag(&sim, "r/agent:1");
    operator.run(MINUTE).await;
    assert_eq!(container(&sim)[0], "corail:latest");
    set(&sim, "systemPrompt", json!("Be brief."));
    operator.run(MINUTE).await;
    assert_eq!(
        (container(&sim)[0].clone(), status(&sim, "/images")),
        (json!("r/agent:1"), json!({"agent": "r/agent:1"}))
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_no_node_has_is_replaced_once_the_operator_has_another() {
    let never = |image: &str| PodProblem::ImageNeverPull { image: image.to_owned() };
    let refused = |image: &str| PodProblem::ImagePull { image: image.to_owned() };
    for (before, stuck, problem) in
        [("", "corail:latest", never("corail:latest")), ("r/typo:1", "r/typo:1", refused("r/typo:1"))]
    {
        let sim = Sim::new();
        sim.store().create(&agent_id("a"), agent(json!({})));
        sim.store().set_health(Health::Bad(Some(problem)));
        with_flag(&sim, before).run(MINUTE).await;
        assert_eq!((status(&sim, "/phase"), container(&sim)[0].clone()), (json!("Deploying"), json!(stuck)));
        sim.take_requests();
        let mut operator = with_flag(&sim, "r/agent:1");
        operator.run(Duration::from_secs(1)).await;
        sim.store().set_health(Health::Good);
        operator.run(MINUTE).await;
        assert_eq!((status(&sim, "/phase"), container(&sim)[0].clone()), (json!("Running"), json!("r/agent:1")));
        let applied = sim.take_writes().into_iter().filter(|write| write == "Apply Deployment/a").count();
        assert_eq!(applied, 1, "{before:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_of_the_overlay_that_no_node_has_is_told_and_not_replaced() {
    for (list, name) in [("containers", "agent"), ("initContainers", PROXY)] {
        let sim = Sim::new();
        let overlay = json!({"spec": {list: [{"name": name, "image": "r/missing:1"}]}});
        sim.store().create(&agent_id("a"), agent(json!({"podTemplate": overlay})));
        sim.store().set_health(Health::Bad(Some(PodProblem::ImagePull { image: "r/missing:1".to_owned() })));
        let mut operator = with_flag(&sim, "r/agent:1");
        operator.run(MINUTE).await;
        let conditions = status(&sim, "/conditions");
        let ready = conditions.as_array().and_then(|all| all.iter().find(|found| found["type"] == "Ready"));
        let reason = ready.map(|ready| ready["reason"].clone());
        assert_eq!((status(&sim, "/phase"), reason), (json!("Deploying"), Some(json!("ImagePull"))), "{name}");
        sim.take_requests();
        operator.run(5 * MINUTE).await;
        assert_eq!(sim.take_writes(), Vec::<String>::new(), "{name}");
    }
}
