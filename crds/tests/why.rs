//! Checks that `why` explains in one sentence the state of an object, the thing that it waits for, and the next step for
//! the user.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may fail in a function beside it, too")]

use crds::{advice::hint, why};
use meta::CommonStatus;
use serde_json::{Value, json};

fn sentence(metadata: Value, status: Value) -> String {
    let mut whole = json!({ "name": "my-agent", "namespace": "default", "generation": 1 });
    whole.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    let status: Option<CommonStatus> = serde_json::from_value(status).unwrap();
    why::why("Agent", &serde_json::from_value(whole).unwrap(), status.as_ref()).sentence
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

fn ready(status: &str, reason: &str, message: &str) -> Value {
    condition("Ready", status, reason, message)
}

fn stalled(reason: &str, message: &str) -> Value {
    condition("Stalled", "True", reason, message)
}

#[test]
fn one_sentence_says_where_it_is_what_it_waits_for_and_what_to_do() {
    let deleted = json!({ "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["recif.dev/cleanup"] });
    for (metadata, status, expected) in [
        (
            json!({}),
            json!(null),
            "Agent default/my-agent has not been looked at yet — see whether the operator runs and watches this namespace.",
        ),
        (
            json!({}),
            CommonStatus::initial(),
            "Agent default/my-agent has not been looked at yet — see whether the operator runs and watches this namespace.",
        ),
        (
            json!({}),
            json!({ "phase": "Running", "observedGeneration": 1, "conditions": [ready("True", "Running", "")] }),
            "Agent default/my-agent is Ready.",
        ),
        (
            json!({}),
            json!({ "phase": "Terminated", "conditions": [ready("True", "Stopped", "replicas is 0.")] }),
            "Agent default/my-agent is stopped: spec.replicas is 0.",
        ),
        (
            json!({}),
            json!({ "phase": "Running", "conditions": [ready("True", "ScaledToZero", "scaled to zero; the next request starts a Pod")] }),
            "Agent default/my-agent is Ready, scaled to zero: the next request starts a Pod.",
        ),
        (
            json!({}),
            json!({
                "phase": "Running",
                "conditions": [
                    ready("True", "Running", ""),
                    condition("Available", "True", "DeploymentReady", "Agent deployment is ready; kubectl sets the \
                        replicas of the Deployment, spec.replicas is not used until it is edited"),
                ],
            }),
            "Agent default/my-agent is Ready; kubectl sets the replicas of the Deployment, spec.replicas is not used until \
             it is edited.",
        ),
        (
            json!({}),
            json!({ "phase": "Available", "conditions": [ready("True", "Available", "")] }),
            "Agent default/my-agent is Available.",
        ),
        (
            json!({}),
            json!({
                "phase": "Resolving",
                "conditions": [ready("False", "MissingDependency", "Tool/weather-api is missing")],
            }),
            "Agent default/my-agent is Resolving and waits: Tool/weather-api is missing (MissingDependency) — create what is \
             missing, fix what is in Error, or remove the reference.",
        ),
        (
            json!({}),
            json!({ "phase": "Deploying", "conditions": [ready("False", "Deploying", "0 of 1 Pods ready")] }),
            "Agent default/my-agent is Deploying: 0 of 1 Pods ready.",
        ),
        (
            json!({}),
            json!({ "phase": "Deploying", "conditions": [ready("False", "Deploying", "")] }),
            "Agent default/my-agent is Deploying.",
        ),
        (
            json!({}),
            json!({
                "phase": "Resolving",
                "conditions": [ready("False", "ReferenceCycle", "cycle: Agent/my-agent → Tool/ask → Agent/my-agent")],
            }),
            "Agent default/my-agent is Resolving and waits: cycle: Agent/my-agent → Tool/ask → Agent/my-agent \
             (ReferenceCycle) — remove one of the references named here to break the cycle.",
        ),
        (
            json!({}),
            json!({
                "phase": "Running",
                "conditions": [ready("False", "Degraded", "flow \"b\": prompt \"later\" not found")],
            }),
            "Agent default/my-agent is Running: flow \"b\": prompt \"later\" not found (Degraded) — fix what the message \
             names; the other flows are served.",
        ),
        (
            json!({}),
            json!({ "phase": "Running", "conditions": [ready("False", "CrashLoop", "a container exits with code 1")] }),
            "Agent default/my-agent is Running: a container exits with code 1 (CrashLoop) — read the Pod's log with \
             `kubectl logs --previous`.",
        ),
        (
            json!({}),
            json!({
                "phase": "Failed",
                "conditions": [ready("False", "Failed", "no"), stalled("NameConflict", "Service my-agent is not ours")],
                "failure": {
                    "reason": "NameConflict", "during": "Rendering", "retryable": false, "attempts": 1,
                },
            }),
            "Agent default/my-agent is Failed: Service my-agent is not ours (NameConflict), checked again within 5 minutes \
             — rename this object or delete that one.",
        ),
        (
            json!({}),
            json!({
                "phase": "Failed",
                "conditions": [stalled("Refused", "apply Deployment ns/a: no (422)")],
                "failure": {
                    "reason": "Refused", "during": "Deploying", "retryable": true, "attempts": 1,
                    "nextAttemptAt": "2026-01-02T03:04:05Z",
                },
            }),
            "Agent default/my-agent is Failed: apply Deployment ns/a: no (422) (Refused), checked again within 5 minutes — \
             see which admission policy or webhook refuses it, and have it changed, or change the spec.",
        ),
        (
            json!({}),
            json!({
                "phase": "Failed",
                "conditions": [stalled("Panic", "render panicked")],
                "failure": {
                    "reason": "Panic", "during": "Rendering", "retryable": true, "attempts": 8,
                    "nextAttemptAt": "2026-01-02T03:04:05Z",
                },
            }),
            "Agent default/my-agent is Failed: render panicked (Panic), attempt 8 failed, next at 2026-01-02T03:04:05Z — \
             report it as a defect of the operator, with the output of `recif trace`.",
        ),
        (
            json!({}),
            json!({
                "phase": "Failed",
                "conditions": [stalled("InvalidSpec", "env PORT is set twice")],
                "failure": { "reason": "InvalidSpec", "during": "Pending", "retryable": false },
            }),
            "Agent default/my-agent is Failed: env PORT is set twice (InvalidSpec), not retried until the spec or its \
             references change — correct the spec and apply it again.",
        ),
        (
            json!({}),
            json!({ "phase": "Failed", "failure": { "reason": "Unhealthy", "during": "Running", "retryable": false } }),
            "Agent default/my-agent is Failed: Unhealthy, continues automatically once its Pods are ready — see \
             `kubectl logs`.",
        ),
        (
            json!({}),
            json!({
                "phase": "Rendering",
                "conditions": [ready("False", "InvalidSpec", "too large")],
                "failure": {
                    "reason": "InvalidSpec", "during": "Rendering", "retryable": true, "attempts": 2,
                    "nextAttemptAt": "2026-01-02T03:04:05Z",
                },
            }),
            "Agent default/my-agent is Rendering and waits: too large (InvalidSpec), attempt 2 failed, next at \
             2026-01-02T03:04:05Z — correct the spec and apply it again.",
        ),
        (
            json!({}),
            json!({
                "phase": "Deploying",
                "conditions": [ready("False", "NotReady", "the Pods are not ready yet")],
                "failure": {
                    "reason": "NameConflict", "during": "Rendering", "retryable": true, "attempts": 3,
                    "nextAttemptAt": "2026-01-02T03:04:05Z",
                },
            }),
            "Agent default/my-agent is Deploying and waits: the Pods are not ready yet (NotReady) — if it stays, a \
             volume is missing or its readiness probe fails: see `kubectl describe pods` and `kubectl logs`.",
        ),
        (
            json!({}),
            json!({ "phase": "Pending", "history": [{ "from": "", "to": "Pending", "reason": "first seen" }] }),
            "Agent default/my-agent is Pending and waits: first seen.",
        ),
        (
            json!({ "generation": 4 }),
            json!({ "phase": "Running", "observedGeneration": 3, "conditions": [ready("True", "Running", "")] }),
            "Agent default/my-agent is Running at generation 3 of its spec; generation 4 has not been looked at yet — see \
             whether the operator runs and watches this namespace.",
        ),
        (
            deleted.clone(),
            json!({ "phase": "Terminating", "conditions": [ready("False", "Terminating", "Deployment my-agent to go")] }),
            "Agent default/my-agent is being deleted and waits for: Deployment my-agent to go.",
        ),
        (
            deleted.clone(),
            json!({ "phase": "Running" }),
            "Agent default/my-agent is to be deleted, which the operator has not looked at yet — see whether the operator \
             runs and watches this namespace.",
        ),
        (
            json!({ "deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["recif.dev/cleanup", "example.com/hold"] }),
            json!({ "phase": "Terminating" }),
            "Agent default/my-agent is being deleted and waits for its finalizers: recif.dev/cleanup, example.com/hold.",
        ),
        (
            json!({}),
            json!({ "phase": "Hibernating" }),
            "Agent default/my-agent is Hibernating, a phase this build does not know.",
        ),
    ] {
        assert_eq!(sentence(metadata, status.clone()), expected, "{status}");
    }
}

#[test]
fn what_several_pods_hold_alone_is_said_where_nothing_shares_it() {
    let several = |pods: u8| {
        let text = "A2A tasks and conversations are held by their Pod, of which there may be";
        Some(format!("{text} {pods}: set storage to postgresql, which shares them"))
    };
    let memory = Some("memory");
    for (spec, rendered, expected) in [
        (json!({ "replicas": 2, "storage": "memory" }), None, several(2)),
        (json!({ "replicas": 2, "storage": "memory", "databaseUrl": "postgresql://h/d" }), memory, several(2)),
        (json!({ "replicas": 2 }), memory, several(2)),
        (json!({ "replicas": 2, "storage": "" }), memory, several(2)),
        (json!({ "scaling": { "maxReplicas": 3 } }), memory, several(3)),
        (json!({ "scaling": {} }), memory, several(10)),
        (json!({ "replicas": 4, "scaling": { "maxReplicas": 1 } }), memory, None),
        (json!({ "replicas": 0, "scaling": { "maxReplicas": 3 } }), memory, None),
        (json!({}), memory, None),
        (json!({ "replicas": 2 }), Some("postgresql"), None),
        (json!({ "replicas": 2 }), None, None),
        (json!({ "replicas": 2, "databaseUrl": "postgresql://h/d" }), memory, None),
        (json!({ "replicas": 2, "storage": "postgresql" }), memory, None),
        (json!({ "replicas": 2, "storage": "memory", "framework": "adk" }), memory, None),
    ] {
        let mut whole = json!({ "name": "a", "framework": "corail" });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        assert_eq!(why::pod_local_state("Agent", &whole, rendered), expected, "{spec} {rendered:?}");
        assert_eq!(why::pod_local_state("Flow", &whole, rendered), None, "{spec}");
    }
}

#[test]
fn an_image_without_a_slash_is_advised_on_in_deploying_and_once_it_failed() {
    let message = "the image corail:latest is not on the node, and a name without / is pulled only if \
                   imagePullPolicy says so";
    let advice = "give the operator --agent-image (chart: agentImage), set spec.image, or load it onto the nodes.";
    for (phase, conditions) in [
        ("Deploying", json!([ready("False", "ImagePull", message)])),
        ("Failed", json!([stalled("ProgressDeadlineExceeded", message)])),
    ] {
        let sentence = sentence(json!({}), json!({ "phase": phase, "conditions": conditions }));
        assert!(sentence.ends_with(advice), "{sentence}");
    }
    let of_a_registry = json!([ready("False", "ImagePull", "the image r/x:1 cannot be pulled")]);
    let sentence = sentence(json!({}), json!({ "phase": "Deploying", "conditions": of_a_registry }));
    assert!(sentence.ends_with("check the image's name and imagePullSecrets."), "{sentence}");
}

#[test]
fn an_image_that_is_never_pulled_and_one_that_needs_a_container_have_advice_of_their_own() {
    for (message, advice) in [
        (
            "the image r/x:1 is not on the node, and imagePullPolicy Never forbids to pull it",
            "set imagePullPolicy to IfNotPresent, or load it onto the nodes.",
        ),
        (
            "the image r/x:1 needs a container, which is not run here",
            "set the annotation recif.dev/dev-command to what runs instead, such as uv run shop.py.",
        ),
    ] {
        let conditions = json!([ready("False", "ImagePull", message)]);
        let sentence = sentence(json!({}), json!({ "phase": "Deploying", "conditions": conditions }));
        assert!(sentence.ends_with(advice), "{sentence}");
    }
}

#[test]
fn a_missing_program_is_advised_on_in_deploying_and_once_it_failed() {
    let message = "a container cannot be made: program \"mcp-server-time\" is missing";
    let advice = "install it, or set the annotation recif.dev/dev-command to what runs instead.";
    for (phase, conditions) in [
        ("Deploying", json!([ready("False", "CreateContainerConfigError", message)])),
        ("Failed", json!([stalled("ProgressDeadlineExceeded", message)])),
    ] {
        let sentence = sentence(json!({}), json!({ "phase": phase, "conditions": conditions }));
        assert!(sentence.ends_with(advice), "{sentence}");
    }
    let of_a_secret =
        json!([ready("False", "CreateContainerConfigError", "a container cannot be made: secret \"x\" is missing")]);
    let sentence = sentence(json!({}), json!({ "phase": "Deploying", "conditions": of_a_secret }));
    assert!(sentence.ends_with("that the container's environment names."), "{sentence}");
}

#[test]
fn every_reason_a_user_can_act_on_has_a_hint() {
    for reason in [
        "MissingDependency",
        "NameConflict",
        "InvalidSpec",
        "Refused",
        "ImagePull",
        "CrashLoop",
        "Unschedulable",
        "CreateContainerConfigError",
        "NotReady",
        "SelectorImmutable",
        "MissingDatabaseUrl",
        "InvalidDatabaseUrl",
        "ProgressDeadlineExceeded",
        "Unhealthy",
        "ReplicaFailure",
        "Contested",
        "CRDOutdated",
        "OtherOperator",
        "Oscillating",
        "Deleting",
        "Draining",
        "ApiServerUnavailable",
        "Forbidden",
        "NamespaceTerminating",
        "Panic",
        "IllegalEdge",
        "SpecChangedByAction",
        "Unhandled",
        "ApprovalUnmatched",
    ] {
        let hint = hint(reason).unwrap_or_else(|| panic!("{reason} has no hint"));
        assert!(!hint.ends_with('.') && hint.starts_with(char::is_lowercase), "{reason}: a hint is a clause");
    }
}

#[test]
fn since_is_when_the_present_phase_was_entered_not_when_it_was_last_written() {
    let status: CommonStatus = serde_json::from_value(json!({
        "phase": "Resolving",
        "history": [
            { "from": "Pending", "to": "Resolving", "at": "2026-01-01T00:00:00Z" },
            { "from": "Resolving", "to": "Resolving", "at": "2026-01-01T00:05:00Z" },
        ],
    }))
    .unwrap();
    let why = why::why("Agent", &Default::default(), Some(&status));
    assert_eq!(why.since.unwrap().to_string(), "2026-01-01T00:00:00Z");
}

#[test]
fn attention_is_for_what_neither_serves_as_its_spec_says_nor_is_stopped() {
    let running = |ready: Value| json!({ "phase": "Running", "observedGeneration": 1, "conditions": [ready] });
    let deleted = json!({ "generation": 1, "deletionTimestamp": "2026-01-02T03:04:05Z" });
    for (metadata, status, attention) in [
        (json!({ "generation": 1 }), running(ready("True", "Running", "")), false),
        (json!({ "generation": 2 }), running(ready("True", "Running", "")), true),
        (json!({ "generation": 1 }), running(ready("False", "Degraded", "a flow is missing")), true),
        (json!({}), json!({ "phase": "Terminated", "conditions": [ready("True", "Stopped", "")] }), false),
        (json!({}), json!({ "phase": "Available" }), false),
        (json!({}), json!({ "phase": "Deploying" }), true),
        (json!({}), json!(null), true),
        (deleted, running(ready("True", "Running", "")), true),
    ] {
        let read: Option<CommonStatus> = serde_json::from_value(status.clone()).unwrap();
        let why = why::why("Agent", &serde_json::from_value(metadata.clone()).unwrap(), read.as_ref());
        assert_eq!(why.attention, attention, "{metadata} {status}");
    }
}
