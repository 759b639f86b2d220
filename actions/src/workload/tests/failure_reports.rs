//! Tests orphan deletion with a slow garbage collector, ownership by labels, the timer of an outage, and the Events of failures.

use std::time::Duration;

use serde_json::json;

use super::{
    failing::created,
    running::running,
    scenarios::{CREATE, message, phase, reason, scale},
};
use crate::fake::{Cascade, Health, Operator, Sim, agent_id, child_id};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn what_is_to_be_left_is_left_while_the_garbage_collector_is_slow() {
    let (sim, mut operator) = running().await;
    sim.store().lazy = true;
    sim.store().delete(&agent_id("a"), Cascade::Orphan);
    operator.run(MINUTE).await;
    assert_eq!(sim.take_writes(), ["Status Agent/a", "Metadata Agent/a"], "no Deployment is deleted");
    assert_eq!(sim.store().at(&agent_id("a"), "/metadata/finalizers"), json!(["orphan"]));
}

#[tokio::test(start_paused = true)]
async fn one_label_of_ours_makes_nothing_ours() {
    for labels in [json!({"recif.dev/agent": "a"}), json!({"app.kubernetes.io/managed-by": "recif-operator"})] {
        let sim = Sim::new();
        let data = json!({"CORAIL_CHANNEL": "theirs"});
        let theirs = json!({"kind": "ConfigMap", "metadata": {"labels": labels}, "data": data});
        sim.store().create(&child_id("ConfigMap"), theirs);
        (CREATE.happens)(&mut sim.store());
        Operator::start(&sim).run(MINUTE).await;
        assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "NameConflict".into()), "{labels}");
        assert_eq!(sim.store().at(&child_id("ConfigMap"), "/data"), data, "{labels}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_outage_has_five_minutes_of_its_own() {
    let (sim, mut operator) = running().await;
    for (health, time) in [(Health::Bad(None), 4 * MINUTE), (Health::Good, MINUTE), (Health::Bad(None), 2 * MINUTE)] {
        sim.store().set_health(health);
        operator.run(time).await;
        assert_eq!(phase(&sim), "Running");
    }
    operator.run(4 * MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "Unhealthy".into()));
}

#[tokio::test(start_paused = true)]
async fn a_failure_its_end_and_a_stop_are_told_once_each() {
    let reported = |operator: &Operator| -> Vec<(bool, String)> {
        let events = operator.trace.take().into_iter().filter_map(|step| step.event);
        events.map(|event| (event.warning, event.reason)).collect()
    };
    let (sim, mut operator) = created(Health::Bad(None), 11 * MINUTE).await;
    operator.run(60 * MINUTE).await;
    assert_eq!(reported(&operator), [(true, "ProgressDeadlineExceeded".to_owned())]);
    sim.store().set_health(Health::Good);
    operator.run(MINUTE).await;
    assert_eq!(reported(&operator), [(false, "Recovered".to_owned())]);
    scale(&mut sim.store(), 0);
    operator.run(MINUTE).await;
    assert_eq!(reported(&operator), [(false, "Terminated".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn available_of_a_workload_that_failed_without_pods_says_why() {
    let sim = Sim::new();
    let theirs = json!({"kind": "ConfigMap", "metadata": {"labels": {"app": "theirs"}}, "data": {"A": "b"}});
    sim.store().create(&child_id("ConfigMap"), theirs);
    (CREATE.happens)(&mut sim.store());
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "NameConflict".into()));
    let conditions = sim.store().at(&agent_id("a"), "/status/conditions");
    let available = conditions.as_array().unwrap().iter().find(|found| found["type"] == "Available").unwrap();
    let said = (&available["status"], &available["reason"], &available["message"]);
    assert_eq!(said, (&json!("False"), &json!("Failed"), &json!(message(&sim))));
    assert!(message(&sim).contains("a-config"), "{available}");
}
