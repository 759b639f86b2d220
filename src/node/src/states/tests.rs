use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn pod() -> Pod {
    serde_json::from_value(json!({ "metadata": {}, "spec": {
        "initContainers": [{ "name": "setup", "image": "i" }, { "name": "proxy", "image": "i", "restartPolicy": "Always" }],
        "containers": [{ "name": "agent", "image": "i" }],
    } }))
    .unwrap()
}

fn ended(code: i32) -> Ended {
    Ended { exit: ProcessExit { code, signal: None }, started: at(1), finished: at(2) }
}

/// Returns the phase, and `Initialized`, `ContainersReady` and `Ready`, of containers in these states.
fn seen(change: impl FnOnce(&mut [ContainerRecord])) -> (String, Vec<bool>, Value) {
    let mut all = ContainerRecord::all(&pod());
    change(&mut all);
    let status = pod_status(&pod(), &all, at(5));
    let conditions = status.conditions.clone().unwrap();
    let holds = |type_: &str| conditions.iter().any(|found| found.type_ == type_ && found.status == "True");
    let shown = ["Initialized", "ContainersReady", "Ready"].map(holds).to_vec();
    (status.phase.clone().unwrap(), shown, serde_json::to_value(status).unwrap())
}

fn run(container: &mut ContainerRecord) {
    container.state = State::Running(at(1));
    container.is_started = true;
    container.is_ready = true;
}

#[test]
fn a_pod_is_ready_when_its_sidecar_and_containers_are() {
    let nothing = |_: &mut [ContainerRecord]| {};
    assert_eq!(seen(nothing).0, "Pending");
    assert_eq!(seen(nothing).1, [false, false, false]);
    let starting = |all: &mut [ContainerRecord]| {
        all[0].state = State::Ended(ended(0));
        run(&mut all[1]);
        all[2].state = State::Running(at(1));
    };
    assert_eq!(seen(starting).1, [true, false, false]);
    assert_eq!(seen(starting).0, "Running");
    let ready = |all: &mut [ContainerRecord]| {
        starting(all);
        run(&mut all[2]);
    };
    assert_eq!(seen(ready).1, [true, true, true]);
    let without_sidecar = |all: &mut [ContainerRecord]| {
        ready(all);
        all[1].is_ready = false;
    };
    assert_eq!(seen(without_sidecar).1, [true, false, false]);
    let failed = |all: &mut [ContainerRecord]| all[0].state = State::Ended(ended(1));
    assert_eq!((seen(failed).0, seen(failed).1), ("Pending".to_owned(), vec![false, false, false]));
}

/// Puts a container into the state of a word: `wait`, `run`, `up` (started), `ready`, `done`, `fail`, or `again` (waits after a
/// failure).
fn put(container: &mut ContainerRecord, word: &str) {
    container.is_started = matches!(word, "up" | "ready");
    container.is_ready = word == "ready";
    match word {
        "wait" => {}
        "run" | "up" | "ready" => container.state = State::Running(at(1)),
        "done" => container.state = State::Ended(ended(0)),
        "fail" => container.state = State::Ended(ended(1)),
        "again" => {
            container.state = State::Waiting("CrashLoopBackOff".into(), String::new());
            container.last = Some(ended(1));
            container.restarts = 1;
        }
        _ => panic!("{word}"),
    }
}

#[test]
fn the_states_of_the_containers_make_that_of_the_pod() {
    // An init container, a sidecar and a container; the phase, what holds, and which containers may run.
    for (words, phase, holds, may_run) in [
        ("wait wait wait", "Pending", "", 1),
        ("run wait wait", "Pending", "", 1),
        ("fail wait wait", "Pending", "", 1),
        ("again wait wait", "Pending", "", 1),
        ("done wait wait", "Pending", "", 2),
        ("done run wait", "Pending", "", 2),
        ("done up wait", "Pending", "Initialized", 3),
        ("done ready wait", "Pending", "Initialized", 3),
        ("done ready run", "Running", "Initialized", 3),
        ("done ready up", "Running", "Initialized", 3),
        ("done up ready", "Running", "Initialized", 3),
        ("done ready ready", "Running", "Initialized ContainersReady Ready", 3),
        ("done ready fail", "Running", "Initialized", 3),
        ("done ready again", "Running", "Initialized", 3),
        ("done again ready", "Running", "", 2),
    ] {
        let mut all = ContainerRecord::all(&pod());
        for (container, word) in all.iter_mut().zip(words.split(' ')) {
            put(container, word);
        }
        let status = pod_status(&pod(), &all, at(5));
        assert_eq!(status.phase.as_deref(), Some(phase), "{words}");
        let found = status.conditions.iter().flatten().filter(|found| found.status == "True");
        let found = found.filter(|found| !found.type_.starts_with("Pod")).map(|found| found.type_.as_str());
        assert_eq!(found.collect::<Vec<_>>().join(" "), holds, "{words}");
        let next = (0..all.len()).filter(|index| all.iter().take(*index).all(ContainerRecord::is_passed));
        assert_eq!(next.count(), may_run, "{words}");
    }
}

#[test]
fn each_state_is_told_as_a_kubelet_does() {
    let (_, _, status) = seen(|all| {
        all[0].state = State::Ended(ended(0));
        run(&mut all[1]);
        all[2].state = State::Waiting("CrashLoopBackOff".into(), "back-off 1s".into());
        all[2].last = Some(ended(3));
        all[2].restarts = 2;
    });
    let agent = &status["containerStatuses"][0];
    assert_eq!(agent["state"], json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 1s" } }));
    assert_eq!(agent["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(agent["lastState"]["terminated"]["reason"], "Error");
    assert_eq!((&agent["restartCount"], &agent["ready"]), (&json!(2), &json!(false)));
    let init = &status["initContainerStatuses"];
    assert_eq!((&init[0]["ready"], &init[0]["state"]["terminated"]["reason"]), (&json!(true), &json!("Completed")));
    assert_eq!((&init[1]["ready"], &init[1]["started"]), (&json!(true), &json!(true)));
    assert_eq!(status["phase"], "Running", "it has run");
    assert_eq!(status["podIP"], "127.0.0.1");
    let ready = status["conditions"].as_array().unwrap().iter().find(|found| found["type"] == "Ready").unwrap();
    assert_eq!(ready["message"], "containers with unready status: [agent]");
}

#[test]
fn times_of_conditions_change_with_their_status_alone() {
    let mut pod = pod();
    let mut all = ContainerRecord::all(&pod);
    let time = |pod: &Pod, type_: &str| {
        let conditions = pod.status.as_ref().unwrap().conditions.as_ref().unwrap();
        conditions.iter().find(|found| found.type_ == type_).unwrap().last_transition_time.as_ref().unwrap().0
    };
    pod.status = Some(pod_status(&pod, &all, at(1)));
    all[0].state = State::Ended(ended(0));
    all[1..].iter_mut().for_each(run);
    pod.status = Some(pod_status(&pod, &all, at(2)));
    assert_eq!((time(&pod, "PodScheduled"), time(&pod, "Ready")), (at(1), at(2)));
    pod.status = Some(pod_status(&pod, &all, at(3)));
    assert_eq!(time(&pod, "Ready"), at(2));
    assert_eq!(pod.status.as_ref().unwrap().start_time.as_ref().unwrap().0, at(1));
    all[2].is_ready = false;
    pod.status = Some(pod_status(&pod, &all, at(4)));
    assert_eq!(time(&pod, "Ready"), at(4));
}
