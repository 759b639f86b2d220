//! The states of a Pod's containers, and the status that follows from them, as a kubelet writes it. Pure.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
        HostIP, Pod, PodCondition, PodIP, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::process::ProcessExit;

/// Address of every Pod.
const ADDRESS: &str = "127.0.0.1";

/// Part of a Pod's life in which a container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContainerRole {
    /// To its end, before what follows it.
    Init,
    /// From then on as long as the Pod (a native sidecar).
    Sidecar,
    /// Beside the other ones.
    Main,
}

/// State of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerRecord {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) role: ContainerRole,
    pub(crate) state: State,
    /// The instance before this one.
    pub(crate) last: Option<Ended>,
    pub(crate) restarts: i32,
    /// Its startup probe has passed.
    pub(crate) is_started: bool,
    /// Its readiness probe passes.
    pub(crate) is_ready: bool,
}

/// State of an instance, as in the status of the Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits, for a reason and with a message.
    Waiting(String, String),
    /// Runs since then.
    Running(Timestamp),
    /// Has ended.
    Ended(Ended),
}

/// End of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit: ProcessExit,
    pub(crate) started: Timestamp,
    pub(crate) finished: Timestamp,
}

impl ContainerRecord {
    /// Returns the containers of a Pod that was just made: first the init containers.
    pub(crate) fn all(pod: &Pod) -> Vec<Self> {
        let Some(spec) = &pod.spec else { return Vec::new() };
        let has_init = spec.init_containers.as_ref().is_some_and(|all| !all.is_empty());
        let init = spec.init_containers.iter().flatten().map(|container| {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            (container, if is_sidecar { ContainerRole::Sidecar } else { ContainerRole::Init })
        });
        let all = init.chain(spec.containers.iter().map(|container| (container, ContainerRole::Main)));
        let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
        all.map(|(container, role)| Self {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            role,
            state: State::Waiting(reason.to_owned(), String::new()),
            last: None,
            restarts: 0,
            is_started: false,
            is_ready: false,
        })
        .collect()
    }

    /// Reports whether what follows this container may start.
    pub(crate) fn is_passed(&self) -> bool {
        match (self.role, &self.state) {
            (ContainerRole::Init, State::Ended(ended)) => ended.exit.code == 0,
            (ContainerRole::Init, _) => false,
            (ContainerRole::Sidecar, _) => self.is_started,
            (ContainerRole::Main, _) => true,
        }
    }

    fn status(&self) -> ContainerStatus {
        let state = match &self.state {
            State::Waiting(reason, message) => ContainerState {
                waiting: Some(ContainerStateWaiting {
                    reason: Some(reason.clone()),
                    message: Some(message.clone()).filter(|message| !message.is_empty()),
                }),
                ..ContainerState::default()
            },
            State::Running(since) => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(Time(*since)) }),
                ..ContainerState::default()
            },
            State::Ended(ended) => ended.state(),
        };
        ContainerStatus {
            name: self.name.clone(),
            image: self.image.clone(),
            image_id: String::new(),
            state: Some(state),
            last_state: Some(self.last.as_ref().map(Ended::state).unwrap_or_default()),
            ready: self.is_ready || self.role == ContainerRole::Init && self.is_passed(),
            started: Some(self.is_started),
            restart_count: self.restarts,
            ..ContainerStatus::default()
        }
    }
}

impl Ended {
    fn state(&self) -> ContainerState {
        let reason = if self.exit.code == 0 { "Completed" } else { "Error" };
        ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: self.exit.code,
                signal: self.exit.signal,
                reason: Some(reason.to_owned()),
                started_at: Some(Time(self.started)),
                finished_at: Some(Time(self.finished)),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        }
    }
}

/// Returns the status of a Pod whose containers are in these states.
pub(crate) fn pod_status(pod: &Pod, all: &[ContainerRecord], now: Timestamp) -> PodStatus {
    let old = pod.status.clone().unwrap_or_default();
    let mains = || all.iter().filter(|container| container.role == ContainerRole::Main);
    let is_initialized = all.iter().all(ContainerRecord::is_passed);
    // As in the kubelet, sidecars count.
    let is_ready = is_initialized
        && all.iter().filter(|container| container.role != ContainerRole::Init).all(|container| container.is_ready);
    let has_begun =
        all.iter().any(|container| !matches!(container.state, State::Waiting(..)) || container.restarts > 0);
    let phase = if mains().any(|container| !is_waiting_first(container)) { "Running" } else { "Pending" };
    let conditions = [
        ("PodScheduled", true, ""),
        ("PodReadyToStartContainers", has_begun, ""),
        ("Initialized", is_initialized, "ContainersNotInitialized"),
        ("ContainersReady", is_ready, "ContainersNotReady"),
        ("Ready", is_ready, "ContainersNotReady"),
    ];
    let unready: Vec<&str> = mains().filter(|found| !found.is_ready).map(|found| found.name.as_str()).collect();
    let conditions = conditions.map(|(type_, holds, reason)| {
        let status = if holds { "True" } else { "False" };
        let known = old.conditions.iter().flatten().find(|known| known.type_ == type_ && known.status == status);
        let message = (reason == "ContainersNotReady" && !unready.is_empty())
            .then(|| format!("containers with unready status: [{}]", unready.join(" ")));
        PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: (!holds && !reason.is_empty()).then(|| reason.to_owned()),
            message: message.filter(|_| !holds),
            last_transition_time: known.and_then(|known| known.last_transition_time.clone()).or(Some(Time(now))),
            ..PodCondition::default()
        }
    });
    let statuses = |of_main: bool| {
        let found = all.iter().filter(|container| (container.role == ContainerRole::Main) == of_main);
        Some(found.map(ContainerRecord::status).collect::<Vec<_>>()).filter(|found| !found.is_empty())
    };
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions.to_vec()),
        init_container_statuses: statuses(false),
        container_statuses: statuses(true),
        host_ip: Some(ADDRESS.to_owned()),
        host_ips: Some(vec![HostIP { ip: ADDRESS.to_owned() }]),
        pod_ip: Some(ADDRESS.to_owned()),
        pod_ips: Some(vec![PodIP { ip: ADDRESS.to_owned() }]),
        qos_class: Some("BestEffort".to_owned()),
        start_time: old.start_time.or(Some(Time(now))),
        ..PodStatus::default()
    }
}

/// Reports whether no instance of a container has started.
fn is_waiting_first(container: &ContainerRecord) -> bool {
    matches!(container.state, State::Waiting(..)) && container.last.is_none()
}

#[cfg(test)]
mod tests;
