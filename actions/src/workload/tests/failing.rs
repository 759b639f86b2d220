//! Tests failures of Pods and name conflicts: their status, and their end.

use crds::pod_problem::PodProblem;
use std::time::Duration;

use machine::ApiError;
use serde_json::json;

use super::{
    running::running,
    scenarios::{CREATE, REST, message, phase, reason},
};
use crate::fake::{Cascade, Health, Operator, RequestFault, Sim, Verb, agent, agent_id, child_id};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn crash_loop() -> Option<PodProblem> {
    Some(PodProblem::CrashLoop { container: "agent".into(), exit_code: 3 })
}

/// Creates an Agent while Pods have this health.
pub(super) async fn created(health: Health, time: Duration) -> (Sim, Operator) {
    let sim = Sim::new();
    sim.store().set_health(health);
    sim.store().create(&agent_id("a"), agent(json!({})));
    let mut operator = Operator::start(&sim);
    operator.run(time).await;
    (sim, operator)
}

#[tokio::test(start_paused = true)]
async fn pods_that_say_nothing_are_waited_for_ten_seconds_in_silence() {
    let (sim, mut operator) = created(Health::Bad(None), 9 * SECOND).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Deploying".into(), "Deploying".into()));
    assert_eq!(message(&sim), "0 of 1 Pods ready", "from the first moment on");
    operator.run(2 * SECOND).await;
    assert_eq!(reason(&sim), "NotReady");
    sim.take_requests();
    operator.run(5 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new(), "it is said once");
}

#[tokio::test(start_paused = true)]
async fn why_a_pod_does_not_come_up_is_said_within_ten_seconds_in_the_users_words() {
    let image = |image: &str| PodProblem::ImagePull { image: image.into() };
    let never = |image: &str| PodProblem::ImageNeverPull { image: image.into() };
    let cases = [
        (image("registry/x:1"), "ImagePull", "the image registry/x:1 cannot be pulled"),
        (image("x"), "ImagePull", "the image x cannot be pulled"),
        (
            PodProblem::NeedsContainer { image: "registry/x:1".into() },
            "ImagePull",
            "the image registry/x:1 needs a container, which is not run here",
        ),
        (
            never("registry/x:1"),
            "ImagePull",
            "the image registry/x:1 is not on the node, and imagePullPolicy Never forbids to pull it",
        ),
        (
            never("x"),
            "ImagePull",
            "the image x is not on the node, and a name without / is pulled only if imagePullPolicy says so",
        ),
        (crash_loop().expect("one"), "CrashLoop", "container agent ends with exit code 3"),
        (
            PodProblem::CreateContainerConfigError { object: "secret \"keys\"".into() },
            "CreateContainerConfigError",
            "a container cannot be made: secret \"keys\" is missing",
        ),
        (
            PodProblem::CreateContainerConfigError { object: "program \"npx\"".into() },
            "CreateContainerConfigError",
            "a container cannot be made: program \"npx\" is missing",
        ),
        (PodProblem::Unschedulable, "Unschedulable", "no node fits the Pod"),
    ];
    for (trouble, why, sentence) in cases {
        let (sim, mut operator) = created(Health::Bad(Some(trouble)), 10 * SECOND).await;
        assert_eq!((reason(&sim), message(&sim)), (why.into(), sentence.into()));
        let reported = operator.trace.take().into_iter().filter_map(|step| step.event);
        let warnings: Vec<_> = reported.filter(|event| event.warning).map(|event| event.reason).collect();
        assert_eq!(warnings, [why], "an Event as soon as it is known, once");
        sim.store().set_health(Health::Good);
        operator.run(MINUTE).await;
        assert_eq!(phase(&sim), "Running");
    }
}

