//! `deploy`: Deploying → Running or Terminated. Applies Service and Deployment and waits for the Pods.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::WorkloadPhase;
use machine::{Action, ActionError, RECHECK};

use super::{
    Workload,
    children::{Drift, drift, ensure, records, remove_unwanted, scale},
    health::{self, Rollout, STOPPING, explain, news, note_unready, observe, rollout},
    inputs::{changed_inputs, inputs, is_unsettled},
    replicas,
};
use crate::{
    deps::World,
    kind::Context,
    ports::{ChildRef, Manifest},
};

/// See the module.
#[derive(Debug)]
pub struct Deploy;

#[async_trait]
impl<K: Workload> Action<K, World> for Deploy {
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
        let inputs = inputs(cx, cr.as_ref());
        if let Some(why) = changed_inputs(cr.as_ref(), &inputs) {
            cx.notes.because(why);
            return Ok(Some(cr.moved_to(WorkloadPhase::Resolving)));
        }
        if is_unsettled(cx, cr.as_ref(), &inputs) {
            return Ok(None);
        }
        let render = || {
            let live = cx.views.child(&cr.deployment());
            let live = live.as_ref().and_then(|live| live.deployment.as_ref());
            cr.render(cx, replicas::carried(cr.as_ref(), live))
        };
        let mut rendered = render()?;
        if cr.status().and_then(|status| status.content_hash.as_ref()) != Some(&rendered.content_hash) {
            cx.notes.because("what is to be rendered changed");
            return Ok(Some(cr.moved_to(WorkloadPhase::Rendering)));
        }
        if let Some(child) = drifted(cx, cr.as_ref(), &rendered.config) {
            cx.notes.because(format!("{child} is gone or was changed"));
            return Ok(Some(cr.moved_to(WorkloadPhase::Rendering)));
        }
        let mut next = cr.as_ref().clone();
        next.hold();
        let stopped = cr.replicas() == 0;
        // Before the template: none of the Pods that go is replaced on the way.
        if stopped {
            scale(cx, cr.as_ref(), &mut next).await?;
            // The number is another one now, and may be another manager's.
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
        let Some(child) = cx.views.child(&cr.deployment()) else {
            cx.notes.waiting("NotReady", "the Deployment is not visible yet");
            return Ok(None);
        };
        let state = child.deployment.clone().unwrap_or_default();
        let key = cr.key();
        match rollout(&child, &state, replicas::wanted(cr.as_ref(), &state)) {
            Rollout::Done => {}
            Rollout::Going => {
                match cr.replicas() {
                    0 => cx.notes.waiting("Stopping", STOPPING),
                    _ => explain(cx, cr.as_ref()),
                }
                return Ok(news(cx, &next, &inputs));
            }
            Rollout::Stuck(reason, message) => {
                let pods = cx.views.pods(K::KIND, &key.namespace, &key.name);
                let message = health::trouble(&pods).map_or(message, |(_, why)| why);
                return Err(ActionError::terminal(reason, message));
            }
        }
        if replicas::is_awaited(cr.as_ref(), &state) {
            cx.notes.waiting("Scaling", "the scaler has not set the number of Pods yet");
            return Ok(news(cx, &next, &inputs));
        }
        if stopped && !cx.views.pods(K::KIND, &key.namespace, &key.name).is_empty() {
            cx.notes.waiting("Stopping", STOPPING);
            return Ok(None);
        }
        // Files that only old Pods needed go now.
        for manifest in &rendered.config {
            if !ensure(cx, &mut next, manifest).await?.is_done(&cx.notes, &manifest.child) {
                return Ok(None);
            }
        }
        let wanted: Vec<_> = rendered.config.iter().chain(&rendered.running).collect();
        remove_unwanted(cx, &mut next, &wanted).await?;
        observe(&mut next, Some(&state), stopped);
        next.set_phase(if stopped { WorkloadPhase::Terminated } else { WorkloadPhase::Running });
        next.tell(&inputs);
        note_unready(cx, &next);
        Ok(Some(next))
    }
}

/// A child that Pods read and that is not as we left it. Those that are no longer wanted may go.
fn drifted<K: Workload>(cx: &Context, cr: &K, config: &[Manifest]) -> Option<ChildRef> {
    let children = config.iter().map(|manifest| &manifest.child);
    let mut drifted = children.filter(|child| {
        let seen = cx.views.child(child);
        cx.baselines
            .record(cr.uid(), records(cr), child)
            .is_none_or(|baseline| drift(seen.as_deref(), &baseline) != Drift::None)
    });
    drifted.next().cloned()
}
