//! Tests of failures: programs that end, that are missing, whose objects are missing, and what the state says of it.

#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may fail in a function beside it, too"
)]

mod common;

use std::{fs, os::unix::fs::PermissionsExt as _};

use common::{World, deployment, free_port, script, server};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// Not a test: the program that the node runs.
#[test]
#[ignore = "the node runs it as a program"]
fn program() {
    common::program();
}

fn container(pods: &[Pod]) -> Option<ContainerStatus> {
    pods.first()?.status.as_ref()?.container_statuses.as_ref()?.first().cloned()
}

fn waits(pods: &[Pod], reason: &str) -> bool {
    let state = container(pods).and_then(|container| container.state?.waiting);
    state.is_some_and(|waiting| waiting.reason.as_deref() == Some(reason))
}

#[tokio::test]
async fn a_program_that_ends_is_restarted_and_the_state_says_so() {
    let world = World::new();
    world.apply(deployment("crash", 1, script("echo attempt; printf 'last words'; exit 3"))).await;
    let pods = world.until("it backs off", |pods| waits(pods, "CrashLoopBackOff")).await;
    let state = container(&pods).unwrap();
    assert!(state.restart_count >= 1 && !state.ready);
    let last = state.last_state.unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    let (source, note) = world.noted("2nd time").await;
    assert_eq!(note, "ended with exit code 3, 2nd time, again in 1 s; its last lines:\n  attempt\n  last words");
    assert_eq!((source.name.as_str(), source.container.as_str()), ("crash", "c"));
    let name = pods[0].name_any();
    assert_eq!(world.log(&name, true).await.unwrap(), "attempt\nlast words\n");
    world.until("it is tried again", |pods| container(pods).is_some_and(|state| state.restart_count >= 2)).await;
    // Another template is another Pod, without the pause.
    world.apply(deployment("crash", 1, script("echo better; exec sleep 1000"))).await;
    world.rolled_out("crash", 1).await;
}

#[tokio::test]
async fn an_attempt_that_could_not_start_leaves_the_log_of_the_crash_before_it() {
    let world = World::new();
    let program = world.folder.join("program");
    // It leaves a program that the system cannot start in its own place.
    let text = "#!/bin/bash\necho last words\nprintf '#!/no/such/interpreter\\n' > \"$0.new\"\nchmod +x \"$0.new\"\nmv \"$0.new\" \"$0\"\nexit 3\n";
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    world.apply(deployment("crash", 1, json!({ "command": [program] }))).await;
    let pods = world.until("it cannot start", |pods| waits(pods, "RunContainerError")).await;
    assert_eq!(world.log(&pods[0].name_any(), true).await.unwrap(), "last words\n");
}

#[tokio::test]
async fn a_pod_whose_task_panics_is_replaced_and_the_user_learns_of_it() {
    let world = World::new();
    *world.screen.panics_at.lock().unwrap() = Some("ended with exit code 3".to_owned());
    world.apply(deployment("crash", 1, script("echo up; exit 3"))).await;
    let first = world.until("a Pod is there", |pods| !pods.is_empty()).await[0].name_any();
    let (source, _) = world.noted("its task panicked").await;
    assert_eq!((source.name.as_str(), source.pod.as_str()), ("crash", first.as_str()));
    world.until("another Pod is there", |pods| pods.first().is_some_and(|pod| pod.name_any() != first)).await;
    world.noted("2nd time").await;
}

#[tokio::test]
async fn what_cannot_run_here_is_told_with_the_remedy() {
    for (container, reason, message, note) in [
        (
            json!({ "command": ["no-such-program"] }),
            "CreateContainerError",
            "program \"no-such-program\" not found",
            "program \"no-such-program\" not found on PATH: install it, or set the annotation recif.dev/dev-command",
        ),
        (
            json!({ "args": ["serve"] }),
            "ErrImageNeverPull",
            "image acme/x:1 needs a container, which is not run here: name what runs instead, as recif.dev/dev-command: uv run shop.py",
            "image acme/x:1 needs a container",
        ),
        (
            json!({ "command": ["sh"], "envFrom": [{ "secretRef": { "name": "keys" } }] }),
            "CreateContainerConfigError",
            "secret \"keys\" not found",
            "secret \"keys\" not found",
        ),
    ] {
        let world = World::new();
        world.apply(deployment("broken", 1, container)).await;
        let pods = world.until(reason, |pods| waits(pods, reason)).await;
        let waiting = self::container(&pods).unwrap().state.unwrap().waiting.unwrap();
        assert_eq!(waiting.message.as_deref(), Some(message));
        assert!(world.noted(note).await.1.starts_with(note));
        assert_eq!(world.screen.notes.lock().unwrap().len(), 1, "it is reported once");
    }
}

#[tokio::test]
async fn a_container_starts_as_soon_as_its_secret_is_there() {
    let world = World::new();
    let from = json!({ "command": ["bash", "-c", "echo key $KEY; exec sleep 1000"], "env": [
        { "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "keys", "key": "k" } } },
    ] });
    world.apply(deployment("late", 1, from)).await;
    world.until("it waits", |pods| waits(pods, "CreateContainerConfigError")).await;
    let secret = |data: Value| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "keys" }, "stringData": data });
    world.apply(secret(json!({ "x": "y" }))).await;
    let message = |pods: &[Pod]| container(pods).and_then(|found| found.state?.waiting?.message).unwrap_or_default();
    world.until("the key is missing", |pods| message(pods) == "couldn't find key k in Secret default/keys").await;
    world.apply(secret(json!({ "k": "sesame" }))).await;
    world.written("key sesame").await;
    world.rolled_out("late", 1).await;
}

