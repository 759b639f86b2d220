//! Statuses of objects, at times that the test chooses.

use serde_json::{Value, json};

use super::*;

/// Tracker with a clock that the test moves.
struct Case {
    tracker: Tracker,
    now: Instant,
}

fn id(kind: &str, name: &str) -> ObjectId {
    ObjectId {
        api_version: "agents.recif.dev/v1".to_owned(),
        kind: kind.to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

/// Returns an object in a phase, with the reason of its condition `Ready`.
fn object(kind: &str, name: &str, phase: &str, reason: &str, hash: &str) -> DynamicObject {
    let ready = if matches!(phase, "Running" | "Available") && reason.is_empty() { "True" } else { "False" };
    let condition = json!({
        "type": "Ready", "status": ready, "reason": if reason.is_empty() { phase } else { reason }, "message": "the message",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let object = json!({
        "apiVersion": "agents.recif.dev/v1", "kind": kind,
        "metadata": { "name": name, "namespace": "default", "generation": 1 },
        "status": { "phase": phase, "observedGeneration": 1, "conditions": [condition], "contentHash": if hash.is_empty() { Value::Null } else { hash.into() } },
    });
    serde_json::from_value(object).unwrap()
}

impl Case {
    fn new(expected: &[ObjectId]) -> Self {
        let now = Instant::now();
        let mut tracker = Tracker::new("default".to_owned());
        tracker.expect(expected.to_vec(), expected, now);
        Self { tracker, now }
    }

    fn pass(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn see(&mut self, kind: &str, name: &str, phase: &str, reason: &str, hash: &str) -> Option<String> {
        let sight = Sight::Object(id(kind, name), Box::new(object(kind, name, phase, reason, hash)));
        self.tracker.see(sight, self.now).map(|event| event.text(0))
    }

    fn tick(&mut self) -> Vec<String> {
        self.tracker.tick(self.now, |_| None).iter().map(|event| event.text(0)).collect()
    }
}

#[test]
fn a_workload_is_shown_when_it_runs_with_its_url() {
    let mut case = Case::new(&[id("Agent", "a")]);
    let service = Sight::Service { namespace: "default".to_owned(), name: "a".to_owned(), port: Some(20417) };
    assert_eq!(case.tracker.see(service, case.now), None);
    assert_eq!(case.see("Agent", "a", "Deploying", "Deploying", "h1"), None);
    assert!(!case.tracker.is_ready());
    case.pass(210);
    let line = case.see("Agent", "a", "Running", "", "h1").unwrap();
    assert_eq!(line, "agent/a             Running    0.21 s   http://127.0.0.1:20417");
    assert_eq!(case.see("Agent", "a", "Running", "", "h1"), None, "it is shown once");
    assert!(case.tracker.is_ready());
    assert_eq!(case.tracker.settled(), Some(Vec::new()));
    assert_eq!(case.tracker.next_command("/src/target/debug/recif"), "/src/target/debug/recif chat agent/a");
}

#[test]
fn a_workload_that_runs_something_else_was_replaced() {
    let mut case = Case::new(&[id("Agent", "a")]);
    case.see("Agent", "a", "Running", "", "h1");
    case.pass(5_000);
    case.tracker.expect(vec![id("Agent", "a")], &[id("Agent", "a")], case.now);
    case.see("Agent", "a", "Deploying", "Deploying", "h2");
    case.pass(160);
    assert_eq!(
        case.see("Agent", "a", "Running", "", "h2").unwrap(),
        "agent/a             Running    0.16 s   replaced"
    );
    // A change that replaces no Pod is not worth a line.
    case.see("Agent", "a", "Resolving", "Resolving", "h2");
    assert_eq!(case.see("Agent", "a", "Running", "", "h2"), None);
}

#[test]
fn a_workload_with_another_template_was_replaced_and_one_that_is_to_roll_out_is_not_yet() {
    let mut case = Case::new(&[id("Agent", "a")]);
    case.see("Agent", "a", "Running", "", "h1");
    let mut changed = object("Agent", "a", "Running", "", "h1");
    changed.metadata.annotations = Some([(crds::ROLLOUT_AT.to_owned(), "now".to_owned())].into());
    let sight = |object: &DynamicObject| Sight::Object(id("Agent", "a"), Box::new(object.clone()));
    assert_eq!(case.tracker.see(sight(&changed), case.now), None, "its status is that of before");
    changed.data["status"]["template"] = json!("t2");
    let shown = case.tracker.see(sight(&changed), case.now).map(|event| event.text(0));
    assert!(shown.as_ref().is_some_and(|line| line.ends_with("replaced")), "{shown:?}");
    assert_eq!(case.tracker.see(sight(&changed), case.now), None, "it is shown once");
}

#[test]
fn what_others_refer_to_is_shown_only_in_trouble_and_after_it() {
    let mut case = Case::new(&[id("Tool", "t")]);
    assert_eq!(case.see("Tool", "t", "Available", "", ""), None);
    assert_eq!(case.see("Tool", "t", "Error", "InvalidSpec", ""), None);
    assert_eq!(case.tick(), Vec::<String>::new(), "it may be over at once");
    case.pass(300);
    let lines = case.tick();
    assert!(
        lines.len() == 1 && lines[0].starts_with("tool/t              Error") && lines[0].contains("the message"),
        "{lines:?}"
    );
    assert_eq!(case.tick(), Vec::<String>::new());
    case.pass(1_000);
    assert_eq!(case.see("Tool", "t", "Available", "", "").unwrap(), "tool/t              Available  1.30 s");
}

#[test]
fn waiting_is_shown_after_a_second_and_slow_starts_after_ten() {
    let mut case = Case::new(&[id("Agent", "waits"), id("Agent", "slow"), id("Agent", "good")]);
    case.see("Agent", "waits", "Resolving", "MissingDependency", "");
    case.see("Agent", "slow", "Deploying", "Deploying", "h");
    case.see("Agent", "good", "Running", "", "h");
    case.pass(1_000);
    let lines = case.tick();
    assert!(lines.len() == 1 && lines[0].starts_with("agent/waits         Resolving"), "{lines:?}");
    assert_eq!(case.tracker.settled(), None, "one is on the way");
    let alone = {
        let mut alone = Case::new(&[id("Agent", "waits")]);
        alone.see("Agent", "waits", "Resolving", "MissingDependency", "");
        alone.tracker.next_command("recif")
    };
    assert_eq!(alone, "recif why agent/waits", "nothing answers yet");
    case.pass(9_000);
    assert_eq!(case.tick().len(), 1);
    assert_eq!(case.tracker.settled(), Some(vec!["agent/waits".to_owned(), "agent/slow".to_owned()]));
    assert!(!case.tracker.is_ready());
    assert_eq!(case.tracker.next_command("recif"), "recif chat agent/good");
    let names: Vec<_> = case.tracker.unready().into_iter().map(|(id, _)| id.name).collect();
    assert_eq!(names, ["waits", "slow"]);
}

#[test]
fn advice_follows_the_sentence() {
    let mut case = Case::new(&[id("PluginConfig", "p")]);
    case.see("PluginConfig", "p", "Resolving", "MissingDependency", "");
    case.pass(2_000);
    let events = case.tracker.tick(case.now, |_| Some("put KEY=… into .env".to_owned()));
    assert!(events[0].text(0).ends_with(" put KEY=… into .env"), "{events:?}");
}

#[test]
fn an_object_of_another_namespace_is_named_with_it() {
    let other = ObjectId { namespace: "partner".to_owned(), ..id("Agent", "a") };
    let case = Case::new(std::slice::from_ref(&other));
    assert_eq!(case.tracker.label(&other), "agent/a -n partner");
    assert_eq!(case.tracker.unready()[0].1, "agent/a -n partner is not there.");
}

#[test]
fn a_deployment_of_the_user_is_waited_for() {
    let id = ObjectId { api_version: "apps/v1".to_owned(), ..id("Deployment", "d") };
    let mut case = Case::new(std::slice::from_ref(&id));
    let deployment = |generation: i64, replicas: i64, available: i64| {
        let object = json!({
            "metadata": { "name": "d", "namespace": "default", "generation": generation },
            "spec": { "replicas": 2 },
            "status": { "observedGeneration": 1, "replicas": replicas, "updatedReplicas": 2, "availableReplicas": available },
        });
        Sight::Object(id.clone(), Box::new(serde_json::from_value(object).unwrap()))
    };
    for (generation, replicas, available) in [(1, 2, 1), (2, 2, 2), (1, 3, 2)] {
        assert_eq!(case.tracker.see(deployment(generation, replicas, available), case.now), None);
        assert!(!case.tracker.is_ready());
    }
    let line = case.tracker.see(deployment(1, 2, 2), case.now).unwrap().text(0);
    assert!(line.starts_with("deployment/d        Running"), "{line}");
    assert!(case.tracker.is_ready());
}

#[test]
fn objects_of_other_kinds_are_not_waited_for() {
    let map = ObjectId { api_version: "v1".to_owned(), kind: "ConfigMap".to_owned(), ..id("", "c") };
    let case = Case::new(&[map]);
    assert!(case.tracker.is_ready());
    assert_eq!(case.tracker.next_command("recif"), "");
}

#[test]
fn what_is_refused_is_no_reason_to_wait_unless_there_is_nothing_else() {
    let all = [id("Agent", "a"), id("Agent", "b")];
    let mut case = Case::new(&all);
    case.tracker.refuse(all.to_vec());
    assert_eq!(case.tracker.settled(), None, "there is nothing");
    case.tracker.refuse(vec![id("Agent", "b")]);
    assert_eq!(case.tracker.settled(), None, "one is on the way");
    case.see("Agent", "a", "Running", "", "h");
    assert_eq!(case.tracker.settled(), Some(vec!["agent/b".to_owned()]));
    case.tracker.refuse(Vec::new());
    assert_eq!(case.tracker.settled(), None, "the other one is on the way now");
    case.see("Agent", "b", "Running", "", "h");
    assert_eq!(case.tracker.settled(), Some(Vec::new()));
}
