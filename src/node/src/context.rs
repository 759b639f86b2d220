//! State that the tasks of one Pod share: its orders, the states of its containers, and the way to its logs and notes.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep_until},
};

use crate::{
    events::{PodEvent, Severity},
    logs::ContainerLog,
    output::Source,
    pod_spec::containers,
    shared::NodeState,
    states::{ContainerRecord, ContainerRole, State},
    volumes::Folders,
};

/// Grace period of a Pod that names none.
pub(crate) const GRACE: i64 = 30;
/// Longest grace period: a time that far ahead can still be computed.
const LONGEST_GRACE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Returns a grace period in seconds as a duration.
pub(crate) fn grace_period(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).min(LONGEST_GRACE)
}

/// Order to a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Run.
    Run,
    /// End gracefully, at the latest then.
    End(Instant),
    /// End at once.
    Kill,
}

/// State of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodState {
    /// Containers, first the init containers.
    pub(crate) containers: Vec<ContainerRecord>,
    /// Port of a container that another program took before the container did. The Pod has failed then.
    pub(crate) lost_port: Option<u16>,
}

/// A Pod that runs on this node.
pub(crate) struct PodContext {
    pub(crate) node: Arc<NodeState>,
    /// The Pod as it was when it came; only its status and deletion change later.
    pub(crate) pod: Arc<Pod>,
    /// Source of its lines and notes; without a container.
    pub(crate) source: Source,
    pub(crate) folders: Folders,
    /// Folder in which programs run that name none.
    pub(crate) base: PathBuf,
    pub(crate) state: watch::Sender<PodState>,
    pub(crate) order: watch::Receiver<Order>,
    /// Tokens that were made for the Pod, by volume and path. Locked while volumes are written.
    pub(crate) tokens: Mutex<BTreeMap<(String, String), String>>,
}

impl PodContext {
    /// Returns a container.
    pub(crate) fn container(&self, index: usize) -> Container {
        let found = self.pod.spec.as_ref().and_then(|spec| containers(spec).nth(index));
        found.cloned().unwrap_or_default()
    }

    /// Returns a container's role.
    pub(crate) fn role(&self, index: usize) -> ContainerRole {
        self.state.borrow().containers.get(index).map_or(ContainerRole::Main, |container| container.role)
    }

    /// Changes the state of a container.
    pub(crate) fn change(&self, index: usize, change: impl FnOnce(&mut ContainerRecord)) {
        self.state.send_if_modified(|state| {
            let Some(container) = state.containers.get_mut(index) else { return false };
            let before = container.clone();
            change(container);
            *container != before
        });
    }

    /// Returns the log of a container.
    pub(crate) fn log(&self, container: &str) -> Arc<ContainerLog> {
        let Source { namespace, kind, name, pod, .. } = &self.source;
        self.node.logs.container(namespace, pod, container, || format!("{kind}-{name}-{container}"))
    }

    /// Returns the source of a container's lines.
    pub(crate) fn source_of(&self, container: &str) -> Source {
        Source { container: container.to_owned(), ..self.source.clone() }
    }

    /// Shows a note on a container.
    pub(crate) fn note(&self, container: &str, text: &str) {
        self.node.output.note(&self.source_of(container), text);
    }

    /// Records an Event of a container.
    pub(crate) fn record(&self, index: usize, severity: Severity, reason: &'static str, message: String) {
        let list = if self.role(index) == ContainerRole::Main { "containers" } else { "initContainers" };
        let event = PodEvent {
            namespace: self.source.namespace.clone(),
            pod: self.source.pod.clone(),
            uid: self.pod.metadata.uid.clone().unwrap_or_default(),
            field: format!("spec.{list}{{{}}}", self.container(index).name),
            severity,
            reason,
            message,
        };
        self.node.events.record(event);
    }

    /// Reports whether the Pod is to end.
    pub(crate) fn is_ending(&self) -> bool {
        *self.order.borrow() != Order::Run || self.state.borrow().lost_port.is_some()
    }

    /// Waits until the Pod is to end.
    pub(crate) async fn ending(&self) {
        let (mut order, mut state) = (self.order.clone(), self.state.subscribe());
        // Both fail only if the node is gone, and then the Pod is to end, too.
        tokio::select! {
            _ = order.wait_for(|order| *order != Order::Run) => {}
            _ = state.wait_for(|state| state.lost_port.is_some()) => {}
        }
    }

    /// Waits until the Pod has to be ended by force, or the limit is reached.
    pub(crate) async fn force(&self, limit: Option<Instant>) {
        let mut order = self.order.clone();
        loop {
            let ends = match *order.borrow_and_update() {
                Order::Kill => return,
                Order::End(at) => Some(limit.map_or(at, |limit| limit.min(at))),
                Order::Run => limit,
            };
            let end = async {
                match ends {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = end => return,
                changed = order.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Waits until a container may be ended: a sidecar only when all that follow it have ended.
    pub(crate) async fn may_end(&self, index: usize) {
        if self.role(index) != ContainerRole::Sidecar || !self.is_ending() {
            return;
        }
        let mut state = self.state.subscribe();
        let has_ended = |state: &PodState| {
            let mut others = state.containers.iter().skip(index + 1);
            others.all(|container| !matches!(container.state, State::Running(_)))
        };
        // Fails only if the Pod is gone.
        let _ = state.wait_for(has_ended).await;
    }
}
