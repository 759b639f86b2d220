//! Tests `scaling`: the field managers of the number of Pods, and the status while there is no Pod.

use std::time::Duration;

use machine::Clock as _;
use serde_json::{Value, json};

use super::scenarios::{CREATE, REST, phase, reason, scale};
use crate::fake::{Health, Operator, RequestFault, RunEnd, Sim, Store, agent, agent_id, child_id};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Runs operators whose scaler wants this many Pods, one after the other as they die.
async fn live(sim: &Sim, number: i32, time: Duration) -> Operator {
    let end = sim.clock.elapsed() + time;
    loop {
        let mut operator = Operator::start(sim);
        operator.scaler = Some(number);
        if operator.run(end.saturating_sub(sim.clock.elapsed())).await == RunEnd::TimeIsOver {
            return operator;
        }
    }
}

fn switch(store: &mut Store, scaling: Option<Value>) {
    store.edit(&agent_id("a"), |body| match scaling {
        Some(scaling) => body["spec"]["scaling"] = scaling,
        None => drop(body["spec"].as_object_mut().unwrap().remove("scaling")),
    });
}

/// Returns the replicas of the Deployment and their field managers.
fn replicas(sim: &Sim) -> (Value, Vec<String>) {
    let store = sim.store();
    let owners = store.get(&child_id("Deployment")).unwrap().owned.get("/spec/replicas").cloned().unwrap_or_default();
    (store.at(&child_id("Deployment"), "/spec/replicas"), owners.into_iter().collect())
}

/// Returns reason and status of a condition of the Agent.
fn condition(sim: &Sim, type_: &str) -> (String, String) {
    let conditions = sim.store().at(&agent_id("a"), "/status/conditions");
    let found = conditions.as_array().unwrap().iter().find(|found| found["type"] == type_).unwrap().clone();
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("reason"), text("status"))
}

/// Creates a cluster with the Agent `a` and five running Pods.
async fn five() -> Sim {
    let sim = Sim::new();
    (CREATE.happens)(&mut sim.store());
    scale(&mut sim.store(), 5);
    live(&sim, 5, REST).await;
    assert_eq!((phase(&sim), replicas(&sim)), ("Running".into(), (json!(5), vec!["recif-operator".into()])));
    sim.take_requests();
    sim.fork()
}

/// Switches scaling on and off again, with this fault at the nth write, and returns the writes.
async fn on_and_off(stage: &Sim, at: Option<(usize, RequestFault)>) -> Vec<String> {
    let sim = stage.fork();
    if let Some((at, fault)) = at {
        sim.plan(
            move |request, _| {
                if request.is_write() && request.nth_write == at { fault.clone() } else { RequestFault::No }
            },
        );
    }
    switch(&mut sim.store(), Some(json!({"minReplicas": 1, "maxReplicas": 10, "concurrency": 8})));
    live(&sim, 5, MINUTE).await;
    assert_eq!(replicas(&sim), (json!(5), vec!["recif-scaler".to_owned()]), "on");
    switch(&mut sim.store(), None);
    live(&sim, 5, MINUTE).await;
    assert_eq!(replicas(&sim), (json!(5), vec!["recif-replicas".to_owned()]), "off");
    assert_eq!((phase(&sim), reason(&sim)), ("Running".into(), "Running".into()));
    let store = sim.store();
    for event in store.log.iter().filter(|event| event.id == child_id("Deployment")) {
        let number = event.after.as_ref().unwrap().number("/spec/replicas");
        assert!(number >= 5, "{number} Pods wanted on the way");
    }
    drop(store);
    sim.take_writes()
}

