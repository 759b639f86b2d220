//! Monitors a running workload; action `monitor` of Running and Terminated. Leaves the phase when a dependency changed, repairs
//! drift, and reports the health of the Pods. Without a cause it sends nothing.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{WorkloadPhase, reason};
use machine::{Action, ActionError, RECHECK};

use super::{
    children::{
        Drift, drift, ensure, kind_of, records, remove_unwanted, renew_service, restore_records, scale, unrecorded,
    },
    disruption::settle_budget,
    health::{
        STOPPING, available_condition, explain, explain_cold_start, is_scaled_to_zero, note_rollout, note_unready,
        observe,
    },
    images::{is_template_new, note_unknown_keys},
    inputs::{changed_inputs, inputs, is_unsettled},
    kind::WorkloadKind,
    policies::is_governed,
    replicas,
};
use crate::{
    deps::Deps,
    kind::Context,
    ports::{ChildKind, ChildRef, DeploymentState},
    render::network_policy_name,
};

/// Time without an available Pod after which a workload has failed.
const UNHEALTHY_AFTER: Duration = Duration::from_mins(5);

/// Delay until the check of an outage that this step has found: the step stores it, and its age counts from then on.
const SOON: Duration = Duration::from_secs(1);

/// Action `monitor`; see the module.
#[derive(Debug)]
pub struct Monitor;

/// Repair that the state of the children calls for.
enum Repair {
    None,
    /// Apply the children that drifted, this one among them.
    Apply(ChildRef),
    /// The status does not name all applied children: those that the spec does not want are to be removed.
    Remove,
    /// Apply the replicas of the Deployment alone.
    Scale,
    /// A child is being deleted: it can be created again only when it is gone.
    Wait(ChildRef),
    /// The Deployment is gone, or there is no record of what was applied.
    Redeploy,
}

#[async_trait]
impl<K: WorkloadKind> Action<K, Deps> for Monitor {
    fn name(&self) -> &'static str {
        "monitor"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Running, WorkloadPhase::Terminated]
    }

    fn recheck(&self, _cr: &K) -> Option<Duration> {
        Some(RECHECK)
    }

    async fn handle(&self, cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        let running = cr.phase() == Some(WorkloadPhase::Running);
        let inputs = inputs(cx, cr.as_ref());
        if let Some(why) = changed_inputs(cr.as_ref(), &inputs) {
            cx.notes.reason(why);
            return Ok(Some(cr.moved_to(WorkloadPhase::Resolving)));
        }
        if running == (cr.replicas() == 0) {
            match running {
                true => cx.notes.waiting(reason::STOPPING, STOPPING),
                false => note_rollout(cx, cr.as_ref()),
            }
            cx.notes.reason(if running { "spec.replicas is 0" } else { "spec.replicas is more than 0" });
            return Ok(Some(cr.moved_to(WorkloadPhase::Deploying)));
        }
        if has_policy(cr.as_ref()) && is_governed(cr.as_ref(), cx) {
            cx.notes.reason("a NetworkPolicy of another owner selects its Pods, so its own is deleted");
            return Ok(Some(cr.moved_to(WorkloadPhase::Deploying)));
        }
        let live = cx.cache.child(&cr.deployment());
        let state = live.as_ref().and_then(|live| live.deployment.clone()).unwrap_or_default();
        let mut next = cr.as_ref().clone();
        restore_records(cx, &mut next);
        next.add_finalizer();
        if live.is_some() {
            settle_budget(cx, cr.as_ref(), &mut next).await?;
        }
        match self.assess_children(cx, cr.as_ref(), &next, &state) {
            Repair::None => {}
            Repair::Redeploy => {
                cx.notes.reason(match live {
                    None => format!("{} is gone", cr.deployment()),
                    Some(_) => "the status does not say what was applied".to_owned(),
                });
                return Ok(Some(cr.moved_to(WorkloadPhase::Deploying)));
            }
            Repair::Wait(child) => {
                cx.notes.waiting(reason::DELETING, format!("{child} is being deleted and will be created again"));
            }
            Repair::Scale => {
                scale(cx, cr.as_ref(), &mut next).await?;
            }
            Repair::Remove if inputs.waiting_for().is_some() => {}
            Repair::Remove => {
                let rendered = cr.render(cx, Some(cr.replicas()))?;
                let settled =
                    cr.status().and_then(|status| status.content_hash.as_ref()) == Some(&rendered.content_hash);
                if settled {
                    let wanted: Vec<_> = rendered.config.iter().chain(&rendered.running).collect();
                    remove_unwanted(cx, &mut next, &wanted).await?;
                }
            }
            Repair::Apply(_) if is_unsettled(cx, cr.as_ref(), &inputs) => {}
            Repair::Apply(child) => {
                let rendered = cr.render(cx, replicas::applied_replicas(cr.as_ref(), Some(&state)))?;
                if cr.status().and_then(|status| status.content_hash.as_ref()) != Some(&rendered.content_hash) {
                    cx.notes.reason(format!("{child} was changed"));
                    return Ok(Some(cr.moved_to(WorkloadPhase::Resolving)));
                }
                let deployment = cr.deployment();
                let replaced = child == deployment || is_drifted(cx, cr.as_ref(), &deployment);
                if replaced && is_template_new(cx, cr.as_ref())? {
                    let why = "and this version of the operator makes another Pod template of the spec: its Pods are replaced";
                    cx.notes.reason(format!("{deployment} was changed, {why}"));
                    return Ok(Some(cr.moved_to(WorkloadPhase::Resolving)));
                }
                for manifest in rendered.config.iter().chain(&rendered.running) {
                    let needed = manifest.child == child || is_drifted(cx, cr.as_ref(), &manifest.child);
                    if !needed {
                        continue;
                    }
                    let ensured = ensure(cx, &mut next, manifest).await?;
                    if ensured.is_done(&cx.notes, &manifest.child) {
                        cx.notes.reason(format!("{} was repaired", manifest.child));
                    }
                }
            }
        }
        // The answer to an apply is newer than the state at the start of the step.
        let state = cx.cache.child(&cr.deployment()).and_then(|live| live.deployment.clone()).unwrap_or(state);
        renew_service(cx, &mut next);
        observe(&mut next, Some(&state), !running);
        if running && state.available < replicas::required(cr.as_ref(), &state) {
            self.check_failing(cx, cr.as_ref(), &state)?;
        }
        let recorded = next.record_members(&inputs);
        note_unready(cx, &next);
        note_unknown_keys(cx, &next);
        let changed = recorded || next.status() != cr.status() || next.has_finalizer() != cr.has_finalizer();
        Ok(changed.then_some(next))
    }
}