#[tokio::test]
async fn the_annotation_names_what_runs_and_another_one_replaces_the_pod() {
    let world = World::new();
    let with = |command: &str| {
        let mut object = deployment("shop", 1, json!({ "args": ["serve"] }));
        object["metadata"]["annotations"] =
            json!({ "recif.dev/dev-command": command, "recif.dev/dev-folder": std::env::temp_dir() });
        object
    };
    world.apply(with("bash -c 'echo in $(pwd); exec sleep 1000'")).await;
    let folder = std::env::temp_dir().canonicalize().unwrap();
    world.written(&format!("in {}", folder.display())).await;
    let first = world.rolled_out("shop", 1).await[0].name_any();
    world.apply(with("bash -c 'echo other; exec sleep 1000'")).await;
    world.written("other").await;
    assert_ne!(world.rolled_out("shop", 1).await[0].name_any(), first);
}

#[tokio::test]
async fn the_annotation_of_the_object_counts_that_the_deployment_belongs_to() {
    let world = World::new();
    let agent = world
        .apply(json!({
            "apiVersion": "agents.recif.dev/v1", "kind": "Agent",
            "metadata": { "name": "mine", "annotations": { "recif.dev/dev-command": "bash -c 'echo from the agent; exec sleep 1000'" } },
            "spec": { "name": "Mine", "framework": "custom", "image": "acme/mine:1" },
        }))
        .await;
    let mut object = deployment("mine", 1, json!({ "name": "agent" }));
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "agents.recif.dev/v1", "kind": "Agent", "name": "mine", "uid": agent.uid().unwrap(), "controller": true,
    }]);
    object["spec"]["template"]["metadata"]["labels"]["recif.dev/agent"] = json!("mine");
    world.apply(object).await;
    let (source, _) = world.written("from the agent").await;
    assert_eq!((source.kind.as_str(), source.name.as_str(), source.container.as_str()), ("agent", "mine", "agent"));
}

#[tokio::test]
async fn a_container_that_does_not_live_is_restarted() {
    let world = World::new();
    let mut hung = script("echo start; exec sleep 1000");
    hung["livenessProbe"] = json!({ "exec": { "command": ["false"] }, "periodSeconds": 1, "failureThreshold": 1 });
    world.apply(deployment("hung", 1, hung)).await;
    world.noted("does not answer its liveness probe").await;
    world.until("it is restarted", |pods| container(pods).is_some_and(|state| state.restart_count >= 1)).await;
}

#[tokio::test]
async fn what_happens_to_a_pod_is_recorded_as_a_kubelet_does() {
    let world = World::new();
    world.apply(deployment("gone", 1, script("exec sleep 1000"))).await;
    world.rolled_out("gone", 1).await;
    let api = world.api::<k8s_openapi::api::apps::v1::Deployment>();
    api.delete("gone", &DeleteParams::background()).await.unwrap();
    let mut hung = script("exec sleep 1000");
    hung["livenessProbe"] = json!({ "exec": { "command": ["false"] }, "periodSeconds": 1, "failureThreshold": 1 });
    world.apply(deployment("hung", 1, hung)).await;
    world.apply(deployment("crash", 1, script("exit 3"))).await;
    world.apply(deployment("missing", 1, json!({ "command": ["no-such-program"] }))).await;
    for (name, event, count) in [
        ("crash", ["Normal", "Started", "Started container c"], 2),
        ("crash", ["Warning", "BackOff", "Back-off restarting failed container c in pod crash-"], 1),
        ("missing", ["Warning", "Failed", "Error: program \"no-such-program\" not found"], 1),
        ("hung", ["Warning", "Unhealthy", "Liveness probe failed: exit code 1"], 1),
        ("hung", ["Normal", "Killing", "Stopping container c, which does not answer its liveness probe"], 1),
        ("gone", ["Normal", "Killing", "Stopping container c"], 1),
    ] {
        let found = world.recorded(name, event, count).await;
        assert_eq!(found.involved_object.field_path.as_deref(), Some("spec.containers{c}"), "{event:?}");
        assert_eq!(found.reporting_component.as_deref(), Some("recif-node"), "{event:?}");
    }
}

#[tokio::test]
async fn a_port_that_another_program_took_is_replaced() {
    let world = World::new();
    // The program takes the port of its Pod in another session, and ends: so does one that came in between.
    let steal = "setsid timeout 20 $0 program --exact --ignored --nocapture & sleep 0.5; exit 1";
    let mut thief = server("serve", free_port(), &[("TEXT", "x")]);
    let own = thief["command"][0].clone();
    thief["command"] = json!(["bash", "-c", steal, own]);
    thief["args"] = json!([]);
    thief.as_object_mut().unwrap().remove("readinessProbe");
    world.apply(deployment("thief", 1, thief)).await;
    let (_, note) = world.noted("was taken by another program").await;
    assert!(note.ends_with("another Pod is made"), "{note}");
    let first = world.pods().await.first().map(|pod| pod.name_any());
    // Not for ever: then it is restarted as any other.
    world.until("it backs off", |pods| waits(pods, "CrashLoopBackOff")).await;
    assert_ne!(world.pods().await.first().map(|pod| pod.name_any()), first);
    let scale = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    world
        .api::<k8s_openapi::api::apps::v1::Deployment>()
        .patch("thief", &PatchParams::default(), &scale)
        .await
        .unwrap();
    world.until("no Pod is left", <[Pod]>::is_empty).await;
}
