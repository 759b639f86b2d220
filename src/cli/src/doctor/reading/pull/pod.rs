//! Pod that pulls an image and prints its version, and what its status says of the image.

use std::time::Duration;

use serde_json::{Value, json};

use crate::doctor::reading::{
    api::{Unread, items, text},
    images::Puller,
};

/// Longest time for one image.
pub(super) const LONGEST: Duration = Duration::from_secs(60);
/// Name of the container.
const CONTAINER: &str = "version";

/// Pod that pulls an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Plan {
    pub(super) namespace: String,
    pub(super) image: String,
    /// `None`: an image of workloads, whose Secrets are their own.
    pub(super) puller: Option<Puller>,
    pub(super) arch: Option<String>,
}

/// Outcome of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::doctor) enum PullOutcome {
    /// The image was pulled, or was there, and its program printed its version.
    Started,
    /// Its program ended with this exit code.
    Exited(i64),
    /// It was not pulled or not started, in the kubelet's words.
    Failed(String),
    /// No node took the Pod, in the scheduler's words.
    Unscheduled(String),
    /// The Pod was not created, or may not be read.
    Unread(Unread),
}

fn state<'p>(pod: &'p Value, name: &str) -> Option<&'p Value> {
    let container = items(pod, "/status/containerStatuses").find(|container| container["name"] == CONTAINER);
    container?.pointer(&format!("/state/{name}"))
}

/// Returns reason and message of a state.
fn words(state: &Value) -> String {
    let (reason, message) = (text(state, "/reason"), text(state, "/message"));
    if message.is_empty() { reason } else { format!("{reason}: {message}") }
}

/// Returns the outcome if there is one.
pub(super) fn judge(pod: &Value) -> Option<PullOutcome> {
    if let Some(ended) = state(pod, "terminated") {
        return Some(match (ended["exitCode"].as_i64().unwrap_or(-1), ended["reason"].as_str()) {
            (0, _) => PullOutcome::Started,
            // The container runtime could not start the program, such as one of another architecture.
            (_, Some("StartError" | "ContainerCannotRun")) => PullOutcome::Failed(words(ended)),
            (code, _) => PullOutcome::Exited(code),
        });
    }
    if text(pod, "/status/phase") == "Failed" {
        return Some(PullOutcome::Failed(words(&pod["status"])));
    }
    let waiting = state(pod, "waiting")?;
    match waiting["reason"].as_str() {
        // The first attempt may fail by chance, and is followed by another one: only the wait between them counts.
        None | Some("ContainerCreating" | "PodInitializing" | "ErrImagePull") => None,
        Some(_) => Some(PullOutcome::Failed(words(waiting))),
    }
}

/// Returns the outcome for a Pod that has none in time.
pub(super) fn late(pod: &Value) -> PullOutcome {
    let mut conditions = items(pod, "/status/conditions");
    if let Some(found) = conditions.find(|found| found["type"] == "PodScheduled" && found["status"] == "False") {
        return PullOutcome::Unscheduled(text(found, "/message"));
    }
    let said = state(pod, "waiting").map(words).filter(|said| !said.is_empty());
    let said = said.map_or_else(String::new, |said| format!(": {said}"));
    PullOutcome::Failed(format!("not started within {} s{said}", LONGEST.as_secs()))
}