#[tokio::test(start_paused = true)]
async fn switched_on_and_off_at_five_pods_there_are_never_fewer_wherever_the_operator_dies() {
    let stage = five().await;
    // The template holds the concurrency limit, so these are rollouts too.
    let writes = on_and_off(&stage, None).await;
    assert!(writes.iter().filter(|write| *write == "Scale Deployment/a").count() == 2, "{writes:?}");
    for fault in [RequestFault::DieBefore, RequestFault::DieUnanswered, RequestFault::DieAfter] {
        for at in 0..writes.len() {
            on_and_off(&stage, Some((at, fault.clone()))).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lagging_watch_leaves_no_gap_either() {
    let stage = five().await;
    for kind in ["Agent", "Deployment", "Pod"] {
        let sim = stage.fork();
        let mut operator = Operator::start(&sim);
        operator.scaler = Some(5);
        for scaling in [Some(json!({"concurrency": 8})), None] {
            switch(&mut sim.store(), scaling);
            operator.lagging = vec![kind];
            operator.run(MINUTE).await;
            operator.lagging.clear();
            operator.run(MINUTE).await;
        }
        let store = sim.store();
        let mut numbers = store.log.iter().filter(|event| event.id == child_id("Deployment"));
        assert!(numbers.all(|event| event.after.as_ref().unwrap().number("/spec/replicas") >= 5), "{kind}");
    }
}

async fn created(spec: Value, number: i32) -> (Sim, Operator) {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(spec));
    let mut operator = Operator::start(&sim);
    operator.scaler = Some(number);
    operator.run(MINUTE).await;
    operator.trace.take();
    (sim, operator)
}

fn moves(operator: &Operator) -> Vec<String> {
    operator.trace.take().into_iter().filter(|step| step.from != step.to).map(|step| step.to).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_one_begins_with_the_fewest_and_follows_the_scaler_in_running() {
    let (sim, mut operator) = created(json!({"scaling": {"minReplicas": 3}}), 3).await;
    assert_eq!((phase(&sim), replicas(&sim)), ("Running".into(), (json!(3), vec!["recif-scaler".into()])));
    for number in [7, 2] {
        operator.scaler = Some(number);
        sim.take_requests();
        operator.run(MINUTE).await;
        assert_eq!((replicas(&sim).0, moves(&operator)), (json!(number), vec![]));
        assert_eq!(sim.store().at(&agent_id("a"), "/status/replicas"), json!(number));
        let writes = sim.take_writes();
        assert!(writes.iter().all(|write| write == "Status Agent/a" || write == "Scale Deployment/a"), "{writes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_not_running_before_the_scaler_has_set_the_number() {
    let sim = Sim::new();
    sim.store().create(&agent_id("a"), agent(json!({"scaling": {"minReplicas": 3}})));
    Operator::start(&sim).run(MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Deploying".into(), "Scaling".into()));
    live(&sim, 3, MINUTE).await;
    assert_eq!(phase(&sim), "Running");
}

#[tokio::test(start_paused = true)]
async fn replicas_0_stops_it_and_more_starts_it_with_the_fewest() {
    let (sim, mut operator) = created(json!({"scaling": {"minReplicas": 2}}), 4).await;
    scale(&mut sim.store(), 0);
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), replicas(&sim)), ("Terminated".into(), (json!(0), vec!["recif-replicas".into()])));
    operator.scaler = Some(2);
    scale(&mut sim.store(), 1);
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), replicas(&sim)), ("Running".into(), (json!(2), vec!["recif-scaler".into()])));
}

