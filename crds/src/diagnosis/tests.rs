use serde_json::json;

use super::*;

fn pod(status: Value) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "a-1" }, "spec": { "containers": [], "nodeName": "n-2" },
        "status": status }))
    .unwrap()
}

fn container(state: Value) -> Value {
    json!({ "containerStatuses": [{ "name": "agent", "image": "i", "imageID": "", "ready": false,
        "restartCount": 0, "state": state }] })
}

/// Returns the status of a Pod whose container has no image, behind a sidecar in this state.
fn beside_the_sidecar(state: Value) -> Value {
    let mut status = container(json!({ "waiting": { "reason": "ErrImagePull" } }));
    status["initContainerStatuses"] = container(state)["containerStatuses"].take();
    status["initContainerStatuses"][0]["name"] = json!("proxy");
    status
}

#[test]
fn a_pod_is_told_in_the_words_of_kubelet_and_scheduler() {
    let back_off = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image \"x/y\"" } });
    let crash = json!({ "containerStatuses": [{ "name": "agent", "image": "i", "imageID": "", "ready": false,
        "restartCount": 4, "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 40s" } },
        "lastState": { "terminated": { "exitCode": 137 } } }] });
    let unscheduled = json!({ "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu." }] });
    for (status, expected) in [
        (container(back_off), &["Pod a-1, agent: ImagePullBackOff: Back-off pulling image \"x/y\""][..]),
        (crash, &["Pod a-1, agent: CrashLoopBackOff: back-off 40s (restarted 4 times, last exit code 137)"]),
        (unscheduled, &["Pod a-1: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."]),
        (container(json!({ "terminated": { "exitCode": 1 } })), &["Pod a-1, agent: Error, exit code 1"]),
        (container(json!({ "running": {} })), &["Pod a-1, agent: running, but its readiness probe does not pass"]),
        (container(json!({ "waiting": { "reason": "ContainerCreating" } })), &[]),
        (beside_the_sidecar(json!({ "running": {} })), &["Pod a-1, agent: ErrImagePull"]),
        (
            beside_the_sidecar(json!({ "waiting": { "reason": "CrashLoopBackOff" } })),
            &["Pod a-1, proxy: CrashLoopBackOff", "Pod a-1, agent: ErrImagePull"],
        ),
        (json!({ "reason": "Evicted", "message": "low on disk" }), &["Pod a-1: Evicted: low on disk"]),
        (json!({}), &[]),
    ] {
        assert_eq!(pod_problems(&pod(status.clone())), expected, "{status}");
    }
}

#[test]
fn the_node_that_was_lost_with_a_pod_is_named() {
    let mut status = container(json!({ "running": {} }));
    status["containerStatuses"][0]["ready"] = json!(true);
    for (ready, lines) in [
        (json!({ "status": "False" }), &["Pod a-1: node n-2 does not report any more"][..]),
        (json!({ "status": "False", "reason": "ReadinessGatesNotReady" }), &[]),
        (json!({ "status": "True" }), &[]),
    ] {
        status["conditions"] = json!([ready]);
        status["conditions"][0]["type"] = json!("Ready");
        assert_eq!(pod_problems(&pod(status.clone())), lines, "{status}");
    }
}

#[test]
fn a_pod_is_silent_while_it_is_not_ready_and_its_status_does_not_say_why() {
    let creating = container(json!({ "waiting": { "reason": "ContainerCreating" } }));
    let pulling = container(json!({ "waiting": { "reason": "ErrImagePull" } }));
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let mut pulled = creating.clone();
    pulled["conditions"] = json!([{ "type": "PodReadyToStartContainers", "status": "True" }]);
    for (status, expected) in [
        (creating.clone(), true),
        (pulled, false),
        (json!({}), true),
        (pulling, false),
        (ready, false),
        (json!({ "phase": "Succeeded" }), false),
    ] {
        assert_eq!(is_silent(&pod(status.clone())), expected, "{status}");
    }
    let mut ending = pod(creating);
    ending.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert!(!is_silent(&ending));
}

