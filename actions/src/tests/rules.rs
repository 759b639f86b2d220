//! Tests Admit, SpecChanged and Delete, waits, history, and objects that no action handles.

use std::{sync::Arc, time::Duration};

use crds::{Agent, WorkloadPhase};
use machine::{ApiError, Requeue};
use meta::{CommonStatus, Phase};
use serde_json::{Value, json};

use super::{Does, MINUTE, operator, ready, status};
use crate::{
    fake::{Cascade, Operator, RequestFault, Sim, agent as agent_body, agent_id, settings, tool, tool_id},
    kind::ControlledKind,
};

#[tokio::test(start_paused = true)]
async fn what_no_action_handles_is_said_and_traced() {
    let sim = Sim::new();
    let mut operator = operator(&sim, Does { willing: false, ..Does::new(|_| Ok(None)) });
    operator.run(MINUTE).await;
    let sentence = "no action handles this object in phase Resolving";
    assert_eq!(ready(&sim), ("Unhandled".into(), sentence.into()));
    let last = operator.trace.take().pop().expect("a step");
    assert_eq!((last.passed_over, last.waiting_for.as_str()), (vec!["resolve"], sentence));
}

#[tokio::test(start_paused = true)]
async fn a_phase_written_by_a_newer_build_is_admitted_anew() {
    let sim = Sim::new();
    let mut body = agent_body(json!({}));
    body["status"] = json!({"phase": "Hibernating", "history": [{"seq": 41, "to": "Hibernating"}], "novelty": 1});
    sim.store().create(&agent_id("a"), body);
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Running"));
    assert_eq!(status(&sim, "/novelty"), json!(1), "what this build does not know survives");
    let history = status(&sim, "/history");
    assert_eq!((&history[1]["seq"], &history[1]["from"]), (&json!(42), &json!("Hibernating")));
}

#[tokio::test(start_paused = true)]
async fn a_phase_that_says_deleted_on_an_object_that_is_not_is_admitted_anew() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent_body(json!({})));
    Operator::start(&sim).run(MINUTE).await;
    sim.store().edit(&agent_id("a"), |body| body["status"]["phase"] = json!("Terminating"));
    let before = sim.store().counts.clone();
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Running"));
    assert_eq!(sim.store().counts, before, "nothing was deleted");
}

