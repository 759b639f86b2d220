//! Implements the state machine of the kinds that run Pods: one action per file, over the [`WorkloadKind`] trait.
//!
//! The life of a workload: `accept` validates the spec, `resolve` waits for every reference and pins what it read, `render`
//! writes the configuration, `deploy` applies the Deployment and waits for the rollout, `monitor` watches over all of it,
//! `recover` checks whether the cause of a failure is gone, and `drain` removes the Pods when the object is deleted.

mod accept;
mod children;
mod degradation;
mod deploy;
mod drain;
mod edges;
mod external;
mod health;
mod images;
mod inputs;
mod monitor;
mod old_files;
mod recover;
mod render;
mod replicas;
mod resolve;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use crds::{Scaling, Traffic, WorkloadPhase, WorkloadStatus, reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use machine::{Action, ActionError, Table, TableError};
use serde_json::Value;

use crate::{
    deps::Deps,
    kind::{ControlledKind, Registry},
    ports::{ChildKind, ChildManifest, ChildRef},
    references::{Inputs, Unresolved},
    render::{PROXY, PinnedProxy, RenderSettings, check_pod_security, child_labels, selector_text},
};

pub use accept::Accept;
pub(crate) use children::check_owner;
pub use degradation::Degradable;
use degradation::degraded;
pub use deploy::Deploy;
pub use drain::Drain;
pub use edges::{CONDITIONS, EDGES, NOT_RETRYABLE, STEERED_BY};
pub(crate) use external::external_digest;
pub(crate) use health::{is_available, note_unready};
pub use monitor::Monitor;
pub use recover::Recover;
pub use render::Render;
pub use replicas::{REPLICAS, ReplicasHandover, SCALER, handover, min_running};
pub use resolve::Resolve;

/// Kind that runs Pods.
pub trait WorkloadKind: ControlledKind<Phase = WorkloadPhase> {
    /// Label that names the object on its children, such as `recif.dev/agent`.
    const LABEL: &'static str;
    /// True if the Pods read their configuration as files, of which each Pod has those that its template names. With `envFrom` a
    /// container instead gets all variables that exist when it starts.
    const READS_FILES: bool = true;

    /// Returns the number of Pods in the spec.
    fn replicas(&self) -> i32;
    /// Returns the settings of its traffic.
    fn traffic(&self) -> &Traffic;
    /// Returns how the number of Pods follows the load, if it does.
    fn scaling(&self) -> Option<&Scaling> {
        self.traffic().scaling.as_ref()
    }
    /// Returns its status.
    fn status(&self) -> Option<&WorkloadStatus>;
    /// Returns its status, created if there is none.
    fn status_mut(&mut self) -> &mut WorkloadStatus;
    /// Validates what the CRD cannot, without its references.
    ///
    /// # Errors
    /// [`ActionError::Terminal`], which says what to change.
    fn validate(&self, settings: &RenderSettings) -> Result<(), ActionError>;
    /// Resolves everything it refers to.
    fn inputs(&self, world: &Deps) -> Inputs;
    /// Returns why its model could never answer although all references exist, as far as that is known before the Pods start.
    fn model_problem(&self, _world: &Deps) -> Option<String> {
        None
    }
    /// Returns why its image would reject the rendered files although all references exist. Only Récif's own image is judged,
    /// once for each rendering.
    fn rejection(&self, _world: &Deps) -> Option<String> {
        None
    }
    /// Renders all children, with the images pinned in its status. Missing references are left out: `resolve` has judged them.
    ///
    /// # Errors
    /// [`ActionError::Terminal`], which says what to change.
    fn render(&self, world: &Deps, replicas: Option<i32>) -> Result<RenderedWorkload, ActionError>;
    /// Returns which of its credentials a tool would send out, as one sentence. Checked before anything is rendered, not for
    /// running Pods.
    fn exposed_credentials(&self, _world: &Deps) -> Option<String> {
        None
    }
    /// Returns the containers whose image comes from the operator, with the image that they would get at this moment.
    fn images(&self, _settings: &RenderSettings) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// Returns the sidecar container with the image that it would get at this moment, if it has one.
    fn offered_proxy(&self, settings: &RenderSettings) -> Option<(String, String)> {
        self.traffic().proxy.enabled.then(|| (PROXY.to_owned(), settings.proxy_image.clone()))
    }
    /// Returns the image that is pinned for a container, else the one `offered`.
    fn pinned_image(&self, container: &str, offered: &str) -> String {
        let pinned = self.status().and_then(|status| status.images.get(container)).map(String::as_str);
        pinned.unwrap_or(offered).to_owned()
    }
    /// Returns the image of the sidecar.
    fn proxy_image(&self, settings: &RenderSettings) -> String {
        self.pinned_image(PROXY, &settings.proxy_image)
    }
    /// Returns the sidecar with this image and the settings pinned in the status.
    fn pinned_proxy<'a>(&'a self, image: &'a str) -> PinnedProxy<'a> {
        let status = self.status();
        let caller_keys = status.and_then(|status| status.caller_keys.as_deref());
        PinnedProxy { image, caller_keys, tells_ready: status.is_some_and(|status| status.tells_ready) }
    }
    /// Returns the kind's graceful degradation, if it can serve a part of its members.
    fn degradable(&self) -> Option<&dyn Degradable> {
        None
    }
    /// Returns [`WorkloadKind::degradable`], to be changed.
    fn degradable_mut(&mut self) -> Option<&mut dyn Degradable> {
        None
    }
    /// Returns why it is not ready although its Pods are: a reason, one sentence, and whether a user has to act.
    fn unready(&self) -> Option<Unresolved> {
        degraded(self).map(|sentence| Unresolved { reason: reason::DEGRADED, sentence, needs_user: true })
    }
    /// Returns the NetworkPolicy that closes the port of its container.
    fn network_policy(&self) -> ChildManifest;
    /// Returns the overlay on its Pod template.
    fn pod_template(&self) -> Option<&Value>;
    /// Returns its address inside the cluster.
    fn endpoint(&self, settings: &RenderSettings) -> String;

