//! Tests lagging watches, each kind by itself, and references that are on their way.

use std::time::Duration;

use machine::ApiError;
use serde_json::{Value, json};

use super::{
    running::running,
    scenarios::{ALL, CREATE, REST, phase, reason, same},
};
use crate::fake::{Health, Operator, RequestFault, Sim, Verb, agent, agent_id, child_id, id, secret, tool_id};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_behind_the_others_changes_nothing_in_the_end() {
    for scenario in ALL {
        let stage = scenario.stage().await;
        let reference = stage.fork();
        (scenario.happens)(&mut reference.store());
        Operator::start(&reference).run(REST).await;
        let children = ["ServiceAccount", "ConfigMap", "Secret", "Service", "PodDisruptionBudget", "Deployment"];
        for kind in ["Agent", "Tool", "Pod"].into_iter().chain(children) {
            let sentence = format!("{}: the watch of {kind} lags", scenario.name);
            let sim = stage.fork();
            let mut operator = Operator::start(&sim);
            (scenario.happens)(&mut sim.store());
            operator.lagging = vec![kind];
            operator.run(Duration::from_secs(25)).await;
            operator.lagging.clear();
            operator.run(REST).await;
            same(&reference.store(), &sim.store(), &sentence);
            assert_eq!(reference.store().counts, sim.store().counts, "{sentence}: objects made and deleted");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_applied_for_an_objects_past() {
    let (sim, _) = running().await;
    let prompt = |text: &str| sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!(text));
    prompt("one");
    sim.plan(|request, _| match (request.verb, request.id.kind) {
        (Verb::Apply, "ConfigMap") => RequestFault::DieBefore,
        _ => RequestFault::No,
    });
    Operator::start(&sim).run(REST).await;
    sim.clear_faults();
    // It has listed this state, and receives no later watch event.
    let mut past = Operator::start(&sim);
    past.lagging = vec!["Agent", "Tool", "Pod", "ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment"];
    let mut other = Operator::start(&sim);
    other.run(REST).await;
    prompt("two");
    other.run(REST).await;
    let right = sim.fork();
    sim.take_requests();
    past.run(Duration::from_secs(25)).await;
    let holds = |text| sim.store().at(&child_id("ConfigMap"), "/data").to_string().contains(text);
    assert!(holds("two"), "it applied what it knew of");
    assert!(sim.take_requests().len() > 20, "it tried");
    past.lagging.clear();
    past.run(REST).await;
    assert!(holds("two"));
    same(&right.store(), &sim.store(), "after the watches came back");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_the_api_server_called_stale_is_not_tried_again_at_every_wake() {
    let (sim, mut operator) = running().await;
    operator.lagging = vec!["Agent"];
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
    sim.take_requests();
    for nth in 0..60 {
        sim.store().edit(&tool_id("weather"), |body| body["spec"]["endpoint"] = json!(format!("http://{nth}")));
        operator.run(Duration::from_millis(10)).await;
    }
    let tries = sim.take_requests().iter().filter(|request| request.id == agent_id("a")).count();
    assert!((2..=6).contains(&tries), "{tries} tries in 600 ms");
    // The newer version is not stale: it does not wait for the end of the back-off.
    operator.lagging.clear();
    operator.run(Duration::from_millis(50)).await;
    assert_ne!(phase(&sim), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_stays_stale_is_reported() {
    let (sim, mut operator) = running().await;
    sim.plan(|request, _| match request.id.kind {
        "Agent" => RequestFault::Refuse(ApiError::Stale),
        _ => RequestFault::No,
    });
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
    operator.trace.take();
    let mut reasons = async |seconds| {
        operator.run(Duration::from_secs(seconds)).await;
        operator.trace.take().into_iter().map(|record| record.reason).filter(|reason| reason.contains("as stale"))
    };
    assert_eq!(reasons(1).await.next(), None, "a watch may be late");
    let last = reasons(9).await.next_back().expect("reported");
    assert!(last.contains("no newer version of the object came"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn the_owner_is_not_read_at_every_wake_while_its_watch_is_late() {
    let (sim, _) = running().await;
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("one"));
    sim.plan(|request, _| match (request.verb, request.id.kind) {
        (Verb::Apply, "ConfigMap") => RequestFault::DieBefore,
        _ => RequestFault::No,
    });
    Operator::start(&sim).run(REST).await;
    sim.clear_faults();
    let mut operator = Operator::start(&sim);
    operator.lagging = vec!["Agent"];
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("two"));
    sim.take_requests();
    for nth in 0..60 {
        sim.store().create(&id("Secret", &format!("other{nth}")), secret(json!({})));
        operator.run(Duration::from_millis(10)).await;
    }
    let reads = sim.take_requests().iter().filter(|request| request.id == agent_id("a")).count();
    assert!((2..=6).contains(&reads), "{reads} reads in 600 ms");
}

/// Edits the Tool at the request number `at`, and asserts that every applied ConfigMap holds the tool. `stuck`: from then on all
/// requests for the Tool are stale.
fn expect_the_tool(sim: &Sim, at: usize, stuck: bool) {
    sim.plan(move |request, store| {
        if request.nth == at {
            store.edit(&tool_id("weather"), |body| body["spec"]["endpoint"] = json!("http://other"));
        }
        if request.verb == Verb::Apply && request.id.kind == "ConfigMap" {
            assert!(request.body.pointer("/data/CORAIL_TOOLS").is_some(), "rendered without its tool");
        }
        match request.id.kind {
            "Tool" if stuck && request.nth >= at => RequestFault::Refuse(ApiError::Stale),
            _ => RequestFault::No,
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_tool_on_its_way_is_never_left_out() {
    for stuck in [false, true] {
        for at in 0..24 {
            let sim = Sim::new();
            expect_the_tool(&sim, at, stuck);
            (CREATE.happens)(&mut sim.store());
            Operator::start(&sim).run(REST).await;
            sim.clear_faults();
            Operator::start(&sim).run(REST).await;
            assert_eq!(phase(&sim), "Running", "edited at request {at}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_running_a_tool_on_its_way_changes_nothing() {
    let (sim, mut operator) = running().await;
    expect_the_tool(&sim, 0, true);
    sim.store().edit(&tool_id("weather"), |body| body["spec"]["endpoint"] = json!("http://other"));
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Running".into(), "Running".into()));
    super::scenarios::lose(&mut sim.store(), "ConfigMap");
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Running".into(), "MissingDependency".into()));
    sim.clear_faults();
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Running".into(), "Running".into()));
}

#[tokio::test(start_paused = true)]
async fn a_tool_edited_during_a_rollout_rolls_once_more_and_not_twice() {
    let (sim, mut operator) = running().await;
    sim.store().set_health(Health::Bad(None));
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim), "Deploying");
    let generation = || sim.store().at(&child_id("Deployment"), "/metadata/generation").as_i64();
    let before = generation().expect("a number");
    sim.store().edit(&tool_id("weather"), |body| body["spec"]["endpoint"] = json!("http://other"));
    operator.run(MINUTE).await;
    assert_eq!(generation(), Some(before + 1));
}

/// Lets one operator act on an edit of the Agent, then runs another one whose watch of Agents has not delivered the edit.
async fn past(sim: &Sim, mut present: Operator, edit: fn(&mut Value)) {
    let mut past = Operator::start(sim);
    past.lagging = vec!["Agent"];
    sim.store().edit(&agent_id("a"), |body| edit(&mut body["spec"]));
    present.run(Duration::from_secs(20)).await;
    sim.take_requests();
    past.run(Duration::from_secs(25)).await;
    assert!(!sim.take_requests().is_empty(), "it tried");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_for_an_objects_past() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(Duration::from_secs(60)).await;
    past(&sim, operator, |spec| spec["databaseUrl"] = json!("postgresql://u:p@db/x")).await;
    let is_there = sim.store().get(&child_id("Secret")).is_some_and(|secret| !secret.is_deleting());
    assert!(is_there, "it deleted what it knew nothing of");
}

#[tokio::test(start_paused = true)]
async fn no_number_is_set_for_an_objects_past() {
    let (sim, operator) = running().await;
    past(&sim, operator, |spec| spec["replicas"] = json!(3)).await;
    assert_eq!(sim.store().at(&child_id("Deployment"), "/spec/replicas"), json!(3));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_applied_for_what_it_wrote_in_an_earlier_term() {
    let (sim, mut first) = running().await;
    let prompt = |text: &str| sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!(text));
    prompt("one");
    sim.plan(|request, _| match (request.verb, request.id.kind) {
        (Verb::Apply, "ConfigMap") => RequestFault::Refuse(ApiError::Transient { message: "503".into(), after: None }),
        _ => RequestFault::No,
    });
    first.run(Duration::from_secs(10)).await;
    assert_eq!(phase(&sim), "Rendering");
    sim.clear_faults();
    first.lagging = vec!["Agent", "Tool", "Pod", "ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment"];
    let mut other = Operator::start(&sim);
    other.run(Duration::from_secs(10)).await;
    prompt("two");
    other.run(Duration::from_secs(10)).await;
    first.leads_again();
    // Not longer: confirmed versions are forgotten once a minute anyway.
    first.run(Duration::from_secs(20)).await;
    let data = sim.store().at(&child_id("ConfigMap"), "/data").to_string();
    assert!(data.contains("two"), "it applied what it wrote before: {data}");
}