/// Returns a Pod that prints the version of its image, under the restricted Pod Security profile.
pub(super) fn version_pod(name: &str, plan: &Plan) -> Value {
    let policy = if plan.image.contains('/') { "IfNotPresent" } else { "Never" };
    // The ServiceAccount only for its Secrets: the Pod gets no token.
    let (account, secrets) = plan.puller.as_ref().map(|puller| (&puller.account, &puller.secrets)).unzip();
    let secrets: Vec<_> = secrets.into_iter().flatten().map(|name| json!({ "name": name })).collect();
    let mut nodes = json!({ "kubernetes.io/os": "linux" });
    if let Some(arch) = &plan.arch {
        nodes["kubernetes.io/arch"] = json!(arch);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "recif-doctor" } },
        "spec": {
            // Ends it also if this program is killed.
            "activeDeadlineSeconds": 120,
            "restartPolicy": "Never", "nodeSelector": nodes, "imagePullSecrets": secrets,
            "serviceAccountName": account, "automountServiceAccountToken": false,
            "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": CONTAINER, "image": plan.image, "imagePullPolicy": policy, "args": ["--version"],
                "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
                "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] } },
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_of(state: Value) -> Value {
        json!({ "status": { "containerStatuses": [
            { "name": "injected", "state": { "running": {} } }, { "name": CONTAINER, "state": state }] } })
    }

    fn failed(words: &str) -> PullOutcome {
        PullOutcome::Failed(words.to_owned())
    }

    #[test]
    fn an_image_is_good_when_its_program_has_ended_well() {
        for (pod, outcome) in [
            (json!({}), None),
            (state_of(json!({ "running": {} })), None),
            (state_of(json!({ "waiting": { "reason": "ContainerCreating" } })), None),
            (state_of(json!({ "waiting": { "reason": "ErrImagePull", "message": "m" } })), None),
            (
                state_of(json!({ "waiting": { "reason": "ImagePullBackOff", "message": "m" } })),
                Some(failed("ImagePullBackOff: m")),
            ),
            (
                state_of(json!({ "waiting": { "reason": "CreateContainerError" } })),
                Some(failed("CreateContainerError")),
            ),
            (state_of(json!({ "terminated": { "exitCode": 0, "reason": "Completed" } })), Some(PullOutcome::Started)),
            (state_of(json!({ "terminated": { "exitCode": 2, "reason": "Error" } })), Some(PullOutcome::Exited(2))),
            (
                state_of(
                    json!({ "terminated": { "exitCode": 128, "reason": "StartError", "message": "exec format error" } }),
                ),
                Some(failed("StartError: exec format error")),
            ),
            (
                json!({ "status": { "phase": "Failed", "reason": "OutOfcpu", "message": "the node has too little" } }),
                Some(failed("OutOfcpu: the node has too little")),
            ),
        ] {
            assert_eq!(judge(&pod), outcome, "{pod}");
        }
    }

    #[test]
    fn one_that_is_late_is_told_as_far_as_it_came() {
        let condition = json!({ "type": "PodScheduled", "status": "False", "message": "0/2 nodes are available" });
        for (pod, outcome) in [
            (
                json!({ "status": { "conditions": [condition] } }),
                PullOutcome::Unscheduled("0/2 nodes are available".into()),
            ),
            (
                state_of(json!({ "waiting": { "reason": "ErrImagePull", "message": "no such host" } })),
                failed("not started within 60 s: ErrImagePull: no such host"),
            ),
            (Value::Null, failed("not started within 60 s")),
        ] {
            assert_eq!(late(&pod), outcome, "{pod}");
        }
    }

    #[test]
    fn the_pod_is_placed_and_pulls_as_the_plan_says() {
        let plan = Plan {
            namespace: "a".into(),
            image: "r.io/x:1".into(),
            puller: Some(Puller { account: "recif-operator".into(), secrets: vec!["registry".into()] }),
            arch: Some("arm64".into()),
        };
        let body = version_pod("x", &plan);
        assert_eq!(body["spec"]["imagePullSecrets"], json!([{ "name": "registry" }]));
        assert_eq!(body["spec"]["serviceAccountName"], "recif-operator");
        assert_eq!(body["spec"]["nodeSelector"]["kubernetes.io/arch"], "arm64");
        assert_eq!(body["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
        let plan = Plan { image: "corail:latest".into(), puller: None, arch: None, ..plan };
        let body = version_pod("x", &plan);
        assert_eq!(body["spec"]["imagePullSecrets"], json!([]));
        assert!(
            body["spec"]["serviceAccountName"].is_null()
                && body["spec"]["nodeSelector"]["kubernetes.io/arch"].is_null()
        );
        assert_eq!(body["spec"]["containers"][0]["imagePullPolicy"], "Never");
    }
}
