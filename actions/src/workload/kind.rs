//! Description of a kind that runs Pods, and its rendered objects.

use std::collections::{BTreeMap, BTreeSet};

use crds::{Scaling, Traffic, WorkloadPhase, WorkloadStatus, reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use machine::ActionError;
use serde_json::Value;

use super::degradation::Degradable;
use crate::{
    deps::Deps,
    kind::ControlledKind,
    ports::{ChildKind, ChildManifest, ChildRef},
    references::{Inputs, Unresolved},
    render::{PROXY, PinnedProxy, RenderSettings, check_pod_security, selector_text},
};

/// Kind that runs Pods.
pub trait WorkloadKind: ControlledKind<Phase = WorkloadPhase> {
    /// Label that names the object on its children, such as `recif.dev/agent`.
    const LABEL: &'static str;
    /// True if the Pods read their configuration as files, of which each Pod has those that its template names. With `envFrom` a
    /// container instead gets all variables that exist when it starts.
    const READS_FILES: bool = true;

    /// True if its container gets the variables of OpenTelemetry.
    const HAS_TELEMETRY: bool = true;

    /// Returns the number of Pods in the spec.
    fn replicas(&self) -> i32;
    /// Returns the settings of its traffic.
    fn traffic(&self) -> &Traffic;
    /// Returns the addresses to which its Pods may connect, if the spec restricts them.
    fn egress(&self) -> Option<&[String]> {
        self.traffic().egress.as_deref()
    }
    /// Returns how the number of Pods follows the load, if it does.
    fn scaling(&self) -> Option<&Scaling> {
        self.traffic().scaling.as_ref()
    }
    /// Returns the scaling in force: a stopped workload has none.
    fn scaling_in_force(&self) -> Option<&Scaling> {
        self.scaling().filter(|_| self.replicas() > 0)
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
    fn inputs(&self, deps: &Deps) -> Inputs;
    /// Returns why its model could never answer although all references exist, as far as that is known before the Pods start.
    fn model_problem(&self, _deps: &Deps) -> Option<String> {
        None
    }
    /// Returns why its image would reject the rendered files although all references exist. Only Récif's own image is judged,
    /// once for each rendering.
    fn rejection(&self, _deps: &Deps) -> Option<String> {
        None
    }
    /// Renders all children, with the images pinned in its status. Missing references are left out: `resolve` has judged them.
    ///
    /// # Errors
    /// [`ActionError::Terminal`], which says what to change.
    fn render(&self, deps: &Deps, replicas: Option<i32>) -> Result<RenderedWorkload, ActionError>;
    /// Returns which of its credentials a tool would send out, as one sentence. Checked before anything is rendered, not for
    /// running Pods.
    fn exposed_credentials(&self, _deps: &Deps) -> Option<String> {
        None
    }
    /// Returns the containers whose image comes from the operator, with the image that they would get at this moment.
    fn images(&self, _settings: &RenderSettings) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// Returns the containers whose image is no part of the template's digest: it comes from the operator, and is pinned.
    fn operator_images(&self, settings: &RenderSettings) -> BTreeSet<String> {
        self.images(settings).into_keys().collect()
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
        PinnedProxy {
            image,
            caller_keys,
            tells_ready: status.is_some_and(|status| status.tells_ready),
            declares_port: status.is_some_and(|status| status.declares_port),
        }
    }
    /// Returns the kind's graceful degradation, if it can serve a part of its members.
    fn degradable(&self) -> Option<&dyn Degradable> {
        None
    }
    /// Returns [`WorkloadKind::degradable`], to be changed.
    fn degradable_mut(&mut self) -> Option<&mut dyn Degradable> {
        None
    }
    /// Writes the state of each member into the status; false for a workload without members, or if nothing changed.
    fn record_members(&mut self, inputs: &Inputs) -> bool {
        self.degradable_mut().is_some_and(|members| members.report_members(inputs))
    }
    /// Returns why it is not ready although its Pods are: a reason, one sentence, and whether a user has to act.
    fn unready(&self) -> Option<Unresolved> {
        self.degradable().and_then(Degradable::degraded).map(|sentence| Unresolved {
            reason: reason::DEGRADED,
            sentence,
            needs_user: true,
        })
    }
    /// Returns the NetworkPolicy that closes the port of its container.
    fn network_policy(&self) -> ChildManifest;
    /// Returns the PodDisruptionBudget of its Pods.
    fn disruption_budget(&self) -> ChildManifest;
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

/// Rendered children of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderedWorkload {
    /// Changes if and only if the Pods must be replaced to read what was rendered.
    pub content_hash: String,
    /// Objects that Pods read: applied in Rendering.
    pub config: Vec<ChildManifest>,
    /// Service, NetworkPolicy and PodDisruptionBudget if there are any, and Deployment, in this order: applied in Deploying.
    pub running: Vec<ChildManifest>,
    /// True if the API server must validate the user's overlay by a dry run before anything is written.
    pub overlay: bool,
    /// Model that it calls, such as `openai/gpt-5`, for kinds that have one of their own.
    pub model: Option<String>,
    /// True if calls of its tools wait for a person.
    pub approvals: bool,
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
