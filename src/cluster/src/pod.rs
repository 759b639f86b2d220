//! Reduces Pods to their readiness, and for a Pod that is not ready to the class of the reason.
//!
//! A class and what the user wrote, never the kubelet's text: that text changes with every attempt, and each change would be a step of the
//! state machine.

use std::{collections::BTreeMap, net::IpAddr};

use actions::ports::WorkloadPod;
use crds::{
    pod_problem::{ContainerView, PodProblem},
    proxy_port,
};
use meta::condition_type;
use serde::{Deserialize, de::IgnoredAny};

use super::store::ObjectVersion;

/// Decodes a Pod.
///
/// # Errors
/// Fails if the JSON is no Pod.
pub fn pod(head: &ObjectVersion, json: &str) -> Result<WorkloadPod, serde_json::Error> {
    let wire: WirePod = serde_json::from_str(json)?;
    let condition = |type_: &str| wire.status.conditions.iter().find(|found| found.type_ == type_);
    let ready = condition(condition_type::READY).is_some_and(|found| found.status == "True");
    let mut containers = wire.status.init_container_statuses.iter().chain(&wire.status.container_statuses);
    let unschedulable = condition(condition_type::POD_SCHEDULED).is_some_and(|found| found.reason == "Unschedulable");
    let trouble = if ready {
        None
    } else if unschedulable {
        Some(PodProblem::Unschedulable)
    } else {
        containers.find_map(|container| container.problem(&wire.spec))
    };
    let cost = wire.metadata.annotations.deletion_cost;
    Ok(WorkloadPod {
        name: head.key.name.clone(),
        uid: head.uid.clone(),
        resource_version: head.resource_version,
        labels: wire.metadata.labels,
        ready,
        terminating: wire.metadata.deletion_timestamp.is_some(),
        ip: wire.status.pod_ip,
        port: wire.spec.proxy_port(),
        deletion_cost: cost.and_then(|cost| cost.parse().ok()),
        problem: trouble,
    })
}

