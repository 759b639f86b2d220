//! Tests hot loops: a CRD that drops fields that decide on steps, and transitions without an outside change.

use std::time::Duration;

use crds::WorkloadPhase;
use machine::StepOutcome;
use meta::PhasedObject;
use serde_json::json;

use super::{Does, MINUTE, operator, ready, status};
use crate::fake::{Operator, Sim, agent, agent_id, id, secret, tool, tool_id};

const SECOND: Duration = Duration::from_secs(1);

fn written(sim: &Sim) -> usize {
    sim.take_writes().into_iter().filter(|write| write == "Status Agent/a").count()
}

fn condition(sim: &Sim, type_: &str) -> serde_json::Value {
    let conditions = status(sim, "/conditions");
    conditions
        .as_array()
        .and_then(|all| all.iter().find(|found| found["type"] == json!(type_)))
        .cloned()
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_drops_what_steps_are_chosen_by_is_named_with_backoff_until_it_is_upgraded() {
    for fields in [&["renderVersion"][..], &["specDigest"], &["inputs"], &["contentHash"], &["children"], &["failure"]]
    {
        let sim = Sim::new();
        sim.store().unknown = fields;
        sim.store().create(&agent_id("a"), agent(json!({})));
        let mut operator = Operator::start(&sim);
        operator.run(10 * SECOND).await;
        let first = written(&sim);
        operator.run(10 * MINUTE).await;
        let later = written(&sim);
        assert!(first <= 7 && later <= 14, "{fields:?}: {first} writes in 10 s, {later} in 10 min");
        // Fields that are written only now and then are reported only then.
        if !matches!(fields[0], "specDigest" | "failure" | "children") {
            let text =
                format!("the CRD agents.agents.recif.dev drops status.{}: helm upgrade recif-crds <chart>", fields[0]);
            assert_eq!(ready(&sim).0, "CRDOutdated", "{fields:?}");
            assert!(ready(&sim).1.starts_with(&text), "{}", ready(&sim).1);
            let defects = operator.trace.take().into_iter().filter(|step| step.outcome == StepOutcome::Defect);
            assert!(defects.count() > 3, "{fields:?}");
        }
        sim.store().unknown = &[];
        operator.run(15 * MINUTE).await;
        assert_eq!(status(&sim, "/phase"), json!("Running"), "{fields:?}");
        sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
        operator.run(MINUTE).await;
        assert_eq!((ready(&sim).0, condition(&sim, "CRDOutdated")), ("Running".into(), json!(null)), "{fields:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_drops_anything_else_is_told_in_a_condition_alone() {
    let sim = Sim::new();
    sim.store().unknown = &["selector"];
    sim.store().create(&agent_id("a"), agent(json!({})));
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!((status(&sim, "/phase"), ready(&sim).0), (json!("Running"), "Running".into()));
    assert_eq!(written(&sim), 4);
    let text = condition(&sim, "CRDOutdated");
    assert_eq!((&text["status"], &text["reason"]), (&json!("True"), &json!("FieldsDropped")));
    assert!(text["message"].as_str().is_some_and(|it| it.contains(" drops status.selector: ")), "{text}");
    Operator::start(&sim).run(30 * MINUTE).await;
    assert_eq!(written(&sim), 0, "a restart");
    sim.store().unknown = &[];
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(condition(&sim, "CRDOutdated"), json!(null), "with the next write");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_field_is_written_once_in_ten_minutes_until_the_crd_is_upgraded() {
    let sim = Sim::new();
    sim.store().unknown = &["currentReplicas"];
    for name in ["a", "b"] {
        sim.store().create(&agent_id(name), agent(json!({})));
    }
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let sentence = "the CRD agents.agents.recif.dev drops status.currentReplicas: helm upgrade recif-crds <chart>, or \
                kubectl apply --server-side --force-conflicts -k config/crd";
    let outdated = condition(&sim, "CRDOutdated");
    assert_eq!((&outdated["status"], &outdated["message"]), (&json!("True"), &json!(sentence)));
    assert_eq!((ready(&sim).0, operator.outdated_crd()), ("Running".into(), Some(sentence.to_owned())));
    sim.take_writes();
    for n in 0..20 {
        sim.store().edit(&agent_id("a"), |body| body["metadata"]["labels"] = json!({"n": n.to_string()}));
        operator.run(10 * SECOND).await;
    }
    assert_eq!(sim.take_writes(), Vec::<String>::new(), "each of these steps would send the field again");
    operator.run(60 * MINUTE).await;
    let probes = sim.take_writes();
    assert!((1..=12).contains(&probes.len()), "{probes:?}");

    sim.store().unknown = &[];
    operator.run(30 * MINUTE).await;
    for name in ["a", "b"] {
        assert_eq!(sim.store().at(&agent_id(name), "/status/currentReplicas"), json!(1), "{name}");
        let conditions = sim.store().at(&agent_id(name), "/status/conditions").to_string();
        assert!(!conditions.contains("CRDOutdated"), "{name}: {conditions}");
    }
    assert_eq!(operator.outdated_crd(), None);
    sim.take_writes();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_made_anyway_carries_a_dropped_field_and_shows_that_the_crd_was_upgraded() {
    let sim = Sim::new();
    sim.store().unknown = &["currentReplicas"];
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert!(operator.outdated_crd().is_some());
    sim.store().unknown = &[];
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
    operator.run(MINUTE).await;
    assert_eq!((status(&sim, "/phase"), status(&sim, "/currentReplicas")), (json!("Running"), json!(1)));
    assert_eq!((operator.outdated_crd(), condition(&sim, "CRDOutdated")), (None, json!(null)));
}

#[tokio::test(start_paused = true)]
async fn a_write_of_metadata_alone_shows_nothing_about_a_dropped_field() {
    let sim = Sim::new();
    sim.store().unknown = &["currentReplicas"];
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(5 * MINUTE).await;
    sim.take_writes();
    sim.store().edit(&agent_id("a"), |body| body["metadata"]["finalizers"] = json!([]));
    operator.run(SECOND).await;
    assert_eq!(sim.take_writes(), ["Metadata Agent/a"]);
    operator.run(6 * MINUTE).await;
    sim.store().edit(&agent_id("a"), |body| body["metadata"]["labels"] = json!({"x": "y"}));
    operator.run(SECOND).await;
    assert!(written(&sim) > 0, "it is tried again ten minutes after the last write that held it");
}

#[tokio::test(start_paused = true)]
async fn a_drop_that_is_not_seen_for_half_an_hour_is_told_by_the_condition_alone() {
    let sim = Sim::new();
    sim.store().unknown = &["selector"];
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(25 * MINUTE).await;
    assert!(operator.outdated_crd().is_some());
    operator.run(10 * MINUTE).await;
    assert_eq!((operator.outdated_crd(), condition(&sim, "CRDOutdated")["status"].clone()), (None, json!("True")));
}

/// Returns an action that never renders, and resolves all references again instead.
fn restless() -> Does {
    let work = Does::new(|cr| Ok(Some(cr.moved_to(WorkloadPhase::Resolving))));
    Does { name: "render", phases: &[WorkloadPhase::Rendering], ..work }
}

#[tokio::test(start_paused = true)]
async fn moves_without_a_cause_are_made_ever_more_rarely_and_said() {
    let sim = Sim::new();
    let mut operator = operator(&sim, restless());
    operator.run(10 * SECOND).await;
    let first = written(&sim);
    assert!((21..26).contains(&first), "{first} writes in 10 s");
    assert_eq!(ready(&sim).0, "Oscillating");
    let words = "it keeps changing phase although nothing outside changed, last from ";
    assert!(ready(&sim).1.starts_with(words), "{}", ready(&sim).1);
    assert!(operator.trace.take().iter().any(|step| step.outcome == StepOutcome::Oscillating));
    operator.run(60 * MINUTE).await;
    let hour = written(&sim);
    assert!((8..25).contains(&hour), "{hour} writes in an hour");
    // A label, an edit and a tool end the back-off, each for a while.
    sim.store().edit(&agent_id("a"), |body| body["metadata"]["labels"] = json!({"x": "y"}));
    operator.run(SECOND).await;
    assert!(written(&sim) >= 20);
    sim.store().edit(&agent_id("a"), |body| body["spec"]["tools"] = json!(["weather"]));
    operator.run(SECOND).await;
    written(&sim);
    sim.store().create(&tool_id("weather"), tool("http://weather"));
    operator.run(2 * SECOND).await;
    assert!(written(&sim) >= 20, "a reference");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_edits_and_thirty_of_its_tools_are_no_loop() {
    let sim = Sim::new();
    let tools: Vec<_> = (0..5).map(|n| format!("t{n}")).collect();
    for name in &tools {
        sim.store().create(&tool_id(name), tool("http://weather"));
    }
    sim.store().create(&agent_id("a"), agent(json!({"tools": tools})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    for n in 0..200 {
        sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!(n.to_string()));
        operator.run(SECOND / 10).await;
    }
    operator.run(10 * SECOND).await;
    for n in 0..30 {
        sim.store().edit(&tool_id(&tools[n % 5]), |body| body["spec"]["endpoint"] = json!(format!("http://other/{n}")));
        operator.run(SECOND).await;
    }
    operator.run(10 * SECOND).await;
    let braked = operator.trace.take().into_iter().filter(|step| step.outcome == StepOutcome::Oscillating).count();
    assert_eq!((braked, status(&sim, "/phase")), (0, json!("Running")));
}

#[tokio::test(start_paused = true)]
async fn what_wakes_it_without_a_change_ends_no_pause() {
    let sim = Sim::new();
    let mut operator = operator(&sim, restless());
    operator.run(10 * SECOND).await;
    written(&sim);
    for n in 0..60 {
        sim.store().create(&id("Secret", &format!("other{n}")), secret(json!({})));
        operator.run(SECOND).await;
    }
    let writes = written(&sim);
    assert!(writes <= 10, "{writes} writes in a minute");
}