#[tokio::test(start_paused = true)]
async fn without_pods_it_stays_running_and_says_why() {
    let (sim, mut operator) = created(json!({"scaling": {"minReplicas": 0}}), 1).await;
    operator.scaler = Some(0);
    operator.run(10 * MINUTE).await;
    assert_eq!((phase(&sim), moves(&operator)), ("Running".into(), vec![]));
    for type_ in ["Available", "Ready"] {
        assert_eq!(condition(&sim, type_), ("ScaledToZero".into(), "True".into()), "{type_}");
    }
    sim.take_requests();
    operator.run(10 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
    operator.scaler = Some(1);
    operator.run(MINUTE).await;
    assert_eq!((condition(&sim, "Ready").0, moves(&operator)), ("Running".into(), vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_edit_while_there_are_no_pods_ends_in_running_without_any() {
    let (sim, mut operator) = created(json!({"scaling": {"minReplicas": 0}}), 0).await;
    sim.store().edit(&agent_id("a"), |body| body["spec"]["systemPrompt"] = json!("x"));
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), replicas(&sim).0), ("Running".into(), json!(0)));
    assert_eq!(condition(&sim, "Available").0, "ScaledToZero");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_number_is_taken_back() {
    let (sim, mut operator) = created(json!({"scaling": {}}), 2).await;
    sim.store().edit_as(&child_id("Deployment"), "/spec/replicas", Some(json!(9)), "kubectl");
    operator.run(MINUTE).await;
    assert_eq!(replicas(&sim), (json!(2), vec!["recif-scaler".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_the_cache_lacks_keeps_its_number_and_its_manager() {
    for (manager, desired) in [("recif-replicas", 3), ("kubectl", 7)] {
        let sim = Sim::new();
        sim.store().create(&agent_id("a"), agent(json!({"replicas": 2})));
        let mut lagging = Operator::start(&sim);
        lagging.lagging = vec!["Deployment"];
        let mut other = Operator::start(&sim);
        other.run(REST).await;
        match manager {
            "kubectl" => {
                sim.store().edit_as(&child_id("Deployment"), "/spec/replicas", Some(json!(desired)), manager);
            }
            _ => scale(&mut sim.store(), desired),
        }
        other.run(REST).await;
        assert_eq!(replicas(&sim), (json!(desired), vec![manager.to_owned()]));
        lagging.run(REST).await;
        assert_eq!((phase(&sim), replicas(&sim)), ("Running".into(), (json!(desired), vec![manager.to_owned()])));
    }
}

#[tokio::test(start_paused = true)]
async fn without_scaling_the_users_number_is_what_is_desired() {
    let sim = five().await;
    switch(&mut sim.store(), Some(json!({})));
    live(&sim, 5, MINUTE).await;
    sim.store().edit(&agent_id("a"), |body| {
        body["status"]["desiredReplicas"] = json!(7);
        let active = json!({"type": "ScalingActive", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        body["status"]["conditions"].as_array_mut().unwrap().push(active);
    });
    live(&sim, 5, MINUTE).await;
    assert_eq!(sim.store().at(&agent_id("a"), "/status/desiredReplicas"), json!(7), "the scaler's");
    switch(&mut sim.store(), None);
    live(&sim, 5, MINUTE).await;
    assert_eq!(sim.store().at(&agent_id("a"), "/status/desiredReplicas"), json!(5));
    assert!(!sim.store().at(&agent_id("a"), "/status/conditions").to_string().contains("ScalingActive"));
}

/// Reports whether the Agent's status was written since this event of the log, and whether Ready was ever False in it.
fn ready_since(sim: &Sim, from: usize) -> (bool, bool) {
    let store = sim.store();
    let written: Vec<_> = store.log[from..].iter().filter(|event| event.id == agent_id("a")).collect();
    let lost = written.iter().filter_map(|event| event.after.as_ref()).any(|obj| {
        let conditions = obj.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|found| found["type"] == "Ready" && found["status"] == "False")
    });
    (!written.is_empty(), lost)
}

#[tokio::test(start_paused = true)]
async fn more_pods_for_more_load_take_nothing_of_being_ready() {
    let (sim, mut operator) = created(json!({"scaling": {"minReplicas": 2}}), 2).await;
    let from = sim.store().log.len();
    operator.scaler = Some(6);
    operator.run(MINUTE).await;
    assert_eq!(sim.store().at(&agent_id("a"), "/status/replicas"), json!(6));
    assert_eq!(ready_since(&sim, from), (true, false));
    sim.store().set_health(Health::Bad(None));
    operator.run(5 * SECOND).await;
    assert_eq!(condition(&sim, "Ready"), ("PodsNotReady".into(), "False".into()), "fewer than the fewest");
}

#[tokio::test(start_paused = true)]
async fn the_first_pod_after_zero_has_a_minute_before_the_status_speaks_of_it() {
    let (sim, mut operator) = created(json!({"scaling": {"minReplicas": 0}}), 0).await;
    assert_eq!(condition(&sim, "Ready").0, "ScaledToZero");
    sim.store().set_health(Health::Bad(None));
    let from = sim.store().log.len();
    operator.scaler = Some(1);
    operator.run(59 * SECOND).await;
    assert_eq!(ready_since(&sim, from), (false, false), "no write");
    operator.run(2 * SECOND).await;
    assert_eq!(condition(&sim, "Ready"), ("PodsNotReady".into(), "False".into()));
    assert_eq!(condition(&sim, "Available").1, "False");
    sim.store().set_health(Health::Good);
    operator.run(MINUTE).await;
    assert_eq!(condition(&sim, "Ready"), ("Running".into(), "True".into()));
    operator.scaler = Some(0);
    operator.run(MINUTE).await;
    let from = sim.store().log.len();
    operator.scaler = Some(1);
    operator.run(MINUTE).await;
    assert_eq!((ready_since(&sim, from).1, condition(&sim, "Ready").0), (false, "Running".into()));
}

#[tokio::test(start_paused = true)]
async fn failed_and_scaled_to_zero_it_is_not_available_and_the_first_ready_pod_ends_it() {
    for mended in [6 * MINUTE, 2 * 60 * MINUTE] {
        let (sim, mut operator) = created(json!({"scaling": {"minReplicas": 0}}), 1).await;
        sim.store().set_health(Health::Bad(None));
        operator.run(6 * MINUTE).await;
        assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "Unhealthy".into()));
        // The scaler does not keep a Pod for the waiting requests any more.
        operator.scaler = Some(0);
        operator.run(mended).await;
        assert_eq!(condition(&sim, "Available"), ("DeploymentNotReady".into(), "False".into()));
        sim.store().set_health(Health::Good);
        operator.run(MINUTE).await;
        assert_eq!(phase(&sim), "Failed", "nothing says that it is fixed");
        operator.scaler = Some(1);
        operator.run(MINUTE).await;
        assert_eq!((phase(&sim), reason(&sim)), ("Running".into(), "Running".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn other_words_of_another_build_for_what_sleeps_are_no_write() {
    let (sim, _) = created(json!({"scaling": {"minReplicas": 0}}), 0).await;
    sim.store().edit(&agent_id("a"), |body| {
        for condition in body["status"]["conditions"].as_array_mut().unwrap() {
            if condition["reason"] == "ScaledToZero" {
                condition["message"] = json!("in the words of another build");
            }
        }
    });
    sim.take_requests();
    live(&sim, 0, 10 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new());
    assert!(sim.store().at(&agent_id("a"), "/status/conditions").to_string().contains("words of another build"));
}
