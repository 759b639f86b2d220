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
    has_condition(pod, condition_type::READY)
}

fn has_condition(pod: &Pod, type_: &str) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
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

/// Condition of a Pod whose volumes are mounted and whose network is set up.
const READY_TO_START: &str = "PodReadyToStartContainers";

/// Reports whether a Pod is not ready and its status does not say why: none of its containers can be made yet. The cause, such as a volume
/// that cannot be mounted, is then in the warnings about it alone. Of a Pod whose images are being pulled, they are out of date.
pub fn is_silent(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let has_ended = pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"));
    !has_ended && !has_condition(pod, READY_TO_START) && !is_pod_ready(pod) && pod_problems(pod).is_empty()
}

/// Reasons of the warnings of a kubelet that did not make a container.
const FAILED: [&str; 3] = ["Failed", "BackOff", "InspectFailed"];

/// Describes the newest warning about a silent Pod, as [`pod_problems`] describes its status; `None` for one of the scheduler, which has
/// found a node since. Warnings are reasons and messages, the newest first. One that only repeats a reason yields to the newest one that
/// says more on containers that were not made.
pub fn pod_warning(pod: &str, warnings: &[(&str, &str)]) -> Option<String> {
    let newest = *warnings.first()?;
    let telling = repeated_reason(newest).and_then(|repeated| {
        let says_more = |(reason, message): (&str, &str)| {
            (reason == repeated || FAILED.contains(&reason)) && repeated_reason((reason, message)).is_none()
        };
        warnings.iter().copied().find(|warning| says_more(*warning))
    });
    let (reason, message) = telling.unwrap_or(newest);
    (reason != "FailedScheduling").then(|| format!("Pod {pod}: {}", reason_and_message(reason, Some(message))))
}

/// Returns the reason that a warning only repeats, as `Failed` does with the message `Error: ErrImageNeverPull`.
fn repeated_reason<'a>((reason, message): (&str, &'a str)) -> Option<&'a str> {
    let repeated = message.trim().strip_prefix("Error: ").filter(|_| FAILED.contains(&reason))?;
    (!repeated.is_empty() && repeated.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(repeated)
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
mod tests;
