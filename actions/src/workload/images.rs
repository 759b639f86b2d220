//! Pins the images, keys, variables and abilities that come from the operator when a template is first rendered, and renews them
//! only when the template changes for another reason, or the nodes cannot get an image. So an upgrade of the operator alone
//! restarts no Pod.

use std::collections::BTreeSet;

use crds::{WorkloadPhase, WorkloadStatus, digest, pod_problem::PodProblem, reason};
use machine::ActionError;
use serde_json::Value;

use super::{
    kind::{RenderedWorkload, WorkloadKind},
    telemetry,
};
use crate::{kind::Context, ports::ChildKind};

/// Lists of containers in a Pod template.
const CONTAINERS: [&str; 2] = ["/spec/initContainers", "/spec/containers"];

/// Abilities of the sidecar that the Pod template was given; templates of before are without.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Abilities {
    tells_ready: bool,
    declares_port: bool,
}

impl Abilities {
    /// Returns those of a template that is rendered now, with a sidecar or without.
    fn of_sidecar(enabled: bool) -> Self {
        Self { tells_ready: enabled, declares_port: enabled }
    }

    fn take(status: &mut WorkloadStatus) -> Self {
        let pinned = Self { tells_ready: status.tells_ready, declares_port: status.declares_port };
        Self::default().put(status);
        pinned
    }

    fn put(self, status: &mut WorkloadStatus) {
        (status.tells_ready, status.declares_port) = (self.tells_ready, self.declares_port);
    }
}

/// Renders `next` with the pinned images and keys, and stores them in its status.
pub(super) fn render_with_images<K: WorkloadKind>(cx: &Context, next: &mut K) -> Result<RenderedWorkload, ActionError> {
    let replicas = Some(next.replicas());
    let offered = next.images(&cx.settings);
    let status = next.status_mut();
    let (had_keys, had) = (status.caller_keys.take(), Abilities::take(status));
    let had_telemetry = std::mem::take(&mut status.telemetry);
    let is_first = status.images.is_empty() && status.template.is_none();
    // Rendered without the keys and abilities from the operator: those alone make no new template.
    let mut plain = next.render(cx, replicas)?;
    let template = Some(template_digest(&plain, &next.operator_images(&cx.settings)));
    // If the operator knows no keys at the moment, the pinned ones stay.
    let keys = cx.cache.caller_keys().or_else(|| had_keys.clone()).filter(|_| next.traffic().proxy.enabled);
    let abilities = Abilities::of_sidecar(next.traffic().proxy.enabled);
    let telemetry = telemetry::offered::<K>(cx);
    let replaceable = has_replaceable_image(cx, next, &plain);
    let status = next.status_mut();
    let is_other = had_keys != keys || had != abilities || had_telemetry != telemetry;
    let changed = status.template != template && is_other;
    let renewed = replaceable || changed || (status.template != template && status.images != offered);
    status.template = template;
    if renewed {
        status.images = offered;
        // If nothing was pinned before, the workload was rendered with the offered images.
        if !is_first {
            plain = next.render(cx, replicas)?;
            let template = Some(template_digest(&plain, &next.operator_images(&cx.settings)));
            next.status_mut().template = template;
        }
    }
    let status = next.status_mut();
    status.caller_keys = if renewed { keys } else { had_keys };
    let pinned = if renewed { abilities } else { had };
    pinned.put(status);
    status.telemetry = if renewed { telemetry } else { had_telemetry };
    let is_plain = status.caller_keys.is_none() && pinned == Abilities::default() && status.telemetry.is_empty();
    if is_plain { Ok(plain) } else { next.render(cx, replicas) }
}

/// Reports whether the nodes cannot get an image that comes from the operator, which offers another one by now. An image that the
/// overlay sets is the user's: each rendering would bring it again.
pub(super) fn has_replaceable_image<K: WorkloadKind>(cx: &Context, cr: &K, rendered: &RenderedWorkload) -> bool {
    let offered = cr.images(&cx.settings);
    let overlay = cr.pod_template();
    let mut replaced = containers(template(rendered)).filter_map(|container| {
        let (name, image) = (container["name"].as_str()?, container["image"].as_str()?);
        let is_other = offered.get(name).is_some_and(|offered| offered != image);
        (is_other && !sets_image(overlay, name)).then_some(image)
    });
    let key = cr.key();
    replaced.any(|replaced| {
        let missing = |problem: &PodProblem| problem.missing_image() == Some(replaced);
        let pods = cx.cache.pods(K::KIND, &key.namespace, &key.name);
        pods.iter().any(|pod| !pod.terminating && pod.problem.as_ref().is_some_and(missing))
    })
}

/// Reports whether this build renders another Pod template than the running one, for any reason: applying it replaces the Pods.
///
/// # Errors
/// As [`WorkloadKind::render`].
pub(super) fn is_template_new<K: WorkloadKind>(cx: &Context, cr: &K) -> Result<bool, ActionError> {
    let mut plain = cr.clone();
    let status = plain.status_mut();
    let Some(known) = status.template.clone() else { return Ok(false) };
    // The known digest was computed without what comes from the operator.
    status.caller_keys = None;
    status.telemetry.clear();
    Abilities::default().put(status);
    Ok(known != template_digest(&plain.render(cx, None)?, &cr.operator_images(&cx.settings)))
}

fn template(rendered: &RenderedWorkload) -> Option<&Value> {
    let deployment = rendered.running.iter().find(|manifest| manifest.child.kind == ChildKind::Deployment)?;
    deployment.body.pointer("/spec/template")
}

/// Returns the containers of a Pod template, or of an overlay on one.
fn containers(template: Option<&Value>) -> impl Iterator<Item = &Value> {
    CONTAINERS.iter().filter_map(move |list| template?.pointer(list)?.as_array()).flatten()
}

/// Reports whether the overlay sets the image of this container.
fn sets_image(overlay: Option<&Value>, name: &str) -> bool {
    containers(overlay).any(|container| container["name"] == name && container.get("image").is_some())
}

/// Returns SHA-256 (hex) of the Pod template without the images of these containers.
fn template_digest(rendered: &RenderedWorkload, images: &BTreeSet<String>) -> String {
    let mut template = template(rendered).cloned().unwrap_or_default();
    for list in CONTAINERS {
        for container in template.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let ours = container["name"].as_str().is_some_and(|name| images.contains(name));
            if let Some(fields) = container.as_object_mut().filter(|_| ours) {
                fields.remove("image");
            }
        }
    }
    digest::digest(&template)
}

/// Notes that the Pods of a running workload do not know the current public key by which the caller identity that gateways sign
/// is verified.
pub(super) fn note_unknown_keys<K: WorkloadKind>(cx: &Context, cr: &K) {
    let current = cx.cache.caller_keys();
    let current = current.as_deref().and_then(|keys| keys.split(',').next());
    let known = cr.status().and_then(|status| status.caller_keys.as_deref());
    let (Some(current), Some(known)) = (current, known) else { return };
    if cr.phase() == Some(WorkloadPhase::Running) && known.split(',').all(|known| known != current) {
        cx.notes.blocked(reason::UNKNOWN_KEYS, "its Pods do not know the key by which gateways vouch for callers");
    }
}
