//! Recovers a failed workload; action `recover`, Failed → Resolving. Checks whether the cause is gone while the object stays in
//! Failed, without writes; if the cause cannot be checked, it retries after the back-off.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{ENDED_BY_READY_PODS, WorkloadPhase, reason};
use jiff::Timestamp;
use machine::{Action, ActionError, ApiError, RECHECK, is_due};
use meta::condition_type;

use super::{
    children::is_owned,
    foreign::yield_to_foreign_policies,
    health::{Rollout, observed_change, rollout},
    inputs::inputs,
    kind::WorkloadKind,
};
use crate::{deps::Deps, kind::Context, ports::ChildManifest, references::Inputs};

/// Shortest and longest interval between two checks of a name. An object without the operator's label is not watched, so its name
/// is polled: after 5 s at first, less often the longer it is taken, and every 300 s at last.
const CHECK_INTERVALS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Action `recover`; see the module.
#[derive(Debug)]
pub struct Recover;

#[async_trait]
impl<K: WorkloadKind> Action<K, Deps> for Recover {
    fn name(&self) -> &'static str {
        "recover"
    }

    fn phases(&self) -> &'static [WorkloadPhase] {
        &[WorkloadPhase::Failed]
    }

    fn recheck(&self, _cr: &K) -> Option<Duration> {
        Some(RECHECK)
    }

    async fn handle(&self, cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        yield_to_foreign_policies(cx, cr.as_ref()).await?;
        let inputs = inputs(cx, cr.as_ref());
        let Some(why) = cause_gone(cx, cr.as_ref(), &inputs).await? else {
            if matches!(reason(cr.as_ref()), reason::NAME_CONFLICT | reason::SELECTOR_IMMUTABLE | reason::REFUSED) {
                cx.notes.requeue_after(next_check(cx, cr.as_ref()));
            }
            return Ok(observed_change(cx, cr.as_ref(), &inputs));
        };
        cx.notes.reason(why);
        Ok(Some(cr.moved_to(WorkloadPhase::Resolving)))
    }
}

/// Returns the delay until the next check of the cause: a quarter of the time for which the object has been Failed, and not
/// before the next attempt is due.
fn next_check<K: WorkloadKind>(cx: &Context, cr: &K) -> Duration {
    let stalled = cr.common().and_then(|status| status.condition(condition_type::STALLED));
    let failed = stalled.map(|stalled| stalled.last_transition_time.0);
    let age = failed.and_then(|since| Duration::try_from(cx.clock.now().duration_since(since)).ok());
    let due = next_attempt(cr).and_then(|due| Duration::try_from(due.duration_since(cx.clock.now())).ok());
    (age.unwrap_or_default() / 4).max(due.unwrap_or_default()).clamp(CHECK_INTERVALS.0, CHECK_INTERVALS.1)
}

/// Returns the time of the next attempt, if time alone may repair the failure.
fn next_attempt<K: WorkloadKind>(cr: &K) -> Option<Timestamp> {
    let failure = cr.common()?.failure.as_ref().filter(|failure| failure.retryable)?;
    Some(failure.next_attempt_at.as_ref()?.0)
}

/// Returns why the failure is worth another attempt, if it is.
async fn cause_gone<K: WorkloadKind>(cx: &Context, cr: &K, inputs: &Inputs) -> Result<Option<String>, ActionError> {
    if cr.is_edited() {
        return Ok(Some("spec.replicas was edited".to_owned()));
    }
    if let Some(why) = cr.pinned().and_then(|pinned| changed_since(cr, inputs, pinned)) {
        return Ok(Some(why));
    }
    let failure = cr.common().and_then(|machine| machine.failure.as_ref());
    if failure.is_none() {
        return Ok(Some("the status does not say why it failed".to_owned()));
    }
    if failure.is_some_and(|failure| failure.during == WorkloadPhase::Pending.to_string()) {
        return Ok(cr.validate(&cx.settings).is_ok().then(|| "the spec is valid now".to_owned()));
    }
    if reason(cr) == reason::NAME_CONFLICT {
        let rendered = cr.render(cx, Some(cr.replicas()))?;
        let conflict = still_taken(cx, cr, rendered.config.iter().chain(&rendered.running)).await?;
        return Ok((!conflict).then(|| "the names are free now".to_owned()));
    }
    match reason(cr) {
        // Without the operator's label it is in no informer cache.
        reason::SELECTOR_IMMUTABLE if cx.client.get(&cr.deployment()).await?.is_none() => {
            return Ok(Some("the Deployment is gone".to_owned()));
        }
        reason if ENDED_BY_READY_PODS.contains(&reason) => match cx.cache.child(&cr.deployment()) {
            None => return Ok(Some("the Deployment is gone".to_owned())),
            Some(child) => {
                let state = child.deployment.clone().unwrap_or_default();
                let rollout = rollout(cr, &child, &state);
                if state.available > 0 && matches!(rollout, Rollout::Done | Rollout::AwaitsScaler) {
                    return Ok(Some("the Pods are ready now".to_owned()));
                }
            }
        },
        // Ready Pods of the last good configuration say nothing about any other failure.
        _ => {}
    }
    if next_attempt(cr).is_none_or(|due| !is_due(due, cx.clock.now())) {
        return Ok(None);
    }
    if reason(cr) == reason::REFUSED {
        let rendered = cr.render(cx, Some(cr.replicas()))?;
        let refused = still_refused(cx, rendered.config.iter().chain(&rendered.running)).await?;
        return Ok((!refused).then(|| "the API server takes it now".to_owned()));
    }
    Ok(Some("the back-off is over".to_owned()))
}

/// Reports whether the API server still rejects one of these, by a dry run of each: an admission policy or webhook may change
/// without notice. If dry runs are not supported, only another attempt can decide.
async fn still_refused(cx: &Context, manifests: impl Iterator<Item = &ChildManifest>) -> Result<bool, ActionError> {
    for manifest in manifests {
        match cx.client.dry_run(manifest).await {
            Err(error) if error.is_undecided() => {}
            Err(ApiError::Invalid(_) | ApiError::Refused(_)) => return Ok(true),
            // The next attempt reports it in its own words.
            Err(ApiError::SelectorImmutable(_)) => return Ok(false),
            answer => answer?,
        }
    }
    Ok(false)
}

/// Returns why the pinned references are outdated, of a workload that may have been stopped when they were resolved.
fn changed_since<K: WorkloadKind>(cr: &K, inputs: &Inputs, pinned: &BTreeMap<String, String>) -> Option<String> {
    match cr.replicas() {
        // Older builds pinned nothing for a stopped workload, so nothing is known about later changes.
        0 if pinned.is_empty() => None,
        0 => inputs.changed_since_stopped(pinned),
        _ => inputs.changed_since(pinned),
    }
}

async fn still_taken<K: WorkloadKind>(
    cx: &Context,
    cr: &K,
    manifests: impl Iterator<Item = &ChildManifest>,
) -> Result<bool, ActionError> {
    for manifest in manifests {
        let seen = match cx.cache.child(&manifest.child) {
            Some(seen) => Some(seen),
            None => cx.client.get(&manifest.child).await?,
        };
        if seen.is_some_and(|seen| !is_owned(cr, &seen)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn reason<K: WorkloadKind>(cr: &K) -> &str {
    cr.common().and_then(|machine| machine.failure.as_ref()).map_or("", |failure| failure.reason.as_str())
}