#[test]
fn a_warning_that_only_repeats_a_reason_yields_to_one_that_says_more() {
    let mount = ("FailedMount", "secret \"keys\" not found\n");
    let scheduling = ("FailedScheduling", "0/1 nodes are available");
    let never = ("ErrImageNeverPull", "Container image \"x\" is not present with pull policy of Never");
    let pull = ("Failed", "Failed to pull image \"x\": not found");
    let (bare_never, bare_pull) = (("Failed", "Error: ErrImageNeverPull"), ("Failed", "Error: ErrImagePull"));
    let (back_off, config) = (("BackOff", "Error: ImagePullBackOff"), ("Failed", "Error: secret \"keys\" not found"));
    for (newest_first, expected) in [
        (&[mount, pull][..], Some(mount)),
        (&[scheduling, mount], None),
        (&[bare_never, never], Some(never)),
        (&[bare_never, mount, never], Some(never)),
        (&[back_off, bare_pull, pull], Some(pull)),
        (&[bare_never, mount, scheduling], Some(bare_never)),
        (&[config, never], Some(config)),
        (&[], None),
    ] {
        let expected = expected.map(|(reason, message)| format!("Pod a-1: {reason}: {}", message.trim()));
        assert_eq!(pod_warning("a-1", newest_first), expected, "{newest_first:?}");
    }
}

#[test]
fn the_container_that_is_not_ready_speaks() {
    let crash = json!({ "containerStatuses": [{ "name": "agent", "image": "i", "imageID": "", "ready": false,
        "restartCount": 4, "state": { "waiting": { "reason": "CrashLoopBackOff" } } }] });
    for (status, expected) in [
        (container(json!({ "running": {} })), Some(("agent", false))),
        (crash, Some(("agent", true))),
        (container(json!({ "waiting": { "reason": "ErrImagePull" } })), None),
        (json!({}), None),
    ] {
        assert_eq!(failing_container(&pod(status.clone())), expected, "{status}");
    }
}

#[test]
fn the_last_words_are_an_error_or_the_last_line() {
    let error = r#"{"level":"ERROR","message":"not ready: no `x`","file":"prompts/p.prompt","line":2}"#;
    let plain = r#"{"level":"ERROR","message":"no key"}"#;
    for (log, expected) in [
        (&[error, r#"{"level":"INFO","message":"listening"}"#][..], Some("prompts/p.prompt:2: not ready: no `x`")),
        (&[error, plain], Some("no key")),
        (&["Traceback", "ValueError: bad ", ""], Some("ValueError: bad")),
        (&["", " "], None),
        (&[], None),
    ] {
        let log: Vec<String> = log.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(last_error(&log).as_deref(), expected, "{log:?}");
    }
    let long = last_error(&["é".repeat(1000)]).unwrap();
    assert_eq!((long.chars().count(), long.ends_with('…')), (MAX_LINE_CHARS + 1, true));
}

#[test]
fn a_deployment_is_told_when_it_gave_up_or_may_not_make_pods() {
    let deployment = |condition: Value| -> Deployment {
        serde_json::from_value(json!({ "metadata": { "name": "a" }, "status": { "conditions": [condition] } })).unwrap()
    };
    let quota =
        json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota" });
    assert_eq!(deployment_problems(&deployment(quota)), ["Deployment a: FailedCreate: exceeded quota"]);
    let fine = json!({ "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" });
    assert!(deployment_problems(&deployment(fine)).is_empty());
}

#[test]
fn what_is_referred_to_is_told_unless_it_is_available() {
    let status = |phase: &str, available: &str, ready: &str| -> CommonStatus {
        let condition = |type_: &str, status: &str, message: &str| {
            json!({ "type": type_, "status": status, "reason": "R", "message": message,
                "lastTransitionTime": "2026-11-21T11:00:00Z" })
        };
        let conditions = [condition("Available", available, ""), condition("Ready", available, ready)];
        serde_json::from_value(json!({ "phase": phase, "conditions": conditions })).unwrap()
    };
    let error = status("Error", "False", "HTTP tool requires an endpoint");
    let told = reference_problem("Tool", "w", Some(&error)).unwrap();
    assert_eq!(told, "Tool w: Error: HTTP tool requires an endpoint");
    assert_eq!(reference_problem("Tool", "w", Some(&status("Available", "True", ""))), None);
    assert_eq!(reference_problem("Model", "m", None).unwrap(), "Model m: does not exist");
    let builtin = "Tool calculator: builtin of the runtime; a Tool of this name would replace it";
    assert_eq!(reference_problem("Tool", "calculator", None).unwrap(), builtin);
    assert_eq!(reference_problem("Model", "calculator", None).unwrap(), "Model calculator: does not exist");
    for unseen in [CommonStatus::default(), serde_json::from_value(CommonStatus::initial()).unwrap()] {
        let unseen = reference_problem("Prompt", "p", Some(&unseen)).unwrap();
        assert_eq!(unseen, "Prompt p: not yet seen by an operator");
    }
}

#[test]
fn details_stay_few() {
    let lines = (0..9).map(|number| format!("Pod {number}")).chain(["Pod 0".to_owned()]).collect();
    let kept = first_lines(lines);
    assert_eq!((kept.len(), kept.last().unwrap().as_str()), (7, "… and 3 more"));
}