#[tokio::test(start_paused = true)]
async fn past_the_deadline_it_is_failed_and_goes_on_as_soon_as_its_pods_are_ready() {
    let (sim, mut operator) = created(Health::Bad(crash_loop()), 11 * MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "ProgressDeadlineExceeded".into()));
    assert_eq!(message(&sim), "container agent ends with exit code 3");
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_requests(), [], "looking writes nothing");
    sim.store().set_health(Health::Good);
    operator.run(2 * SECOND).await;
    assert_eq!(phase(&sim), "Running");
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_created_fail_it_until_they_can() {
    for health in [Health::Refused, Health::NoReplicaSet] {
        let (sim, mut operator) = created(health, 10 * SECOND).await;
        assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "ReplicaFailure".into()));
        assert!(message(&sim).contains("exceeded quota"), "{}", message(&sim));
        sim.take_requests();
        operator.run(60 * MINUTE).await;
        assert!(sim.take_writes().len() < 100);
        sim.store().set_health(Health::Good);
        operator.run(MINUTE).await;
        assert_eq!(phase(&sim), "Running");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_that_is_created_within_three_seconds_is_no_failure() {
    let (sim, mut operator) = created(Health::NoReplicaSet, 2 * SECOND).await;
    assert_eq!(phase(&sim), "Deploying", "the Deployment may speak of an older template");
    sim.store().set_health(Health::Good);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim), "Running");
    assert!(operator.trace.take().iter().all(|step| step.to != "Failed"));
}

#[tokio::test(start_paused = true)]
async fn nothing_available_for_five_minutes_is_unhealthy_until_it_is_ready() {
    let (sim, mut before) = running().await;
    sim.store().set_health(Health::Bad(crash_loop()));
    before.run(4 * MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Running".into(), "CrashLoop".into()));
    let mut operator = Operator::start(&sim);
    operator.run(70 * SECOND).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "Unhealthy".into()), "also after a restart");
    sim.take_requests();
    operator.run(30 * MINUTE).await;
    assert_eq!(sim.take_requests(), []);
    sim.store().set_health(Health::Good);
    operator.run(2 * SECOND).await;
    assert_eq!(phase(&sim), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_lost_pod_is_not_ready_and_still_running() {
    let (sim, mut operator) = running().await;
    super::scenarios::scale(&mut sim.store(), 2);
    operator.run(MINUTE).await;
    operator.trace.take();
    let pod = sim.store().end_state().into_keys().find(|id| id.starts_with("Pod/")).expect("a Pod");
    let pod = crate::fake::ObjectId { kind: "Pod", namespace: crate::fake::NS.into(), name: pod.replace("Pod/", "") };
    sim.store().set_health(Health::Bad(crash_loop()));
    sim.store().delete(&pod, Cascade::Background);
    operator.run(3 * SECOND).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Running".into(), "CrashLoop".into()));
    sim.store().set_health(Health::Good);
    operator.run(10 * SECOND).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Running".into(), "Running".into()));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_taken_is_never_touched_and_used_when_it_is_free() {
    for kind in ["ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment"] {
        let sim = Sim::new();
        let body = json!({"kind": kind, "metadata": {"labels": {"app": "theirs"}}, "data": {"CORAIL_CHANNEL": "x"}});
        sim.store().create(&child_id(kind), body);
        let theirs = || ["/metadata/labels", "/data"].map(|part| sim.store().at(&child_id(kind), part));
        let before = theirs();
        (CREATE.happens)(&mut sim.store());
        let mut operator = Operator::start(&sim);
        operator.run(MINUTE).await;
        assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "NameConflict".into()), "{kind}");
        assert!(message(&sim).starts_with(&format!("{} exists", child_id(kind))), "{}", message(&sim));
        sim.take_requests();
        operator.run(30 * MINUTE).await;
        assert_eq!(sim.take_writes(), Vec::<String>::new(), "{kind}: looking writes nothing");
        assert_eq!(theirs(), before, "{kind}: untouched");
        sim.store().delete(&child_id(kind), Cascade::Background);
        operator.run(MINUTE).await;
        assert_eq!(phase(&sim), "Running", "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_with_another_selector_is_said_once_until_it_is_deleted() {
    let sim = Sim::new();
    let owner = json!({"apiVersion": "agents.recif.dev/v1", "kind": "Agent", "name": "a", "uid": "agent-a-1", "controller": true});
    let selector = json!({"matchLabels": {"app": "a"}});
    let body = json!({"kind": "Deployment", "metadata": {"ownerReferences": [owner]}, "spec": {"selector": selector}});
    (CREATE.happens)(&mut sim.store());
    sim.store().create(&child_id("Deployment"), body);
    let mut operator = Operator::start(&sim);
    operator.run(MINUTE).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "SelectorImmutable".into()));
    sim.take_requests();
    operator.run(30 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new());
    sim.store().delete(&child_id("Deployment"), Cascade::Background);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_template_leaves_the_running_pods_and_is_said_once() {
    let (sim, mut operator) = running().await;
    sim.plan(|request, _| match request.verb {
        Verb::DryRun => RequestFault::Refuse(ApiError::Invalid("unknown field \"x\"".into())),
        _ => RequestFault::No,
    });
    sim.store().edit(&agent_id("a"), |body| body["spec"]["podTemplate"] = json!({"metadata": {"labels": {"x": "y"}}}));
    operator.run(REST).await;
    assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "InvalidSpec".into()));
    assert_eq!(message(&sim), "podTemplate is refused by the API server: unknown field \"x\"");
    assert_eq!(sim.store().at(&child_id("Deployment"), "/status/ready"), json!(1));
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    assert_eq!(sim.take_writes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_is_orphaned_is_taken_up_by_the_next_agent_of_that_name() {
    let (sim, mut operator) = running().await;
    sim.store().delete(&agent_id("a"), Cascade::Orphan);
    operator.run(MINUTE).await;
    assert!(sim.store().get(&child_id("Deployment")).is_some(), "it was to be left");
    let before = sim.store().counts[&child_id("Deployment")];
    sim.store().create(&agent_id("a"), agent(json!({"tools": ["weather"], "databaseUrl": "postgresql://u:p@db/x"})));
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim), "Running");
    assert_eq!(sim.store().counts[&child_id("Deployment")], before, "not made again");
    assert_eq!(sim.store().end_state()["Deployment/a"]["owners"], json!(["\"Agent\"/\"a\""]));
}