#[tokio::test(start_paused = true)]
async fn an_older_rendering_starts_over_and_a_current_one_does_not() {
    let current = Agent::TABLE.render_version;
    for (version, writes) in [(json!(current), 0), (json!(current - 1), 5), (Value::Null, 5)] {
        let sim = Sim::new();
        sim.store().create(&agent_id("a"), agent_body(json!({})));
        Operator::start(&sim).run(MINUTE).await;
        sim.store().edit(&agent_id("a"), |body| body["status"]["renderVersion"] = version.clone());
        sim.take_requests();
        Operator::start(&sim).run(MINUTE).await;
        assert_eq!(sim.take_writes().len(), writes, "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_wait_is_not_written_a_long_one_is_once() {
    for (lasts, writes) in [(1, 0), (3, 1), (3600, 1)] {
        let sim = Sim::new();
        sim.store().create(&agent_id("a"), agent_body(json!({"tools": ["weather"]})));
        let mut body = tool("http://weather");
        body["status"] = CommonStatus::initial();
        sim.store().create(&tool_id("weather"), body);
        let mut operator = Operator::start(&sim);
        // The Tool stays as it is: every write of its status conflicts with that of another client.
        sim.plan(|request, _| match request.id.kind {
            "Tool" => crate::fake::RequestFault::Refuse(machine::ApiError::Stale),
            _ => crate::fake::RequestFault::No,
        });
        operator.run(Duration::from_secs(lasts)).await;
        let waits = sim.take_writes().iter().filter(|write| *write == "Status Agent/a").count() - 1;
        assert_eq!(waits, writes, "a wait of {lasts} s");
        let mut operator = Operator::start(&sim);
        sim.take_requests();
        operator.run(Duration::from_secs(1)).await;
        assert!(!sim.take_writes().contains(&"Status Agent/a".to_owned()), "a restart during a wait of {lasts} s");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_left_behind_in_a_namespace_that_is_gone_is_tried_ever_more_rarely() {
    let sim = Sim::new();
    sim.store().create(&tool_id("weather"), tool("http://weather"));
    let mut operator = Operator::start(&sim);
    sim.plan(|_, _| crate::fake::RequestFault::Refuse(machine::ApiError::NotFound));
    operator.run(60 * MINUTE).await;
    let tries = sim.take_requests().len();
    assert!((50..120).contains(&tries), "{tries} tries in an hour");
}

#[tokio::test(start_paused = true)]
async fn all_that_a_user_has_to_provide_is_reported_at_once() {
    let sim = Sim::new();
    let env = json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}]);
    sim.store().create(&agent_id("a"), agent_body(json!({"tools": ["weather", "news"], "env": env})));
    Operator::start(&sim).run(Duration::from_millis(100)).await;
    let all = "tool \"news\" not found; tool \"weather\" not found; secret \"keys\" not found";
    assert_eq!(ready(&sim), ("MissingDependency".into(), all.into()));
}

#[tokio::test(start_paused = true)]
async fn observed_generation_never_moves_without_ready() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent_body(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let spoken = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = spoken.clone();
    sim.plan(move |request, _| {
        let changed = |field: &str| {
            let steps = request.body.as_array().into_iter().flatten();
            steps.filter(|step| step["op"] == json!("add")).find(|step| step["path"] == json!(field)).cloned()
        };
        if let Some(generation) = changed("/status/observedGeneration") {
            let conditions = changed("/status/conditions").expect("conditions with it")["value"].clone();
            let ready = conditions.as_array().and_then(|all| all.iter().find(|found| found["type"] == json!("Ready")));
            let ready = ready.expect("Ready").clone();
            assert_eq!(ready["observedGeneration"], generation["value"]);
            seen.lock().expect("not poisoned").push(ready["status"].clone());
        }
        crate::fake::RequestFault::No
    });
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
    operator.run(MINUTE).await;
    sim.store().edit(&agent_id("a"), |body| body["spec"]["replicas"] = json!(2));
    operator.run(MINUTE).await;
    assert_eq!(*spoken.lock().expect("not poisoned"), [json!("False"), json!("False")]);
    assert_eq!(ready(&sim).0, "Running");
}

#[tokio::test(start_paused = true)]
async fn history_keeps_twenty_and_never_reuses_a_number() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent_body(json!({})));
    let mut operator = Operator::start(&sim);
    for n in 0..8 {
        sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!(n.to_string()));
        operator.run(MINUTE).await;
    }
    let history = status(&sim, "/history");
    let seqs: Vec<_> = history.as_array().into_iter().flatten().filter_map(|entry| entry["seq"].as_i64()).collect();
    assert_eq!(seqs, (21..=40).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn it_can_be_deleted_in_every_phase() {
    for phase in WorkloadPhase::ALL.iter().map(|phase| phase.as_str()).chain(["Hibernating"]) {
        for cascade in [Cascade::Background, Cascade::Foreground, Cascade::Orphan] {
            let sim = Sim::new();
            sim.store().create(&agent_id("a"), agent_body(json!({})));
            Operator::start(&sim).run(MINUTE).await;
            sim.store().edit(&agent_id("a"), |body| body["status"]["phase"] = json!(phase));
            sim.store().delete(&agent_id("a"), cascade);
            let before: u32 = sim.store().counts.values().map(|(added, _)| added).sum();
            Operator::start(&sim).run(MINUTE).await;
            assert_eq!(sim.store().get(&agent_id("a")), None, "{phase} {cascade:?}");
            let added: u32 = sim.store().counts.values().map(|(added, _)| added).sum();
            assert_eq!(added, before, "{phase} {cascade:?}: nothing is made for an object that goes");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_settings_of_the_operator_reach_every_agent_that_uses_them() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent_body(json!({})));
    Operator::start(&sim).run(MINUTE).await;
    let before = status(&sim, "/contentHash");
    let mut other = settings();
    other.ollama_base_url = Some("http://ollama:11434".to_owned());
    Operator::with(&sim, Agent::registry().expect("a table"), other).run(MINUTE).await;
    assert_eq!(status(&sim, "/phase"), json!("Running"));
    assert_ne!(status(&sim, "/contentHash"), before);
}

#[tokio::test(start_paused = true)]
async fn steps_are_dated_in_microseconds_and_what_older_builds_wrote_stays() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent_body(json!({})));
    Operator::start(&sim).run(MINUTE).await;
    let at = status(&sim, "/history/1/at");
    assert!(at.as_str().is_some_and(|at| at.ends_with(".400000Z")), "{at}");
    sim.store().edit(&agent_id("a"), |body| body["status"]["history"][1]["at"] = json!("2030-03-17T17:46:40Z"));
    sim.take_requests();
    Operator::start(&sim).run(30 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_is_said_of_what_waits_and_leaves_what_is_at_rest() {
    let (sim, why, soon) = (Sim::new(), "secrets may not be listed", Requeue::After(Duration::from_secs(10)));
    sim.store().create(&agent_id("a"), agent_body(json!({"tools": ["weather"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    operator.refuse("a", why).await;
    assert_eq!((status(&sim, "/phase"), ready(&sim)), (json!("Resolving"), ("Forbidden".into(), why.into())));
    sim.store().create(&tool_id("weather"), tool("http://weather"));
    operator.run(MINUTE).await;
    assert_eq!(ready(&sim).0, "Running");
    sim.take_requests();
    assert_eq!((operator.refuse("a", why).await, sim.take_requests()), (soon, vec![]), "at rest");
    operator.ignores_watches = true;
    sim.store().edit(&agent_id("a"), |body| body["spec"]["replicas"] = json!(2));
    operator.run(Duration::from_millis(1)).await;
    operator.refuse("a", why).await;
    assert_eq!(ready(&sim).0, "Forbidden", "an edit waits");
    sim.store().delete(&agent_id("a"), Cascade::Background);
    operator.run(Duration::from_millis(1)).await;
    sim.take_requests();
    assert_eq!((operator.refuse("a", why).await, sim.take_requests()), (soon, vec![]), "it goes");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_known_is_not_said_before_the_time_is_over_that_the_api_server_named() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent_body(json!({"tools": ["weather"]})));
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    let busy = ApiError::Transient { message: "429".into(), after: Some(Duration::from_secs(7)) };
    sim.plan(move |_, _| RequestFault::Refuse(busy.clone()));
    sim.take_requests();
    for _ in 0..5 {
        operator.refuse("a", "secrets may not be listed").await;
    }
    assert_eq!(sim.take_requests().len(), 1);
}