/// Reports whether the status names a NetworkPolicy of the workload that concerns what its Pods receive.
fn has_policy<K: WorkloadKind>(cr: &K) -> bool {
    let children = cr.status().map(|status| status.children.as_slice()).unwrap_or_default();
    let name = network_policy_name(&cr.key().name);
    children.iter().any(|child| child.kind == ChildKind::NetworkPolicy.as_str() && child.name == name)
}

impl Monitor {
    /// Returns the repair that the children call for, the Deployment first. `next` names those that the status is to name.
    fn assess_children<K: WorkloadKind>(&self, cx: &Context, cr: &K, next: &K, state: &DeploymentState) -> Repair {
        let namespace = cr.meta().namespace.clone().unwrap_or_default();
        let deployment = cr.deployment();
        match cx.cache.child(&deployment) {
            None => return Repair::Redeploy,
            Some(live) if live.deleting => return Repair::Wait(deployment),
            Some(_) => {}
        }
        let Some(record) = cx.applied_records.record(cr.uid(), records(cr), &deployment) else {
            return Repair::Redeploy;
        };
        for known in records(next) {
            let Some(kind) = kind_of(known) else { continue };
            let child = ChildRef { kind, namespace: namespace.clone(), name: known.name.clone() };
            match drifted(cx, cr, &child) {
                Drift::None => {}
                Drift::Deleting => return Repair::Wait(child),
                Drift::Changed | Drift::Gone => return Repair::Apply(child),
            }
        }
        if replicas::is_handed_over(cr, state) {
            return Repair::Apply(deployment);
        }
        if replicas::due_change(cr, state, Some(&record)).is_some() {
            return Repair::Scale;
        }
        if unrecorded(cx, next).is_empty() { Repair::None } else { Repair::Remove }
    }

    /// Notes why fewer Pods are available than wanted, and returns an error if there has been none for [`UNHEALTHY_AFTER`].
    fn check_failing<K: WorkloadKind>(&self, cx: &Context, cr: &K, state: &DeploymentState) -> Result<(), ActionError> {
        if is_scaled_to_zero(cr) {
            explain_cold_start(cx, cr)
        } else {
            explain(cx, cr)
        }
        if state.available > 0 {
            return Ok(());
        }
        let Some(gone) = available_condition(cr).filter(|found| found.status == "False") else {
            // A workload that is being scaled from zero counts as available for a while.
            cx.notes.requeue_after(if is_scaled_to_zero(cr) { UNHEALTHY_AFTER } else { SOON });
            return Ok(());
        };
        let left = cx.time_left("unavailable", gone.last_transition_time.0, UNHEALTHY_AFTER);
        if left.is_zero() {
            return Err(ActionError::terminal(reason::UNHEALTHY, "no Pod was available for 5 minutes"));
        }
        cx.notes.requeue_after(left);
        Ok(())
    }
}

fn is_drifted<K: WorkloadKind>(cx: &Context, cr: &K, child: &ChildRef) -> bool {
    drifted(cx, cr, child) != Drift::None
}

fn drifted<K: WorkloadKind>(cx: &Context, cr: &K, child: &ChildRef) -> Drift {
    let Some(record) = cx.applied_records.record(cr.uid(), records(cr), child) else { return Drift::None };
    drift(cx.cache.child(child).as_deref(), &record)
}
