//! What the kinds that run Pods share: one action per file, over the [`WorkloadKind`] trait.
//!
//! The life in one paragraph: `accept` judges the spec, `resolve` waits for every reference and pins what it read,
//! `render` writes the configuration, `deploy` makes the Pods and waits for them, `monitor` watches over all of it,
//! `recover` looks for the end of a failure, and `drain` takes the Pods away when the object is deleted.

mod accept;
mod children;
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

use crds::{Scaling, Traffic, WorkloadPhase, WorkloadStatus};
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
pub use deploy::Deploy;
pub use drain::Drain;
pub use edges::{CONDITIONS, EDGES, NOT_RETRYABLE, STEERED_BY};
pub(crate) use external::external_digest;
pub use health::SCALING_ACTIVE;
pub(crate) use health::{is_available, note_unready};
pub use monitor::Monitor;
pub use recover::Recover;
pub use render::Render;
pub use replicas::{REPLICAS, ReplicasHandover, SCALER, handover, min_running};
pub use resolve::Resolve;

/// What a kind that runs Pods brings of its own.
pub trait WorkloadKind: ControlledKind<Phase = WorkloadPhase> {
    /// The label that names it on its children, such as `recif.dev/agent`.
    const LABEL: &'static str;
    /// Whether its Pods read their configuration as files, of which each Pod has those that its template names. Of variables by
    /// `envFrom` a container has all that there are when it starts.
    const READS_FILES: bool = true;

    /// The Pods it asks for.
    fn replicas(&self) -> i32;
    /// How requests reach it.
    fn traffic(&self) -> &Traffic;
    /// How the number of its Pods follows the load, if it does.
    fn scaling(&self) -> Option<&Scaling> {
        self.traffic().scaling.as_ref()
    }
    /// Its status.
    fn status(&self) -> Option<&WorkloadStatus>;
    /// Its status, made if there is none.
    fn status_mut(&mut self) -> &mut WorkloadStatus;
    /// Judges what the CRD cannot, without looking at references.
    ///
    /// # Errors
    /// `Terminal`, saying what to change.
    fn validate(&self, settings: &RenderSettings) -> Result<(), ActionError>;
    /// Looks at everything it refers to.
    fn inputs(&self, world: &Deps) -> Inputs;
    /// Why it could never answer, as far as that can be told before its Pods are made, though everything it refers to is there.
    fn model_problem(&self, _world: &Deps) -> Option<String> {
        None
    }
    /// Why its image would refuse what it is given to read, though everything it refers to is there: judged of our own image alone,
    /// and once for each rendering.
    fn rejection(&self, _world: &Deps) -> Option<String> {
        None
    }
    /// Everything it consists of, with the images of its status. References that are not there are left out: `resolve` has
    /// judged them.
    ///
    /// # Errors
    /// `Terminal`, saying what to change.
    fn render(&self, world: &Deps, replicas: Option<i32>) -> Result<RenderedWorkload, ActionError>;
    /// What of its credentials a tool of it would send out, as one sentence. It is judged before anything is rendered, and not of what
    /// runs.
    fn exposed_credentials(&self, _world: &Deps) -> Option<String> {
        None
    }
    /// Containers whose image is the operator's, with the image that they would get now.
    fn images(&self, _settings: &RenderSettings) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// The container of the sidecar with the image that it would get now, if it has one.
    fn offered_proxy(&self, settings: &RenderSettings) -> Option<(String, String)> {
        self.traffic().proxy.enabled.then(|| (PROXY.to_owned(), settings.proxy_image.clone()))
    }
    /// The image that is pinned for a container, else the one `offered`.
    fn pinned_image(&self, container: &str, offered: &str) -> String {
        let pinned = self.status().and_then(|status| status.images.get(container)).map(String::as_str);
        pinned.unwrap_or(offered).to_owned()
    }
    /// The image of the sidecar.
    fn proxy_image(&self, settings: &RenderSettings) -> String {
        self.pinned_image(PROXY, &settings.proxy_image)
    }
    /// The sidecar of this image, with what its status keeps of it.
    fn pinned_proxy<'a>(&'a self, image: &'a str) -> PinnedProxy<'a> {
        let status = self.status();
        let caller_keys = status.and_then(|status| status.caller_keys.as_deref());
        PinnedProxy { image, caller_keys, tells_ready: status.is_some_and(|status| status.tells_ready) }
    }
    /// Puts what only its kind has there into the status, as it is in its phase, given what it refers to; whether that
    /// changed anything.
    fn report_status(&mut self, _inputs: &Inputs) -> bool {
        false
    }
    /// What of it is left out while the rest runs, as one sentence, as [`WorkloadKind::tell`] told it.
    fn degraded(&self) -> Option<String> {
        None
    }
    /// Why it is not ready although its Pods are: a reason, one sentence, and whether somebody has to act.
    fn unready(&self) -> Option<Unresolved> {
        self.degraded().map(|sentence| Unresolved { reason: "Degraded", sentence, needs_user: true })
    }
    /// What it can do without, though it may still come, once that has been waited for.
    fn omit_pending(&self, inputs: Inputs) -> Inputs {
        inputs
    }
    /// The NetworkPolicy that closes the port of its container.
    fn network_policy(&self) -> ChildManifest;
    /// The overlay on its Pod template.
    fn pod_template(&self) -> Option<&Value>;
    /// Where it is reached inside the cluster.
    fn endpoint(&self, settings: &RenderSettings) -> String;

