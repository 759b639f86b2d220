//! Renders a workload; action `render`, Rendering → Deploying. Applies what the Pods read, and pins the content hash that decides
//! whether they are replaced.

use std::{ops::ControlFlow, sync::Arc};

use async_trait::async_trait;
use crds::{WorkloadPhase, reason};
use machine::{Action, ActionError, ApiError, readable_message};
use meta::set_condition;
use serde_json::Value;

use super::{
    children::{check_owner, ensure},
    edges::RENDERED_CONDITIONS,
    foreign::yield_to_foreign_policies,
    health::note_rollout,
    images::render_with_images,
    inputs::{check_inputs, inputs},
    kind::WorkloadKind,
    old_files::keep_old_files,
};
use crate::{
    deps::Deps,
    kind::Context,
    ports::{ChildKind, ChildManifest, ChildRef},
};

/// Action `render`; see the module.
#[derive(Debug)]
pub struct Render;

#[async_trait]
impl<K: WorkloadKind> Action<K, Deps> for Render {
    fn name(&self) -> &'static str {
        "render"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Rendering]
    }

    async fn handle(&self, cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        yield_to_foreign_policies(cx, cr.as_ref()).await?;
        let inputs = inputs(cx, cr.as_ref());
        if let ControlFlow::Break(result) = check_inputs(cx, cr.as_ref(), &inputs) {
            return Ok(result);
        }
        let mut next = cr.as_ref().clone();
        // Refuses texts that fit into no object before `rejection` parses them, which would hold up every other object.
        let rendered = render_with_images(cx, &mut next)?;
        if cr.replicas() > 0
            && let Some(sentence) = cr.rejection(cx)
        {
            return Err(ActionError::terminal(reason::INVALID_SPEC, sentence));
        }
        if rendered.overlay {
            for manifest in rendered.running.iter().filter(|found| found.child.kind == ChildKind::Deployment) {
                if let Err(error) = cx.client.dry_run(manifest).await {
                    // A taken name causes many different errors; the name conflict is the one to report.
                    if let Some(seen) = cx.client.get(&manifest.child).await? {
                        check_owner(cr.as_ref(), &seen)?;
                    }
                    if !error.is_undecided() {
                        return Err(rejection_error(error));
                    }
                }
            }
        }
        next.set_phase(WorkloadPhase::Deploying);
        // Before the Deployment exists, because it is to be drained.
        next.add_finalizer();
        let mut config: Vec<_> = rendered.config.iter().collect();
        config.sort_by_key(|manifest| !gains_key(cx, manifest));
        for manifest in config {
            let manifest = keep_old_files(cx, cr.as_ref(), manifest).await?;
            if !ensure(cx, &mut next, &manifest).await?.is_done(&cx.notes, &manifest.child) {
                return Ok(None);
            }
        }
        let endpoint = cr.endpoint(&cx.settings);
        let selector = cr.selector();
        let status = next.status_mut();
        status.content_hash = Some(rendered.content_hash);
        status.endpoint = Some(endpoint);
        status.model = rendered.model;
        status.approvals = rendered.approvals;
        status.selector = Some(selector);
        let conditions = &mut status.machine.conditions;
        conditions.retain(|known| !RENDERED_CONDITIONS.contains(&known.type_.as_str()));
        for condition in rendered.conditions {
            set_condition(conditions, condition);
        }
        next.record_members(&inputs);
        note_rollout(cx, cr.as_ref());
        Ok(Some(next))
    }
}

/// Reports whether a Secret gains a key that its ConfigMap has. It is applied first then, and the ConfigMap otherwise: a
/// container that starts in between finds the key in one of them.
fn gains_key(cx: &Context, manifest: &ChildManifest) -> bool {
    let ChildManifest { child, body } = manifest;
    let keys = body.get("data").and_then(Value::as_object).filter(|_| child.kind == ChildKind::Secret);
    let other = keys.and_then(|_| cx.cache.child(&ChildRef { kind: ChildKind::ConfigMap, ..child.clone() }));
    other.is_some_and(|other| keys.into_iter().flatten().any(|(key, _)| other.data.contains_key(key)))
}

fn rejection_error(error: ApiError) -> ActionError {
    match error {
        ApiError::Invalid(message) => {
            let message = format!("podTemplate is refused by the API server: {message}");
            ActionError::terminal(reason::INVALID_SPEC, readable_message(&message))
        }
        other => other.into(),
    }
}
