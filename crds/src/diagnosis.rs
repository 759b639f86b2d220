//! Summarizes the problems of the objects that an object depends on, one line each. Pure functions: the caller passes
//! the objects in.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ContainerStatus, Pod},
};
use meta::{CommonStatus, condition_type};
use serde_json::Value;

use crate::{
    pod_problem::{ContainerView, reason_and_message},
    tool::is_builtin,
};

/// Most lines of detail: more would hide the sentence that they belong to.
const MAX_LINES: usize = 6;

/// Removes repeated lines and keeps the first few; a last line says how many more there are.
pub fn first_lines(lines: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for line in lines {
        if !kept.contains(&line) {
            kept.push(line);
        }
    }
    let more = kept.len().saturating_sub(MAX_LINES);
    kept.truncate(MAX_LINES);
    if more > 0 {
        kept.push(format!("… and {more} more"));
    }
    kept
}

/// Reports whether the condition `Ready` of a Pod is True.
pub fn is_pod_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == condition_type::READY && condition.status == "True")
}

/// Returns the problems that the kubelet and the scheduler report for a Pod that is not ready, one line each.
pub fn pod_problems(pod: &Pod) -> Vec<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let Some(status) = &pod.status else { return Vec::new() };
    let mut lines = Vec::new();
    for condition in status.conditions.iter().flatten() {
        if condition.type_ == condition_type::POD_SCHEDULED && condition.status == "False" {
            let reason = condition.reason.as_deref().unwrap_or("Unschedulable");
            lines.push(format!("Pod {name}: {}", reason_and_message(reason, condition.message.as_deref())));
        }
    }
    if let Some(reason) = status.reason.as_deref() {
        lines.push(format!("Pod {name}: {}", reason_and_message(reason, status.message.as_deref())));
    }
    lines.extend(lost_node(pod).map(|node| format!("Pod {name}: node {node} does not report any more")));
    let told = |container: &ContainerStatus| {
        view(container).describe().map(|text| format!("Pod {name}, {}: {text}", container.name))
    };
    let main: Vec<_> = status.container_statuses.iter().flatten().filter_map(told).collect();
    // A sidecar that runs is not ready because the container behind it is not; that container is reported instead.
    let init = status.init_container_statuses.iter().flatten();
    lines.extend(init.filter(|container| main.is_empty() || !is_running(container)).filter_map(told));
    lines.extend(main);
    lines
}

/// Returns the node of a Pod that is not ready because its node was lost. Kubernetes then sets the status of `Ready` alone;
/// whenever the kubelet sets it to False, it gives a reason.
fn lost_node(pod: &Pod) -> Option<&str> {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let lost = conditions.any(|condition| {
        condition.type_ == condition_type::READY
            && condition.status == "False"
            && condition.reason.as_deref().unwrap_or_default().is_empty()
    });
    pod.spec.as_ref()?.node_name.as_deref().filter(|_| lost)
}

fn is_running(container: &ContainerStatus) -> bool {
    container.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// Returns the container whose log explains why the Pod is not ready. The flag selects the log of its previous
/// instance: the container has ended and is about to be started again.
pub fn failing_container(pod: &Pod) -> Option<(&str, bool)> {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let waits = |container: &ContainerStatus| container.state.as_ref().is_some_and(|state| state.waiting.is_some());
    let speaks = |container: &&ContainerStatus| {
        !container.ready && (is_running(container) || (waits(container) && container.restart_count > 0))
    };
    containers.into_iter().find(speaks).map(|container| (container.name.as_str(), waits(container)))
}

/// Most characters of a log line that are shown.
const MAX_LINE_CHARS: usize = 300;

/// Returns the cause at the end of a container's log: its last error if the container logs JSON as Récif's own programs
/// do, else its last line that is not empty.
pub fn last_error(log: &[String]) -> Option<String> {
    let error = |line: &String| {
        let entry: Value = serde_json::from_str(line).ok()?;
        let text = |field: &str| entry.get(field).and_then(Value::as_str);
        let message = text("message").filter(|_| text("level") == Some("ERROR"))?;
        let line = entry.get("line").and_then(Value::as_u64).map(|line| format!(":{line}")).unwrap_or_default();
        Some(text("file").map_or_else(String::new, |file| format!("{file}{line}: ")) + message)
    };
    let found = log.iter().rev().find_map(error);
    let words = found.or_else(|| log.iter().rev().find(|line| !line.trim().is_empty()).cloned())?;
    let mut words: String = words.trim().chars().take(MAX_LINE_CHARS + 1).collect();
    if let Some((end, _)) = words.char_indices().nth(MAX_LINE_CHARS) {
        words.truncate(end);
        words.push('…');
    }
    Some(words)
}

/// Returns the conditions of a Deployment that say that its rollout does not proceed, one line each.
pub fn deployment_problems(deployment: &Deployment) -> Vec<String> {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let conditions = deployment.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| {
            matches!(
                (condition.type_.as_str(), condition.status.as_str()),
                (condition_type::PROGRESSING, "False") | (condition_type::REPLICA_FAILURE, "True")
            )
        })
        .map(|condition| {
            let reason = condition.reason.as_deref().unwrap_or(&condition.type_);
            format!("Deployment {name}: {}", reason_and_message(reason, condition.message.as_deref()))
        })
        .collect()
}

/// Explains why a referenced object of the API cannot be used; `None` if it can. `status` is the status of the object,
/// and `None` if the object does not exist.
pub fn reference_problem(kind: &str, name: &str, status: Option<&CommonStatus>) -> Option<String> {
    let Some(status) = status else {
        let builtin = kind == "Tool" && is_builtin(name);
        let said =
            if builtin { "builtin of the runtime; a Tool of this name would replace it" } else { "does not exist" };
        return Some(format!("{kind} {name}: {said}"));
    };
    let Some(phase) = status.written_phase() else {
        return Some(format!("{kind} {name}: not yet seen by an operator"));
    };
    if status.condition(condition_type::AVAILABLE).is_some_and(|condition| condition.status == "True") {
        return None;
    }
    Some(format!(
        "{kind} {name}: {}",
        reason_and_message(phase, status.condition(condition_type::READY).map(|condition| condition.message.as_str()))
    ))
}

fn view(container: &ContainerStatus) -> ContainerView<'_> {
    let state = container.state.as_ref();
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    ContainerView {
        name: &container.name,
        ready: container.ready,
        running: is_running(container),
        restart_count: container.restart_count,
        waiting: waiting.map(|waiting| (waiting.reason.as_deref(), waiting.message.as_deref())),
        terminated: ended.map(|ended| (ended.exit_code, ended.reason.as_deref(), ended.message.as_deref())),
        last_exit_code: last.map(|last| last.exit_code),
    }
}

#[cfg(test)]
mod tests {
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
        let back_off =
            json!({ "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image \"x/y\"" } });
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
            serde_json::from_value(json!({ "metadata": { "name": "a" }, "status": { "conditions": [condition] } }))
                .unwrap()
        };
        let quota = json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota" });
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
}