/// Injects an admission policy that denies this kind, each time with another message.
fn refusing(sim: &Sim, kind: &'static str) {
    let mut number = 0;
    sim.plan(move |request, _| match request.verb {
        Verb::Apply | Verb::DryRun if request.id.kind == kind => {
            number += 1;
            RequestFault::Refuse(ApiError::Refused(format!("denied by a policy, request {number} {}", "x".repeat(400))))
        }
        _ => RequestFault::No,
    });
}

/// Runs until the rejection is in the status, for an hour without a write, and until the Agent runs after the rejection ends.
async fn refused_then_taken(sim: &Sim, operator: &mut Operator, text: &str) {
    operator.run(MINUTE).await;
    assert_eq!((phase(sim), reason(sim)), ("Failed".into(), "Refused".into()), "{text}");
    let first = message(sim);
    assert!(first.starts_with("denied by a policy") && first.chars().count() == 300, "{text}: {first}");
    sim.take_requests();
    operator.run(60 * MINUTE).await;
    let requests = sim.take_requests();
    assert!(requests.iter().all(|request| !request.is_write()), "{text}: looking writes nothing");
    let looks = requests.iter().filter(|request| request.verb == Verb::DryRun).count();
    assert!((12..150).contains(&looks), "{text}: {looks} dry runs in an hour");
    assert_eq!(message(sim), first, "{text}");
    sim.clear_faults();
    operator.run(6 * MINUTE).await;
    assert_eq!(phase(sim), "Running", "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_refuses_is_said_once_and_taken_when_the_policy_is_gone() {
    for kind in ["ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment"] {
        let sim = Sim::new();
        refusing(&sim, kind);
        (CREATE.happens)(&mut sim.store());
        refused_then_taken(&sim, &mut Operator::start(&sim), kind).await;
    }
    for overlay in [json!(null), json!({"metadata": {"labels": {"x": "y"}}})] {
        let (sim, mut operator) = running().await;
        refusing(&sim, "Deployment");
        sim.store().edit(&agent_id("a"), |body| {
            body["spec"]["systemPrompt"] = json!("another one");
            body["spec"]["podTemplate"] = overlay.clone();
        });
        let text = format!("an edit with podTemplate {overlay}");
        refused_then_taken(&sim, &mut operator, &text).await;
        assert_eq!(sim.store().at(&child_id("Deployment"), "/status/ready"), json!(1));
    }
}

#[tokio::test(start_paused = true)]
async fn where_dry_runs_tell_nothing_it_is_tried_again_ever_more_rarely() {
    for dry_run in [None, Some("admission webhook \"w\" does not support dry run")] {
        let sim = Sim::new();
        sim.plan(move |request, _| match (request.verb, dry_run) {
            (Verb::Apply, _) if request.id.kind == "Deployment" => RequestFault::Refuse(ApiError::Refused("no".into())),
            (Verb::DryRun, Some(words)) => RequestFault::Refuse(ApiError::Refused(words.into())),
            _ => RequestFault::No,
        });
        (CREATE.happens)(&mut sim.store());
        let mut operator = Operator::start(&sim);
        operator.run(60 * MINUTE).await;
        assert_eq!((phase(&sim), reason(&sim)), ("Failed".into(), "Refused".into()));
        let writes = sim.take_writes().len();
        assert!(writes < 250, "{dry_run:?}: {writes} writes in an hour");
        sim.clear_faults();
        operator.run(7 * MINUTE).await;
        assert_eq!(phase(&sim), "Running", "{dry_run:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_and_starting_are_said_rightly_and_available_never_speaks_of_an_earlier_phase() {
    let (sim, mut operator) = running().await;
    let statuses = |from: usize| -> Vec<(String, String, String)> {
        let store = sim.store();
        let agents = store.log[from..].iter().filter(|event| event.id == agent_id("a"));
        let bodies = agents.filter_map(|event| event.after.as_ref()).map(|obj| obj.body["status"].clone());
        let of = |status: &serde_json::Value, type_: &str| {
            let all = status["conditions"].as_array().cloned().unwrap_or_default();
            let found = all.iter().find(|found| found["type"] == type_).cloned().unwrap_or_default();
            format!("{} {}", found["reason"].as_str().unwrap_or_default(), found["status"].as_str().unwrap_or_default())
        };
        let phase = |status: &serde_json::Value| status["phase"].as_str().unwrap_or_default().to_owned();
        bodies.map(|status| (phase(&status), of(&status, "Ready"), of(&status, "Available"))).collect()
    };
    let from = sim.store().log.len();
    super::scenarios::scale(&mut sim.store(), 0);
    operator.run(MINUTE).await;
    assert_eq!(phase(&sim), "Terminated");
    for (phase, ready, _) in statuses(from) {
        assert!(!ready.contains("NotReady"), "{phase}: {ready}");
    }
    let from = sim.store().log.len();
    sim.store().set_health(Health::Bad(None));
    super::scenarios::scale(&mut sim.store(), 1);
    operator.run(MINUTE).await;
    for (phase, _, available) in statuses(from).iter().filter(|(phase, ..)| phase != "Terminated") {
        assert!(!available.starts_with("Stopped"), "{phase}: {available}");
    }
    let (sim, _) = created(Health::Bad(None), 5 * SECOND).await;
    let conditions = sim.store().at(&agent_id("a"), "/status/conditions");
    let available = conditions.as_array().unwrap().iter().find(|found| found["type"] == "Available").unwrap().clone();
    assert_eq!((phase(&sim), available["reason"].clone()), ("Deploying".into(), json!("Deploying")));
}
