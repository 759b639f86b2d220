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
mod tests;
