//! Tests the PodDisruptionBudget of a workload: it is there exactly while at least two Pods run at any time and no other budget selects
//! them, and it costs an Agent with fewer Pods nothing.

use std::time::Duration;

use machine::ApiError;
use serde_json::{Value, json};

use super::{
    running::{MINUTE, phases, running},
    scenarios::{REST, phase, reason, scale},
};
use crate::fake::{
    Cascade, Health, ObjectId, Operator, RequestFault, Sim, Verb, agent, agent_id, child_id, id, run_with_restarts,
};

fn budget_id() -> ObjectId {
    id("PodDisruptionBudget", "a-budget")
}

fn has_budget(sim: &Sim) -> bool {
    sim.store().get(&budget_id()).is_some()
}

/// Reports whether the status names a budget.
fn is_recorded(sim: &Sim) -> bool {
    let children = sim.store().at(&agent_id("a"), "/status/children");
    children.as_array().into_iter().flatten().any(|child| child["kind"] == "PodDisruptionBudget")
}

/// Creates a cluster with the running Agent `a` of these fields, and its operator; `number`: what its scaler wants.
async fn created(spec: Value, number: Option<i32>) -> (Sim, Operator) {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(spec));
    let mut operator = Operator::start(&sim);
    operator.scaler = number;
    operator.run(MINUTE).await;
    operator.trace.take();
    (sim, operator)
}

async fn of_two() -> (Sim, Operator) {
    let (sim, operator) = created(json!({ "replicas": 2 }), None).await;
    assert_eq!((phase(&sim), has_budget(&sim)), ("Running".into(), true));
    sim.take_requests();
    (sim, operator)
}

#[tokio::test(start_paused = true)]
async fn two_pods_have_a_budget_before_they_exist_and_as_long_as_their_agent() {
    let (sim, mut operator) = created(json!({ "replicas": 2 }), None).await;
    let writes = sim.take_writes();
    let at = |what: &str| writes.iter().position(|write| write == what).unwrap();
    assert!(at("Apply PodDisruptionBudget/a-budget") < at("Apply Deployment/a"), "{writes:?}");
    let spec = sim.store().at(&budget_id(), "/spec");
    let selector = sim.store().at(&child_id("Deployment"), "/spec/selector");
    let whole = json!({ "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": selector });
    assert_eq!(spec, whole, "the Pods of the Deployment, of which broken ones never hold up a drain");
    let owner = sim.store().at(&budget_id(), "/metadata/ownerReferences/0/uid");
    assert_eq!(owner, sim.store().at(&agent_id("a"), "/metadata/uid"));
    operator.run(30 * MINUTE).await;
    Operator::start(&sim).run(30 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "what is in order costs nothing");
    sim.store().delete(&agent_id("a"), Cascade::Background);
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), has_budget(&sim)), (String::new(), false));
}