    /// Returns the label selector of its Pods, as text.
    fn selector(&self) -> String {
        selector_text(Self::LABEL, self.meta().name.as_deref().unwrap_or_default())
    }
    /// Returns the Deployment that runs its Pods.
    fn deployment(&self) -> ChildRef {
        let key = self.key();
        ChildRef { kind: ChildKind::Deployment, namespace: key.namespace, name: key.name }
    }
    /// Returns the references that `resolve` pinned.
    fn pinned(&self) -> Option<&BTreeMap<String, String>> {
        self.common()?.inputs.as_ref()
    }
    /// Reports whether the spec changed since the status was written.
    fn is_edited(&self) -> bool {
        self.common().and_then(|machine| machine.observed_generation) != Some(self.generation())
    }
}

/// Adds the NetworkPolicy of a workload that is to have one, before its Deployment, so that no Pod is ever open.
pub(crate) fn with_policy<K: WorkloadKind>(cr: &K, world: &Deps, mut rendered: RenderedWorkload) -> RenderedWorkload {
    if wants_policy(cr, world) {
        let before = rendered.running.len().saturating_sub(1);
        rendered.running.insert(before, cr.network_policy());
    }
    rendered
}

/// Reports whether the operator is to create a NetworkPolicy for the Pods.
fn wants_policy<K: WorkloadKind>(cr: &K, world: &Deps) -> bool {
    world.settings.network_policies && cr.traffic().proxy.enabled && !is_governed(cr, world)
}

/// Reports whether a NetworkPolicy of another owner selects the Pods: the operator's would allow what that one denies.
fn is_governed<K: WorkloadKind>(cr: &K, world: &Deps) -> bool {
    let key = cr.key();
    let mut labels = child_labels(K::LABEL, &key.name);
    let own = cr.pod_template().and_then(|overlay| overlay.pointer("/metadata/labels")).and_then(Value::as_object);
    let own = own.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    labels.extend(own);
    world.cache.is_ingress_governed(&key.namespace, &labels)
}

/// Rendered children of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedWorkload {
    /// Changes if and only if the Pods must be replaced to read what was rendered.
    pub content_hash: String,
    /// Objects that Pods read: applied in Rendering.
    pub config: Vec<ChildManifest>,
    /// Service, NetworkPolicy if there is one, and Deployment, in this order: applied in Deploying.
    pub running: Vec<ChildManifest>,
    /// True if the API server must validate the user's overlay by a dry run before anything is written.
    pub overlay: bool,
    /// Model that it calls, such as `openai/gpt-5`, for kinds that have one of their own.
    pub model: Option<String>,
    /// Conditions that rendering adds.
    pub conditions: Vec<Condition>,
}

impl RenderedWorkload {
    /// Checks the overlay against the Pod Security level of the operator.
    ///
    /// # Errors
    /// [`ActionError::Terminal`], which names the field.
    pub(crate) fn check_pod_security(&self, settings: &RenderSettings) -> Result<(), ActionError> {
        let checked = check_pod_security(&self.running, self.overlay, settings.pod_security);
        checked.map_err(|error| ActionError::terminal(error.reason(), error.to_string()))
    }
}

/// Configuration of the driver for workloads. Each kind sets its own `render_version`.
pub const TABLE: Table<WorkloadPhase> = Table {
    edges: EDGES,
    render_version: 0,
    not_retryable: NOT_RETRYABLE,
    conditions: CONDITIONS,
    available_follows_ready: false,
    decision_paths: STEERED_BY,
};

/// Returns the actions of a workload with the table of its kind.
///
/// # Errors
/// A defect in the table or in the list of actions.
pub fn registry<K: WorkloadKind>() -> Result<Registry<K>, TableError> {
    Registry::new(K::TABLE, actions(), external_digest)
}

/// Returns the actions of a workload, in the order in which they are asked.
pub fn actions<K: WorkloadKind>() -> Vec<Arc<dyn Action<K, Deps>>> {
    vec![
        Arc::new(Accept),
        Arc::new(Resolve),
        Arc::new(Render),
        Arc::new(Deploy),
        Arc::new(Monitor),
        Arc::new(Recover),
        Arc::new(Drain),
    ]
}
