//! Tests that a stopped Agent whose manifest is rejected stays Failed without writes, and goes on as soon as the cause is gone.

use std::time::Duration;

use machine::ApiError;
use serde_json::{Value, json};

use super::scenarios::{message, phase, reason, scale};
use crate::fake::{Cascade, Operator, RequestFault, Sim, Verb, agent, agent_id, child_id, settings, tool, tool_id};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Creates a stopped Agent whose Service has the name of a Service of another owner.
fn conflicting(more: Value) -> Sim {
    let sim = Sim::new();
    sim.store().create(&child_id("Service"), json!({"kind": "Service", "metadata": {"labels": {"app": "theirs"}}}));
    let mut body = agent(json!({"replicas": 0}));
    for (field, value) in more.as_object().into_iter().flatten() {
        body["spec"][field] = value.clone();
    }
    sim.store().create(&agent_id("a"), body);
    sim
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_said_once_and_used_when_it_is_free() {
    // References of a stopped Agent need not exist, and their absence is no change.
    for more in [json!({}), json!({"tools": ["weather"]}), json!({"modelRef": {"name": "m"}})] {
        let sim = conflicting(more);
        let mut operator = Operator::start(&sim);
        operator.run(10 * SECOND).await;
        assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "NameConflict".into()));
        assert!(message(&sim).starts_with("Service/a exists"), "{}", message(&sim));
        let statuses = sim.take_writes().iter().filter(|write| *write == "Status Agent/a").count();
        assert_eq!(statuses, 4, "Resolving, Rendering, Deploying, Failed");
        operator.run(30 * MINUTE).await;
        assert_eq!(sim.take_writes(), Vec::<String>::new());
        sim.store().delete(&child_id("Service"), Cascade::Background);
        operator.run(10 * MINUTE).await;
        assert_eq!(phase(&sim), "Terminated");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_is_said_once() {
    for kind in ["ConfigMap", "Deployment"] {
        let sim = Sim::new();
        sim.plan(move |request, _| match request.verb {
            Verb::Apply | Verb::DryRun if request.id.kind == kind => {
                RequestFault::Refuse(ApiError::Invalid("no such field".into()))
            }
            _ => RequestFault::No,
        });
        sim.store().create(&agent_id("a"), agent(json!({"replicas": 0})));
        let mut operator = Operator::start(&sim);
        operator.run(10 * SECOND).await;
        assert_eq!((phase(&sim), message(&sim)), ("Failed".into(), "no such field".into()), "{kind}");
        sim.take_requests();
        operator.run(30 * MINUTE).await;
        let statuses = sim.take_writes().into_iter().filter(|write| write.starts_with("Status")).collect::<Vec<_>>();
        assert_eq!(statuses, Vec::<String>::new(), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reference_that_comes_changes_or_goes_is_looked_at_once() {
    let sim = conflicting(json!({"tools": ["weather"]}));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let changes: [fn(&mut crate::fake::Store); 3] = [
        |store| store.create(&tool_id("weather"), tool("http://weather")),
        |store| store.edit(&tool_id("weather"), |body| body["spec"]["endpoint"] = json!("http://other")),
        |store| store.delete(&tool_id("weather"), Cascade::Background),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        sim.take_requests();
        change(&mut sim.store());
        operator.run(MINUTE).await;
        let statuses = sim.take_writes().into_iter().filter(|write| *write == "Status Agent/a").count();
        assert_eq!((phase(&sim), statuses), ("Failed".into(), 4), "change {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_stopped_one_lacks_is_waited_for_when_it_starts() {
    let sim = Sim::new();
    let spec = json!({"replicas": 0, "image": settings().runner_image, "modelType": "openai"});
    sim.store().create(&agent_id("a"), agent(spec));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim), "Terminated");
    scale(&mut sim.store(), 1);
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Resolving".into(), "MissingDependency".into()));
    sim.store().edit(&agent_id("a"), |body| body["spec"]["env"] = json!([{"name": "OPENAI_API_KEY", "value": "k"}]));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_wait_for_more_references() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["weather", "calculator"]})));
    let mut first = Operator::start(&sim);
    first.run(MINUTE).await;
    sim.store().create(&tool_id("weather"), tool("http://weather"));
    first.run(SECOND / 10).await;
    scale(&mut sim.store(), 0);
    first.run(MINUTE).await;
    assert_eq!(phase(&sim), "Terminated");
    // Another replica leads until everything is there again, so that only the wait is left to the first one.
    sim.store().delete(&tool_id("weather"), Cascade::Background);
    scale(&mut sim.store(), 1);
    let mut other = Operator::start(&sim);
    other.run(MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Resolving".into(), "MissingDependency".into()));
    sim.store().create(&tool_id("weather"), tool("http://weather"));
    other.run(SECOND / 10).await;
    first.leads_again();
    first.run(SECOND / 10).await;
    assert_eq!(phase(&sim), "Resolving", "calculator may be on its way");
    first.run(MINUTE).await;
    assert_eq!(phase(&sim), "Running");
}

#[tokio::test(start_paused = true)]
async fn one_that_an_older_build_stopped_is_not_written_and_pins_when_it_starts() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({"replicas": 0})));
    Operator::start(&sim).run(MINUTE).await;
    sim.store().edit(&agent_id("a"), |body| body["status"]["inputs"] = json!({}));
    sim.take_requests();
    let mut operator = Operator::start(&sim);
    operator.run(30 * MINUTE).await;
    assert_eq!((sim.take_requests(), phase(&sim)), (vec![], "Terminated".into()));
    scale(&mut sim.store(), 1);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim), "Running");
    assert_ne!(sim.store().at(&agent_id("a"), "/status/inputs"), json!({}));
}

#[tokio::test(start_paused = true)]
async fn one_that_failed_under_an_older_build_stays_as_it_is() {
    let sim = conflicting(json!({}));
    Operator::start(&sim).run(MINUTE).await;
    sim.store().edit(&agent_id("a"), |body| body["status"]["inputs"] = json!({}));
    sim.take_requests();
    Operator::start(&sim).run(30 * MINUTE).await;
    assert_eq!((sim.take_writes(), phase(&sim)), (vec![], "Failed".into()));
}

#[tokio::test(start_paused = true)]
async fn on_its_way_it_always_says_what_it_does() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({})));
    let text = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = text.clone();
    sim.plan(move |request, _| {
        for step in request.body.as_array().into_iter().flatten().filter(|step| step["op"] == json!("add")) {
            for found in step["value"].as_array().into_iter().flatten().filter(|found| found["type"] == json!("Ready"))
            {
                seen.lock().expect("not poisoned").push((found["status"].clone(), found["message"].clone()));
            }
        }
        RequestFault::No
    });
    Operator::start(&sim).run(MINUTE).await;
    let text = text.lock().expect("not poisoned").clone();
    assert_eq!(text.len(), 4);
    let silent: Vec<_> =
        text.iter().filter(|(status, message)| *status == json!("False") && *message == json!("")).collect();
    assert!(silent.is_empty(), "{text:?}");
}
