//! Tests drift: the repair of children, and the peace with other clients that change them.

use std::time::Duration;

use serde_json::json;

use super::{
    running::{MINUTE, SECOND, phases, running},
    scenarios::{lose, message, phase, reason, scale},
};
use crate::fake::{Operator, Sim, agent_id, child_id};

#[tokio::test(start_paused = true)]
async fn what_drifts_comes_back_at_once_with_one_write() {
    let drifts: [(&'static str, &'static str); 5] = [
        ("ServiceAccount", "/automountServiceAccountToken"),
        ("ConfigMap", "/data/CORAIL_CHANNEL"),
        ("Secret", "/data/CORAIL_DATABASE_URL"),
        ("Service", "/spec/type"),
        ("Deployment", "/spec/progressDeadlineSeconds"),
    ];
    for (kind, field) in drifts {
        for value in [Some(json!("other")), None] {
            let (sim, mut operator) = running().await;
            let before = sim.store().at(&child_id(kind), field);
            sim.store().edit_as(&child_id(kind), field, value.clone(), "kubectl");
            operator.run(2 * SECOND).await;
            let applied = [format!("Apply {}", child_id(kind))];
            assert_eq!(sim.take_writes(), applied, "{kind} {value:?}");
            assert_eq!(sim.store().at(&child_id(kind), field), before);
            operator.run(20 * MINUTE).await;
            assert_eq!(sim.take_writes(), Vec::<String>::new());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_child_is_made_again_at_once() {
    for kind in ["ServiceAccount", "ConfigMap", "Secret", "Service"] {
        let (sim, mut operator) = running().await;
        lose(&mut sim.store(), kind);
        operator.run(2 * SECOND).await;
        let mut writes = vec![format!("Apply {}", child_id(kind))];
        // Gateways distinguish the Service by its uid from one that another client created under its name.
        if kind == "Service" {
            writes.push("Status Agent/a".to_owned());
            let children = sim.store().at(&agent_id("a"), "/status/children");
            let record = children.as_array().unwrap().iter().find(|child| child["kind"] == kind).unwrap().clone();
            assert_eq!(record["uid"], sim.store().at(&child_id(kind), "/metadata/uid"));
        }
        assert_eq!(sim.take_writes(), writes, "{kind}");
        operator.run(20 * MINUTE).await;
        assert_eq!(sim.take_writes(), Vec::<String>::new(), "{kind}");
        assert_eq!((phases(&operator), phase(&sim)), (vec![], "Running".into()), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_field_of_another_manager_is_left_alone() {
    let (sim, mut operator) = running().await;
    let theirs = "/metadata/annotations/deployment.kubernetes.io~1revision";
    sim.store().edit_as(&child_id("Deployment"), theirs, Some(json!("7")), "kube-controller-manager");
    operator.run(20 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new());
}

/// Runs while another client sets this field of a child again after each repair, and returns the number of repairs.
async fn fight(sim: &Sim, operator: &mut Operator, kind: &'static str, field: &'static str, time: Duration) -> usize {
    for _ in 0..time.as_secs() {
        sim.store().edit_as(&child_id(kind), field, Some(json!("theirs")), "other-operator");
        operator.run(SECOND).await;
    }
    let applied = format!("Apply {}", child_id(kind));
    sim.take_writes().into_iter().filter(|write| *write == applied).count()
}

#[tokio::test(start_paused = true)]
async fn a_contested_child_is_repaired_ever_more_rarely_and_says_so() {
    for (kind, field) in [("ConfigMap", "/data/CORAIL_CHANNEL"), ("Deployment", "/spec/progressDeadlineSeconds")] {
        let (sim, mut operator) = running().await;
        let applies = fight(&sim, &mut operator, kind, field, 20 * MINUTE).await;
        assert!((8..16).contains(&applies), "{kind}: {applies} in 20 minutes");
        assert_eq!(reason(&sim), "Contested", "{}", message(&sim));
        operator.run(20 * MINUTE).await;
        assert_eq!(reason(&sim), "Running", "{kind}: when they stop");
        sim.take_requests();
        sim.store().edit_as(&child_id(kind), field, Some(json!("theirs")), "other-operator");
        operator.run(2 * SECOND).await;
        assert_eq!(sim.take_writes(), [format!("Apply {}", child_id(kind))], "{kind}: the back-off is over");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_contested_during_a_rollout_starts_no_war() {
    for (kind, field) in [("ConfigMap", "/data/CORAIL_CHANNEL"), ("Deployment", "/spec/progressDeadlineSeconds")] {
        let (sim, mut operator) = running().await;
        sim.store().set_health(crate::fake::Health::Bad(None));
        sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
        operator.run(SECOND).await;
        assert_eq!(phase(&sim), "Deploying");
        sim.take_requests();
        let applies = fight(&sim, &mut operator, kind, field, 5 * MINUTE).await;
        assert!(applies < 12, "{kind}: {applies} in 5 minutes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scale_is_no_repair() {
    let (sim, mut operator) = running().await;
    scale(&mut sim.store(), 2);
    operator.run(SECOND).await;
    sim.take_requests();
    sim.store().edit_as(&child_id("Deployment"), "/spec/progressDeadlineSeconds", Some(json!(5)), "kubectl");
    operator.run(SECOND).await;
    assert!(sim.take_writes().contains(&"Apply Deployment/a".to_owned()));
    assert_ne!(reason(&sim), "Contested");
}