#[tokio::test(start_paused = true)]
async fn it_comes_and_goes_with_the_number_of_pods_and_replaces_none() {
    let (sim, mut operator) = running().await;
    let template = || sim.store().at(&child_id("Deployment"), "/spec/template");
    let hash = || sim.store().at(&agent_id("a"), "/status/contentHash");
    let before = (template(), hash());
    assert_eq!((has_budget(&sim), is_recorded(&sim)), (false, false));
    for (replicas, wanted) in [(2, true), (3, true), (1, false), (4, true), (1, false)] {
        let had = has_budget(&sim);
        scale(&mut sim.store(), replicas);
        operator.run(MINUTE).await;
        assert_eq!((has_budget(&sim), is_recorded(&sim)), (wanted, wanted), "{replicas} Pods");
        assert_eq!((phases(&operator), reason(&sim)), (vec![], "Running".into()), "{replicas} Pods");
        let writes = sim.take_writes().into_iter().filter(|write| write.contains("PodDisruptionBudget")).count();
        assert_eq!(writes, usize::from(had != wanted), "{replicas} Pods");
        operator.run(30 * MINUTE).await;
        assert_eq!(sim.take_requests(), [], "{replicas} Pods");
    }
    assert_eq!((template(), hash()), before);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_agent_has_none_and_one_that_is_started_has_one_again() {
    let (sim, mut operator) = of_two().await;
    for (replicas, expected, wanted) in [(0, "Terminated", false), (2, "Running", true)] {
        scale(&mut sim.store(), replicas);
        operator.run(MINUTE).await;
        assert_eq!((phase(&sim).as_str(), has_budget(&sim), is_recorded(&sim)), (expected, wanted, wanted));
    }
}

#[tokio::test(start_paused = true)]
async fn with_scaling_the_fewest_pods_decide() {
    for (fewest, replicas, wanted) in [(2, 1, true), (3, 1, true), (1, 5, false), (0, 5, false), (2, 0, false)] {
        let spec = json!({ "replicas": replicas, "scaling": { "minReplicas": fewest } });
        let (sim, mut operator) = created(spec, Some(5)).await;
        assert_eq!(has_budget(&sim), wanted, "minReplicas {fewest}, replicas {replicas}");
        sim.store().edit(&agent_id("a"), |body| body["spec"]["scaling"]["minReplicas"] = json!(1));
        operator.run(MINUTE).await;
        assert_eq!((has_budget(&sim), is_recorded(&sim)), (false, false), "fewer than two are enough");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_costs_those_with_two_pods_two_writes_and_the_others_none() {
    for (replicas, expected) in
        [(0, Vec::new()), (1, Vec::new()), (2, vec!["Apply PodDisruptionBudget/a-budget", "Status Agent/a"])]
    {
        let (sim, _) = created(json!({ "replicas": replicas }), None).await;
        // As an older build leaves it.
        sim.store().delete(&budget_id(), Cascade::Background);
        sim.store().edit(&agent_id("a"), |body| {
            let children = body["status"]["children"].as_array_mut().unwrap();
            children.retain(|child| child["kind"] != "PodDisruptionBudget");
        });
        sim.take_requests();
        let mut operator = Operator::start(&sim);
        operator.run(30 * MINUTE).await;
        assert_eq!(sim.take_writes(), expected, "{replicas} Pods");
        assert_eq!((phases(&operator), has_budget(&sim)), (vec![], replicas == 2), "{replicas} Pods");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_changed_or_lost_is_back_with_one_write() {
    let disturb: [fn(&Sim); 2] = [
        |sim| sim.store().edit_as(&budget_id(), "/spec/maxUnavailable", Some(json!(0)), "kubectl"),
        |sim| sim.store().delete(&budget_id(), Cascade::Background),
    ];
    for (n, disturb) in disturb.into_iter().enumerate() {
        let (sim, mut operator) = of_two().await;
        disturb(&sim);
        operator.run(Duration::from_secs(2)).await;
        assert_eq!(sim.take_writes(), ["Apply PodDisruptionBudget/a-budget"], "{n}");
        assert_eq!(sim.store().at(&budget_id(), "/spec/maxUnavailable"), json!(1), "{n}");
        operator.run(20 * MINUTE).await;
        assert_eq!((sim.take_writes(), phases(&operator)), (vec![], vec![]), "{n}");
    }
}

fn foreign(labels: Value) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {},
        "spec": { "minAvailable": 1, "selector": { "matchLabels": labels } } })
}

#[tokio::test(start_paused = true)]
async fn there_is_none_beside_a_foreign_budget() {
    let (sim, mut operator) = of_two().await;
    sim.store().create(&id("PodDisruptionBudget", "other"), foreign(json!({ "recif.dev/agent": "b" })));
    operator.run(MINUTE).await;
    assert!(has_budget(&sim), "that one is about others");
    sim.store().create(&id("PodDisruptionBudget", "users"), foreign(json!({ "recif.dev/agent": "a" })));
    operator.run(MINUTE).await;
    assert_eq!((has_budget(&sim), is_recorded(&sim)), (false, false), "the API server evicts no Pod of two budgets");
    sim.take_requests();
    operator.run(20 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), has_budget(&sim)), ("Running".into(), false), "a rollout makes none");
    phases(&operator);
    sim.store().delete(&id("PodDisruptionBudget", "users"), Cascade::Background);
    operator.run(MINUTE).await;
    assert_eq!((phases(&operator), has_budget(&sim), is_recorded(&sim)), (vec![], true, true));
}