#[derive(Deserialize)]
struct WirePod {
    metadata: PodMeta,
    #[serde(default)]
    spec: WirePodSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMeta {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: Annotations,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

/// The only annotation that is read.
#[derive(Deserialize, Default)]
struct Annotations {
    #[serde(rename = "controller.kubernetes.io/pod-deletion-cost")]
    deletion_cost: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WirePodSpec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    #[serde(default)]
    image: String,
    // An empty list may be null.
    #[serde(default)]
    ports: Option<Vec<ContainerPort>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    container_port: i32,
}

impl WirePodSpec {
    fn proxy_port(&self) -> u16 {
        let containers = self.init_containers.iter().chain(&self.containers);
        proxy_port(containers.flat_map(|container| {
            let ports = container.ports.iter().flatten();
            ports.map(move |port| (container.name.as_str(), port.name.as_deref(), port.container_port))
        }))
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<IpAddr>,
    conditions: Vec<PodCondition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize)]
struct PodCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    ready: bool,
    restart_count: i32,
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContainerState {
    waiting: Option<ContainerWaiting>,
    terminated: Option<ContainerTerminated>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContainerWaiting {
    reason: String,
    message: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerTerminated {
    exit_code: i32,
}

impl ContainerStatus {
    fn problem(&self, spec: &WirePodSpec) -> Option<PodProblem> {
        let waiting = self.state.waiting.as_ref();
        let view = ContainerView {
            name: &self.name,
            ready: self.ready,
            restart_count: self.restart_count,
            waiting: waiting.map(|waiting| (Some(waiting.reason.as_str()), Some(waiting.message.as_str()))),
            terminated: self.state.terminated.as_ref().map(|ended| (ended.exit_code, None, None)),
            last_exit_code: self.last_state.terminated.as_ref().map(|ended| ended.exit_code),
            ..ContainerView::default()
        };
        view.problem(|| {
            let mut containers = spec.init_containers.iter().chain(&spec.containers);
            containers.find(|found| found.name == self.name).map(|found| found.image.clone()).unwrap_or_default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::object_version;

    fn read(status: &str) -> WorkloadPod {
        let json = format!(
            r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1"}},
            "spec":{{"containers":[{{"name":"agent","image":"corail:latest"}}]}},"status":{status}}}"#
        );
        pod(&object_version(&json).unwrap(), &json).unwrap()
    }

    fn trouble(container: &str) -> Option<PodProblem> {
        read(&format!(r#"{{"containerStatuses":[{{"name":"agent",{container}}}]}}"#)).problem
    }

    #[test]
    fn the_reason_is_a_class_and_what_the_user_wrote() {
        let image = "corail:latest".to_owned();
        for reason in ["ErrImagePull", "ImagePullBackOff"] {
            let pull = Some(PodProblem::ImagePull { image: image.clone() });
            assert_eq!(trouble(&format!(r#""state":{{"waiting":{{"reason":"{reason}"}}}}"#)), pull);
        }
        let never = r#""state":{"waiting":{"reason":"ErrImageNeverPull","message":"MESSAGE"}}"#;
        for (message, expected) in [
            (
                "Container image \\\"corail:latest\\\" is not present with pull policy of Never",
                PodProblem::ImageNeverPull { image: image.clone() },
            ),
            (
                "image corail:latest needs a container, which is not run here: name what runs instead",
                PodProblem::NeedsContainer { image },
            ),
        ] {
            assert_eq!(trouble(&never.replace("MESSAGE", message)), Some(expected));
        }
        let missing =
            r#""state":{"waiting":{"reason":"CreateContainerConfigError","message":"secret \"keys\" not found"}}"#;
        let object = r#"secret "keys""#.into();
        assert_eq!(trouble(missing), Some(PodProblem::CreateContainerConfigError { object }));
        let key = missing.replace(r#"secret \"keys\" not found"#, "couldn't find key a in Secret ns/keys");
        let object = r#"key "a" in Secret "keys""#.into();
        assert_eq!(trouble(&key), Some(PodProblem::CreateContainerConfigError { object }));
        assert_eq!(trouble(r#""state":{"waiting":{"reason":"ContainerCreating"}}"#), None);
    }

    #[test]
    fn a_crash_loop_does_not_flap_between_attempts() {
        let ended = r#""lastState":{"terminated":{"exitCode":3}},"restartCount":2"#;
        let expected = Some(PodProblem::CrashLoop { container: "agent".into(), exit_code: 3 });
        for state in [r#"{"waiting":{"reason":"CrashLoopBackOff"}}"#, "{}", r#"{"terminated":{"exitCode":3}}"#] {
            assert_eq!(trouble(&format!(r#""state":{state},{ended}"#)), expected, "{state}");
        }
        assert_eq!(trouble(r#""lastState":{"terminated":{"exitCode":3}},"restartCount":1"#), None, "merely starting");
    }

    #[test]
    fn what_keeps_an_init_container_or_the_sidecar_from_running_is_said_first() {
        let with = |sidecar: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1"}},
                "spec":{{"containers":[{{"name":"agent","image":"a"}}],"initContainers":[{{"name":"proxy","image":"r/p"}}]}},
                "status":{{"initContainerStatuses":[{{"name":"proxy",{sidecar}}}],
                "containerStatuses":[{{"name":"agent","state":{{"waiting":{{"reason":"PodInitializing"}}}}}}]}}}}"#
            );
            pod(&object_version(&json).unwrap(), &json).unwrap().problem
        };
        let image = Some(PodProblem::ImagePull { image: "r/p".into() });
        assert_eq!(with(r#""state":{"waiting":{"reason":"ImagePullBackOff"}}"#), image);
        let crash = Some(PodProblem::CrashLoop { container: "proxy".into(), exit_code: 2 });
        let ended = r#""restartCount":3,"lastState":{"terminated":{"exitCode":2}}"#;
        assert_eq!(with(&format!(r#""state":{{"waiting":{{"reason":"CrashLoopBackOff"}}}},{ended}"#)), crash);
        assert_eq!(
            with(r#""ready":false,"restartCount":0,"state":{"running":{}}"#),
            None,
            "it is ready after the agent"
        );
    }

    #[test]
    fn where_it_is_and_what_it_costs_to_delete_it() {
        let here = read(r#"{"podIP":"10.1.2.3"}"#);
        assert_eq!((here.ip, here.deletion_cost), (Some([10, 1, 2, 3].into()), None));
        let costs = r#"{"metadata":{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1",
            "annotations":{"a":"b","controller.kubernetes.io/pod-deletion-cost":"-7"}}}"#;
        assert_eq!(pod(&object_version(costs).unwrap(), costs).unwrap().deletion_cost, Some(-7));
    }

    #[test]
    fn its_sidecar_listens_where_the_pod_says() {
        let port = |containers: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1"}},
                "spec":{{"hostNetwork":true,{containers}}},"status":{{"podIP":"127.0.0.1","hostIP":"127.0.0.1"}}}}"#
            );
            let pod = pod(&object_version(&json).unwrap(), &json).unwrap();
            assert_eq!(pod.ip, Some([127, 0, 0, 1].into()));
            pod.port
        };
        let proxy = |port: &str| format!(r#""initContainers":[{{"name":"proxy","ports":[{port}]}}]"#);
        assert_eq!(port(&proxy(r#"{"name":"http","containerPort":21004,"hostPort":21004}"#)), 21004);
        assert_eq!(
            port(&proxy(r#"{"name":"metrics","containerPort":9},{"name":"http","containerPort":21004}"#)),
            21004
        );
        let sidecar = r#""initContainers":[{"name":"proxy"}]"#;
        let both = r#"{"name":"agent","containerPort":21003},{"name":"http","containerPort":21004}"#;
        assert_eq!(port(&format!(r#"{sidecar},"containers":[{{"name":"flow","ports":[{both}]}}]"#)), 21004);
        for other in [
            proxy(""),
            proxy(r#"{"containerPort":21004}"#),
            proxy(r#"{"name":"http","containerPort":70000}"#),
            r#""containers":[{"name":"agent","ports":[{"name":"http","containerPort":8000}]}]"#.to_owned(),
            r#""containers":[{"name":"agent","ports":null}]"#.to_owned(),
        ] {
            assert_eq!(port(&other), 8888, "{other}");
        }
    }

    #[test]
    fn a_ready_pod_has_no_trouble() {
        let pod = read(
            r#"{"conditions":[{"type":"Ready","status":"True"}],
            "containerStatuses":[{"name":"agent","ready":true,"restartCount":5,"lastState":{"terminated":{"exitCode":1}}}]}"#,
        );
        assert_eq!((pod.ready, pod.problem), (true, None));
    }
}