    /// Label selector of its Pods, as text.
    fn selector(&self) -> String {
        selector_text(Self::LABEL, self.meta().name.as_deref().unwrap_or_default())
    }
    /// The Deployment that runs its Pods.
    fn deployment(&self) -> ChildRef {
        let key = self.key();
        ChildRef { kind: ChildKind::Deployment, namespace: key.namespace, name: key.name }
    }
    /// What `resolve` pinned.
    fn pinned(&self) -> Option<&BTreeMap<String, String>> {
        self.common()?.inputs.as_ref()
    }
    /// Whether the spec moved since the status was written.
    fn is_edited(&self) -> bool {
        self.common().and_then(|machine| machine.observed_generation) != Some(self.generation())
    }
}

/// With the NetworkPolicy of a workload that is to have one: before its Deployment, so that no Pod is open for a moment.
pub(crate) fn with_policy<K: WorkloadKind>(cr: &K, world: &Deps, mut rendered: RenderedWorkload) -> RenderedWorkload {
    if wants_policy(cr, world) {
        let before = rendered.running.len().saturating_sub(1);
        rendered.running.insert(before, cr.network_policy());
    }
    rendered
}

/// Whether the Pods are to have a NetworkPolicy of ours.
fn wants_policy<K: WorkloadKind>(cr: &K, world: &Deps) -> bool {
    world.settings.network_policies && cr.traffic().proxy.enabled && !is_governed(cr, world)
}

/// Whether a NetworkPolicy of somebody else selects the Pods: ours would let in what that one keeps out.
fn is_governed<K: WorkloadKind>(cr: &K, world: &Deps) -> bool {
    let key = cr.key();
    let mut labels = child_labels(K::LABEL, &key.name);
    let own = cr.pod_template().and_then(|overlay| overlay.pointer("/metadata/labels")).and_then(Value::as_object);
    let own = own.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    labels.extend(own);
    world.cache.is_ingress_governed(&key.namespace, &labels)
}

/// Everything a workload consists of.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedWorkload {
    /// Changes when, and only when, the Pods must be replaced to see what was rendered.
    pub content_hash: String,
    /// What Pods read: applied in Rendering.
    pub config: Vec<ChildManifest>,
    /// Service, NetworkPolicy if there is one, and Deployment, in this order: applied in Deploying.
    pub running: Vec<ChildManifest>,
    /// Whether the user's overlay must be judged by the API server before anything is written.
    pub overlay: bool,
    /// The model that it talks to, as `openai/gpt-5`, of those that have one of their own.
    pub model: Option<String>,
    /// What rendering found worth saying.
    pub conditions: Vec<Condition>,
}

impl RenderedWorkload {
    /// Judges how far the overlay takes the Pods.
    ///
    /// # Errors
    /// `Terminal`, naming the field.
    pub(crate) fn check_pod_security(&self, settings: &RenderSettings) -> Result<(), ActionError> {
        let checked = check_pod_security(&self.running, self.overlay, settings.pod_security);
        checked.map_err(|error| ActionError::terminal(error.reason(), error.to_string()))
    }
}

/// The table of a workload. Each kind says its own version of the rendering.
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
/// A fault in the table or in the list of actions.
pub fn registry<K: WorkloadKind>() -> Result<Registry<K>, TableError> {
    Registry::new(K::TABLE, actions(), external_digest)
}

/// The actions of a workload, in the order in which they are asked.
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