fn edit(sim: &Sim, field: &str, value: Value) {
    sim.store().edit(&agent_id("a"), |body| body["spec"][field] = value);
}

/// Keeps a workload in a phase.
type Disturbance = fn(&Sim);

/// Phases that may last while Pods of an earlier configuration serve, and what keeps the running Agent `a` in each.
pub(super) const LASTING: [(&str, Disturbance); 4] = [
    ("Resolving", |sim| edit(sim, "tools", json!(["nowhere"]))),
    ("Rendering", |sim| {
        sim.plan(|request, _| match (request.verb, request.id.kind) {
            (Verb::Apply, "ConfigMap") => RequestFault::Refuse(ApiError::Forbidden("forbidden".into())),
            _ => RequestFault::No,
        });
        edit(sim, "systemPrompt", json!("x"));
    }),
    ("Deploying", |sim| {
        sim.store().set_health(Health::Bad(None));
        edit(sim, "image", json!("registry/two:1"));
    }),
    ("Failed", |sim| {
        sim.plan(|request, _| match request.verb {
            Verb::DryRun => RequestFault::Refuse(ApiError::Invalid("unknown field".into())),
            _ => RequestFault::No,
        });
        edit(sim, "podTemplate", json!({ "metadata": { "labels": { "x": "y" } } }));
    }),
];

#[tokio::test(start_paused = true)]
async fn a_foreign_budget_ends_ours_in_every_phase_that_lasts() {
    for (expected, keep) in LASTING {
        let (sim, mut operator) = of_two().await;
        keep(&sim);
        operator.run(MINUTE).await;
        assert_eq!((phase(&sim).as_str(), has_budget(&sim)), (expected, true));
        sim.store().create(&id("PodDisruptionBudget", "users"), foreign(json!({ "recif.dev/agent": "a" })));
        operator.run(MINUTE).await;
        assert_eq!((phase(&sim).as_str(), has_budget(&sim)), (expected, false), "two budgets refuse each eviction");
        sim.take_requests();
        operator.run(5 * MINUTE).await;
        let again = sim.take_writes().into_iter().filter(|write| write.contains("PodDisruptionBudget")).count();
        assert_eq!((phase(&sim).as_str(), again), (expected, 0));

        sim.clear_faults();
        sim.store().set_health(Health::Good);
        sim.store().delete(&id("PodDisruptionBudget", "users"), Cascade::Background);
        sim.store().edit(&agent_id("a"), |body| {
            body["spec"]["tools"] = json!([]);
            body["spec"].as_object_mut().unwrap().remove("podTemplate");
        });
        operator.run(10 * MINUTE).await;
        let end = (phase(&sim), has_budget(&sim), is_recorded(&sim));
        assert_eq!(end, ("Running".into(), true, true), "after {expected}");
    }
}

/// Scales from two Pods to one, with this fault at the nth write, and returns the writes.
async fn scaled_down(stage: &Sim, fault: Option<(usize, RequestFault)>) -> Vec<String> {
    let sim = stage.fork();
    let title = format!("{fault:?}");
    if let Some((at, fault)) = fault {
        sim.plan(
            move |request, _| {
                if request.is_write() && request.nth_write == at { fault.clone() } else { RequestFault::No }
            },
        );
    }
    scale(&mut sim.store(), 1);
    run_with_restarts(&sim, REST).await;
    let writes = sim.take_writes();
    assert_eq!((has_budget(&sim), is_recorded(&sim), phase(&sim)), (false, false, "Running".into()), "{title}");
    assert_eq!(sim.store().counts[&budget_id()], (1, 1), "{title}");
    Operator::start(&sim).run(REST * 10).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new(), "{title}");
    writes
}

#[tokio::test(start_paused = true)]
async fn wherever_the_operator_dies_on_the_way_to_one_pod_the_budget_is_gone_in_the_end() {
    let (stage, _) = of_two().await;
    let writes = scaled_down(&stage, None).await;
    assert!(writes.contains(&"Delete PodDisruptionBudget/a-budget".to_owned()), "{writes:?}");
    for fault in [RequestFault::DieBefore, RequestFault::DieUnanswered, RequestFault::DieAfter] {
        for at in 0..writes.len() {
            scaled_down(&stage, Some((at, fault.clone()))).await;
        }
    }
}
