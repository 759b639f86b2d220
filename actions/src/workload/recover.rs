//! `recover`: Failed → Resolving. Looks whether the cause is gone while staying in Failed, where nothing is written;
//! where the cause cannot be looked at, it tries again when the backoff is over.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use crds::{ENDED_BY_READY_PODS, WorkloadPhase};
use jiff::Timestamp;
use machine::{Action, ActionError, ApiError, RECHECK, is_due};

use super::{
    WorkloadKind,
    children::is_owned,
    health::{Rollout, observed_change, rollout},
    inputs::inputs,
    replicas,
};
use crate::{deps::Deps, kind::Context, ports::ChildManifest, references::Inputs};

/// Nothing tells us that an object without our label is gone, so its name is looked at: this soon at first, ever more
/// rarely the longer it is taken, and this rarely at last.
const CHECK_INTERVALS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// See the module.
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
        let inputs = inputs(cx, cr.as_ref());
        let Some(why) = cause_gone(cx, cr.as_ref(), &inputs).await? else {
            if matches!(reason(cr.as_ref()), "NameConflict" | "SelectorImmutable" | "Refused") {
                cx.notes.requeue_after(next_check(cx, cr.as_ref()));
            }
            return Ok(observed_change(cx, cr.as_ref(), &inputs));
        };
        cx.notes.reason(why);
        Ok(Some(cr.moved_to(WorkloadPhase::Resolving)))
    }
}

/// When to look at the cause again: after a quarter of the time for which the object has been Failed, and not before the next
/// attempt is due.
fn next_check<K: WorkloadKind>(cx: &Context, cr: &K) -> Duration {
    let conditions = cr.common().map(|machine| machine.conditions.as_slice()).unwrap_or_default();
    let failed = conditions.iter().find(|found| found.type_ == "Stalled").map(|stalled| stalled.last_transition_time.0);
    let age = failed.and_then(|since| Duration::try_from(cx.clock.now().duration_since(since)).ok());
    let due = next_attempt(cr).and_then(|due| Duration::try_from(due.duration_since(cx.clock.now())).ok());
    (age.unwrap_or_default() / 4).max(due.unwrap_or_default()).clamp(CHECK_INTERVALS.0, CHECK_INTERVALS.1)
}

/// When the failure may be tried again, if time alone may mend it.
fn next_attempt<K: WorkloadKind>(cr: &K) -> Option<Timestamp> {
    let failure = cr.common()?.failure.as_ref().filter(|failure| failure.retryable)?;
    Some(failure.next_attempt_at.as_ref()?.0)
}

/// Why it is worth another attempt.
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
    if reason(cr) == "NameConflict" {
        let rendered = cr.render(cx, Some(cr.replicas()))?;
        let conflict = still_taken(cx, cr, rendered.config.iter().chain(&rendered.running)).await?;
        return Ok((!conflict).then(|| "the names are free now".to_owned()));
    }
    match reason(cr) {
        // Without our label it is in no cache.
        "SelectorImmutable" if cx.client.get(&cr.deployment()).await?.is_none() => {
            return Ok(Some("the Deployment is gone".to_owned()));
        }
        reason if ENDED_BY_READY_PODS.contains(&reason) => match cx.cache.child(&cr.deployment()) {
            None => return Ok(Some("the Deployment is gone".to_owned())),
            Some(child) => {
                let state = child.deployment.clone().unwrap_or_default();
                if state.available > 0 && rollout(&child, &state, replicas::desired(cr, &state)) == Rollout::Done {
                    return Ok(Some("the Pods are ready now".to_owned()));
                }
            }
        },
        // Pods of the last good configuration say nothing about any other failure.
        _ => {}
    }
    if next_attempt(cr).is_none_or(|due| !is_due(due, cx.clock.now())) {
        return Ok(None);
    }
    if reason(cr) == "Refused" {
        let rendered = cr.render(cx, Some(cr.replicas()))?;
        let refused = still_refused(cx, rendered.config.iter().chain(&rendered.running)).await?;
        return Ok((!refused).then(|| "the API server takes it now".to_owned()));
    }
    Ok(Some("it is time to try again".to_owned()))
}

/// Whether the API server still refuses one of these, by a dry run of each: an admission policy or webhook changes its mind
/// without a word. Where dry runs are not judged, only another attempt can tell.
async fn still_refused(cx: &Context, manifests: impl Iterator<Item = &ChildManifest>) -> Result<bool, ActionError> {
    for manifest in manifests {
        match cx.client.dry_run(manifest).await {
            Err(error) if error.is_undecided() => {}
            Err(ApiError::Invalid(_) | ApiError::Refused(_)) => return Ok(true),
            // The next attempt says so in its own words.
            Err(ApiError::SelectorImmutable(_)) => return Ok(false),
            answer => answer?,
        }
    }
    Ok(false)
}

/// Why what was resolved no longer holds, of a workload that may have been stopped when that was.
fn changed_since<K: WorkloadKind>(cr: &K, inputs: &Inputs, pinned: &BTreeMap<String, String>) -> Option<String> {
    match cr.replicas() {
        // Older builds pinned nothing for a stopped one, which says nothing about what changed since.
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
