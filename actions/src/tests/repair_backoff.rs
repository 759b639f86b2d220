//! Tests two operators over one object.

use std::time::Duration;

use crds::Agent;
use serde_json::json;

use super::{MINUTE, ready, status};
use crate::{
    fake::{Operator, Sim, agent as agent_body, agent_id, settings},
    kind::ControlledKind,
};

const SECOND: Duration = Duration::from_secs(1);

/// Starts an operator with a lease of this name and settings of its own.
fn instance(sim: &Sim, lease: &str) -> Operator {
    let mut settings = settings();
    settings.operator_namespace = lease.to_owned();
    let mut operator = Operator::with(sim, Agent::registry().expect("a table"), settings);
    operator.named(&format!("{lease}/recif-operator"));
    operator
}

/// Returns the number of status writes of the Agent within this time, while both operators run.
async fn both(sim: &Sim, one: &mut Operator, other: &mut Operator, time: Duration) -> usize {
    let end = machine::Clock::elapsed(&sim.clock) + time;
    while machine::Clock::elapsed(&sim.clock) < end {
        one.run(SECOND / 10).await;
        other.run(SECOND / 10).await;
    }
    sim.take_writes().into_iter().filter(|write| write == "Status Agent/a").count()
}

#[tokio::test(start_paused = true)]
async fn two_that_write_the_same_object_leave_it_ever_longer_and_name_each_other() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent_body(json!({})));
    let mut one = instance(&sim, "one");
    one.run(MINUTE).await;
    assert_eq!(status(&sim, "/managedBy"), json!("one/recif-operator"));
    sim.take_requests();
    let mut other = instance(&sim, "other");
    assert_eq!(both(&sim, &mut one, &mut other, SECOND).await, 0, "the new one waits for two seconds");
    let first = both(&sim, &mut one, &mut other, 30 * SECOND).await;
    // The user's edits wake them, besides their children.
    for n in 0..10 {
        sim.store().edit(&agent_id("a"), |body| body["metadata"]["labels"] = json!({"n": n.to_string()}));
        both(&sim, &mut one, &mut other, 30 * SECOND).await;
    }
    assert_eq!(ready(&sim).0, "OtherOperator");
    assert_eq!(
        ready(&sim).1,
        "the operators one/recif-operator and other/recif-operator both write it; stop one of them"
    );
    assert!(first <= 24, "{first} writes");
    sim.store().edit(&agent_id("a"), |body| body["metadata"]["labels"] = json!({"n": "last"}));
    let later = both(&sim, &mut one, &mut other, 5 * MINUTE).await;
    assert!(later <= 16, "{later} writes in five minutes");
    drop(one);
    other.run(60 * MINUTE).await;
    assert_eq!((status(&sim, "/phase"), ready(&sim).0), (json!("Running"), "Running".into()), "one alone");
    assert_eq!(status(&sim, "/managedBy"), json!("other/recif-operator"));
}

#[tokio::test(start_paused = true)]
async fn the_second_one_is_named_before_it_has_taken_the_object_over() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent_body(json!({})));
    let mut one = instance(&sim, "one");
    one.run(MINUTE).await;
    let seq =
        |sim: &Sim| status(sim, "/history").as_array().expect("a history").last().expect("an entry")["seq"].as_i64();
    let before = seq(&sim).expect("a number");
    let mut other = instance(&sim, "other");
    for n in 0..60 {
        // The first operator gets no watch event for the writes of the second one.
        sim.store().edit(&agent_id("a"), |body| body["metadata"]["labels"] = json!({"n": n.to_string()}));
        both(&sim, &mut one, &mut other, SECOND).await;
        if ready(&sim).0 == "OtherOperator" {
            break;
        }
    }
    assert_eq!(ready(&sim).0, "OtherOperator");
    let moves = seq(&sim).expect("a number") - before;
    assert!(moves <= 10, "{moves} moves before it is said");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_left_alone_is_deleted_all_the_same() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent_body(json!({})));
    let mut one = instance(&sim, "one");
    one.run(MINUTE).await;
    let mut other = instance(&sim, "other");
    for n in 0..20 {
        sim.store().edit(&agent_id("a"), |body| body["metadata"]["labels"] = json!({"n": n.to_string()}));
        both(&sim, &mut one, &mut other, 30 * SECOND).await;
    }
    drop(other);
    sim.store().delete(&agent_id("a"), crate::fake::Cascade::Background);
    one.run(5 * SECOND).await;
    assert!(sim.store().get(&agent_id("a")).is_none(), "no pause holds a deletion up");
}

#[tokio::test(start_paused = true)]
async fn one_after_the_other_waits_once_and_writes_nothing_without_a_cause() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent_body(json!({})));
    instance(&sim, "one").run(MINUTE).await;
    sim.take_requests();
    let mut same = Operator::with(&sim, Agent::registry().expect("a table"), {
        let mut settings = settings();
        settings.operator_namespace = "one".to_owned();
        settings
    });
    same.named("two/recif-operator");
    same.run(30 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "its name alone causes no write");
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
    same.run(30 * SECOND).await;
    assert_eq!((status(&sim, "/phase"), ready(&sim).0), (json!("Running"), "Running".into()));
    assert_eq!(status(&sim, "/managedBy"), json!("two/recif-operator"));
}
