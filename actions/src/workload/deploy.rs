//! Deploys a workload; action `deploy`, Deploying → Running or Terminated. Applies Service and Deployment and waits for the
//! rollout.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{WorkloadPhase, reason};
use machine::{Action, ActionError, RECHECK};

use super::{
    children::{Drift, drift, ensure, records, remove_unwanted, scale},
    foreign::yield_to_foreign_policies,
    health::{self, Rollout, STOPPING, entered, explain, note_unready, observe, observed_change, rollout},
    images::has_replaceable_image,
    inputs::{check_inputs, inputs},
    kind::WorkloadKind,
    replicas,
};
use crate::{
    deps::Deps,
    kind::Context,
    ports::{CachedChild, ChildManifest, ChildRef, DeploymentState},
};

/// Time that Kubernetes gets to observe a template before what the Deployment says of an older one counts for it.
const OBSERVATION_GRACE: Duration = Duration::from_secs(3);

/// Action `deploy`; see the module.
#[derive(Debug)]
pub struct Deploy;

#[async_trait]
impl<K: WorkloadKind> Action<K, Deps> for Deploy {
    fn name(&self) -> &'static str {
        "deploy"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Deploying]
    }

    fn recheck(&self, _cr: &K) -> Option<Duration> {
        Some(RECHECK)
    }

    async fn handle(&self, cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        yield_to_foreign_policies(cx, cr.as_ref()).await?;
        let inputs = inputs(cx, cr.as_ref());
        if let ControlFlow::Break(result) = check_inputs(cx, cr.as_ref(), &inputs) {
            return Ok(result);
        }
        let render = || {
            let live = cx.cache.child(&cr.deployment());
            let live = live.as_ref().and_then(|live| live.deployment.as_ref());
            cr.render(cx, replicas::applied_replicas(cr.as_ref(), live))
        };
        let mut rendered = render()?;
        if cr.status().and_then(|status| status.content_hash.as_ref()) != Some(&rendered.content_hash) {
            cx.notes.reason("what is to be rendered changed");
            return Ok(Some(cr.moved_to(WorkloadPhase::Rendering)));
        }
        if let Some(child) = drifted(cx, cr.as_ref(), &rendered.config) {
            cx.notes.reason(format!("{child} is gone or was changed"));
            return Ok(Some(cr.moved_to(WorkloadPhase::Rendering)));
        }
        if has_replaceable_image(cx, cr.as_ref(), &rendered) {
            cx.notes.reason("its image cannot be pulled, and the operator has another one now");
            return Ok(Some(cr.moved_to(WorkloadPhase::Rendering)));
        }
        let mut next = cr.as_ref().clone();
        next.add_finalizer();
        let stopped = cr.replicas() == 0;
        // Before the template is applied, so that none of the Pods that are to be removed is replaced on the way.
        if stopped {
            scale(cx, cr.as_ref(), &mut next).await?;
            // The number of replicas has changed, and its field manager may have too.
            rendered = render()?;
        }
        for manifest in &rendered.running {
            if !ensure(cx, &mut next, manifest).await?.is_done(&cx.notes, &manifest.child) {
                return Ok(None);
            }
        }
        if !stopped {
            scale(cx, cr.as_ref(), &mut next).await?;
        }
        let Some(child) = cx.cache.child(&cr.deployment()) else {
            cx.notes.waiting(reason::NOT_READY, "the Deployment is not visible yet");
            return Ok(None);
        };
        let state = child.deployment.clone().unwrap_or_default();
        let key = cr.key();
        let mut progress = rollout(cr.as_ref(), &child, &state);
        if matches!(progress, Rollout::Stalled(..))
            && let Some(left) = observation_grace(cx, cr.as_ref(), &child, &state)
        {
            cx.notes.requeue_after(left);
            progress = Rollout::InProgress;
        }
        match progress {
            Rollout::Done => {}
            Rollout::AwaitsScaler => {
                cx.notes.waiting("Scaling", "the scaler has not set the number of Pods yet");
                return Ok(observed_change(cx, &next, &inputs));
            }
            Rollout::InProgress => {
                match cr.replicas() {
                    0 => cx.notes.waiting(reason::STOPPING, STOPPING),
                    _ => explain(cx, cr.as_ref()),
                }
                return Ok(observed_change(cx, &next, &inputs));
            }
            Rollout::Stalled(reason, message) => {
                let pods = cx.cache.pods(K::KIND, &key.namespace, &key.name);
                let message = health::worst_problem(&pods).map_or(message, |(_, why)| why);
                return Err(ActionError::terminal(reason, message));
            }
        }
        if stopped && !cx.cache.pods(K::KIND, &key.namespace, &key.name).is_empty() {
            cx.notes.waiting(reason::STOPPING, STOPPING);
            return Ok(None);
        }
        // The files that only old Pods needed are removed here.
        for manifest in &rendered.config {
            if !ensure(cx, &mut next, manifest).await?.is_done(&cx.notes, &manifest.child) {
                return Ok(None);
            }
        }
        let wanted: Vec<_> = rendered.config.iter().chain(&rendered.running).collect();
        remove_unwanted(cx, &mut next, &wanted).await?;
        observe(&mut next, Some(&state), stopped);
        next.set_phase(if stopped { WorkloadPhase::Terminated } else { WorkloadPhase::Running });
        next.record_members(&inputs);
        note_unready(cx, &next);
        Ok(Some(next))
    }
}

/// Returns how much longer Kubernetes may take to observe the template: that no ReplicaSet can be created stays in the Deployment's status
/// until one is, and may be about a template before it.
fn observation_grace<K: WorkloadKind>(
    cx: &Context,
    cr: &K,
    child: &CachedChild,
    state: &DeploymentState,
) -> Option<Duration> {
    if state.observed_generation >= child.generation {
        return None;
    }
    let since = entered(cr, WorkloadPhase::Deploying)?;
    Some(cx.time_left("unobserved", since, OBSERVATION_GRACE)).filter(|left| !left.is_zero())
}

/// Returns a child that the Pods read and that has drifted. Children that are not wanted any more are not checked.
fn drifted<K: WorkloadKind>(cx: &Context, cr: &K, config: &[ChildManifest]) -> Option<ChildRef> {
    let children = config.iter().map(|manifest| &manifest.child);
    let mut drifted = children.filter(|child| {
        let seen = cx.cache.child(child);
        cx.applied_records
            .record(cr.uid(), records(cr), child)
            .is_none_or(|baseline| drift(seen.as_deref(), &baseline) != Drift::None)
    });
    drifted.next().cloned()
}
