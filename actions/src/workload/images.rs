//! Images that come from the operator: pinned when a template is first rendered, and renewed only when the template changes
//! for another reason. So an upgrade of the operator restarts nothing by itself.

use std::collections::BTreeMap;

use crds::digest;
use serde_json::Value;

use super::{Rendered, Workload};
use crate::{
    machine::{ActionError, Context},
    ports::ChildKind,
};

/// Renders `next` with the images that its status is to keep, and puts them there.
pub(super) fn render_with_images<K: Workload>(cx: &Context<K>, next: &mut K) -> Result<Rendered, ActionError> {
    let replicas = Some(next.replicas());
    let rendered = next.render(cx, replicas)?;
    let offered = next.images(&cx.settings);
    let template = (!offered.is_empty()).then(|| template_digest(&rendered, &offered));
    let status = next.status_mut();
    let renewed = status.template != template && status.images != offered;
    status.template = template;
    if !renewed {
        return Ok(rendered);
    }
    let pinned = std::mem::replace(&mut status.images, offered);
    // Where none was pinned, it is rendered with those that are offered.
    if pinned.is_empty() { Ok(rendered) } else { next.render(cx, replicas) }
}

/// SHA-256 (hex) of the Pod template without these containers' images.
fn template_digest(rendered: &Rendered, images: &BTreeMap<String, String>) -> String {
    let deployment = rendered.running.iter().find(|manifest| manifest.child.kind == ChildKind::Deployment);
    let mut template = deployment.and_then(|found| found.body.pointer("/spec/template")).cloned().unwrap_or_default();
    for list in ["/spec/initContainers", "/spec/containers"] {
        for container in template.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let ours = container["name"].as_str().is_some_and(|name| images.contains_key(name));
            if let Some(fields) = container.as_object_mut().filter(|_| ours) {
                fields.remove("image");
            }
        }
    }
    digest::digest(&template)
}
