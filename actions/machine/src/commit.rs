//! Writes the result of a step: at most one patch of the metadata and one of the status, then the sinks.

use std::{sync::Arc, time::Duration};

use meta::{Phase, PhaseClass, PhasedObject, condition_type};
use serde_json::Value;

use super::{
    ApiError, Driver, EdgeOwner, EventText, Requeue, StepOutcome, StepRecord, Wait, conditions,
    driver::{StepDecision, external_digest},
    dropped_fields::{affect_decisions, sentence},
    patch::{metadata_patch, status_patch},
    plan::{Plan, UNREACHABLE, soonest},
    status,
};

/// Longest back-off for an object that the API server does not have any more while the informer cache still has it.
const LEFT_BEHIND: Duration = Duration::from_secs(60);
/// Number of refusals of one version as stale from which the phase trace gives a reason: about three seconds.
const REPORTED_STALE_WRITES: i32 = 8;

/// Result of a write.
enum StatusWrite<K> {
    Unchanged,
    /// `sent` is the status that was sent; null if only metadata was.
    Written {
        answer: Arc<K>,
        sent: Value,
    },
    Gone,
}

impl<K: PhasedObject, D: Send + Sync + 'static> Driver<K, D> {
    /// Carries out a plan: sends the difference to the API server, calls the sinks, and returns the requeue.
    pub(super) async fn commit(&self, step: &StepDecision<'_, K>, plan: Plan<K>) -> Requeue {
        match plan {
            Plan::Unwritten { outcome, requeue } => self.emit(&self.describe(step, outcome), requeue),
            Plan::Write { next, outcome, recheck } => match (self.write(step, next, outcome).await, recheck) {
                (Requeue::OnChange, Some(recheck)) => Requeue::After(recheck),
                (Requeue::After(due), recheck) => soonest(due, recheck),
                (requeue, _) => requeue,
            },
        }
    }

    async fn write(&self, step: &StepDecision<'_, K>, mut done: K, outcome: StepOutcome) -> Requeue {
        let stays = done.phase() == step.cr.phase() && matches!(step.owner, EdgeOwner::Action(_));
        let next = match self.due(&done) {
            _ if !stays => Requeue::Now,
            Some(due) => Requeue::After(due),
            None => Requeue::OnChange,
        };
        let outcome = if step.backed_off { StepOutcome::Oscillating } else { outcome };
        let mut record = self.describe(step, outcome);
        let mut written = self.send(step, &mut done).await;
        let lost = match &written {
            Ok(StatusWrite::Written { answer, sent }) => self.lost_write(step, sent, answer.as_ref()),
            _ => None,
        };
        let moves_on = !stays && done.phase().is_some_and(|phase| phase.class() == PhaseClass::Progressing);
        if let Ok(StatusWrite::Written { answer, .. }) = &mut written
            && lost.is_none()
            && !moves_on
        {
            self.report_dropped_fields(step, answer).await;
        }
        let next = match (&lost, &written) {
            (Some((pause, _)), _) => Requeue::After(*pause),
            // A change of phase that could not be written does not count as one.
            (None, Ok(_)) if !stays => {
                self.retry_state.record_move(step.key, step.cr.uid(), self.clock.elapsed()).map_or(next, Requeue::After)
            }
            _ => next,
        };
        // The requests of the step and its write succeeded.
        if written.is_ok() && outcome != StepOutcome::Retry {
            self.retry_state.clear_refusals(step.key);
        }
        match written {
            Ok(StatusWrite::Unchanged) => {
                if record.outcome == StepOutcome::Acted {
                    record.outcome = StepOutcome::Idle;
                }
                self.emit(&record, next)
            }
            Ok(StatusWrite::Gone) => {
                record.to = "gone".to_owned();
                self.emit(&record, Requeue::OnChange)
            }
            Ok(StatusWrite::Written { answer, .. }) => {
                record.rv_after = answer.meta().resource_version.clone().unwrap_or_default();
                record.to = done.raw_phase().unwrap_or_default().to_owned();
                let entry = done.common().and_then(|machine| machine.history.last());
                if let Some(entry) = entry.filter(|entry| entry.seq > record.seq) {
                    record.seq = entry.seq;
                    record.reason = entry.reason.clone();
                    record.trace_id = entry.trace_id.clone();
                }
                record.event = event_text(step.cr.as_ref(), &done, step.wait.as_ref());
                if let Some((_, why)) = lost {
                    record.outcome = StepOutcome::Defect;
                    record.reason = why;
                }
                self.emit(&record, next)
            }
            Err(ApiError::Stale | ApiError::WrongUid(_)) => {
                record.outcome = StepOutcome::Stale;
                let now = self.clock.elapsed();
                let refusals = self.retry_state.mark_stale(step.key, step.cr.uid(), step.cr.version(), now);
                if refusals >= REPORTED_STALE_WRITES {
                    record.reason = format!(
                        "the API server has refused the status {refusals} times as stale, and no newer version of the object came: \
                         the watch is behind, or the API server stores something else than it shows"
                    );
                }
                self.emit(&record, self.requeue_stale(step))
            }
            // The watch will deliver the deletion. It never does for an object that was left behind when its namespace went.
            Err(ApiError::NotFound) => {
                record.outcome = StepOutcome::Stale;
                let refusals = self.retry_state.count_refusal(step.key, step.cr.uid());
                self.emit(&record, Requeue::After(status::backoff(refusals, step.cr.uid(), LEFT_BEHIND)))
            }
            Err(error) => {
                let defect =
                    matches!(error, ApiError::Invalid(_) | ApiError::Refused(_) | ApiError::SelectorImmutable(_));
                record.outcome = if defect { StepOutcome::Defect } else { StepOutcome::Retry };
                record.reason = format!("the status could not be written: {error}");
                let most = if defect { status::LONGEST_BACKOFF } else { UNREACHABLE };
                let after = match error {
                    ApiError::Transient { after, .. } => {
                        self.retry_after(step, after);
                        after
                    }
                    _ => None,
                };
                let refusals = self.retry_state.count_refusal(step.key, step.cr.uid());
                let after = after.unwrap_or_else(|| status::backoff(refusals, step.cr.uid(), most) / 2);
                self.emit(&record, Requeue::After(after))
            }
        }
    }

    async fn send(&self, step: &StepDecision<'_, K>, done: &mut K) -> Result<StatusWrite<K>, ApiError> {
        let cr = &step.cr;
        let mut answer = None;
        if let Some(patch) = metadata_patch(cr.meta(), done.meta()) {
            match self.objects.patch_metadata(step.key, patch).await? {
                Some(stored) if !stored.is_deleting() || stored.has_finalizer() => answer = Some(stored),
                // No status is written after the last finalizer is removed.
                _ => return Ok(StatusWrite::Gone),
            }
        }
        let mut sent = Value::Null;
        let changes = status_patch(cr.meta(), cr.status_json(), self.wanted_status(cr, done)).is_some();
        if changes || (self.dropped.is_upgraded() && conditions::crd_outdated::<K>(cr).is_some()) {
            // The writer's identity and what the CRD drops are written only together with another change.
            if self.instance.is_some() {
                done.common_mut().managed_by.clone_from(&self.instance);
            }
            conditions::set_crd_outdated(done, self.dropped.sentence::<K>(), self.clock.now());
            // Dropped fields go along: the CRD may have been upgraded meanwhile, and no later step may set them again.
            let status = done.status_json();
            if let Some(patch) = status_patch(cr.meta(), cr.status_json(), status.clone()) {
                answer = Some(self.send_status(step, patch).await?);
                sent = status;
            }
        }
        Ok(answer.map_or(StatusWrite::Unchanged, |answer| StatusWrite::Written { answer, sent }))
    }

    async fn send_status(&self, step: &StepDecision<'_, K>, patch: Value) -> Result<Arc<K>, ApiError> {
        let answer = self.objects.patch_status(step.key, patch).await?;
        self.retry_state.record_write((step.key, step.cr.uid()), answer.version());
        Ok(answer)
    }

    /// Returns the status by which it is decided whether to write: without the fields that the API server would drop.
    fn wanted_status(&self, cr: &K, done: &K) -> Value {
        let mut status = done.status_json();
        self.dropped.withhold(|| cr.status_json(), &mut status, self.table(), self.clock.elapsed());
        status
    }

    /// Writes the condition about the CRD if the last write has shown that it is another one. No further move of the object would
    /// tell it. If it cannot be written, the next write does.
    async fn report_dropped_fields(&self, step: &StepDecision<'_, K>, answer: &mut Arc<K>) {
        let sentence = self.dropped.sentence::<K>();
        if conditions::crd_outdated::<K>(answer) == sentence.as_deref() {
            return;
        }
        let mut next = K::clone(answer);
        conditions::set_crd_outdated(&mut next, sentence, self.clock.now());
        let patch = status_patch(answer.meta(), answer.status_json(), next.status_json());
        if let Some(patch) = patch
            && let Ok(stored) = self.send_status(step, patch).await
        {
            *answer = stored;
        }
    }

    /// Returns the pause and its reason if the answer does not hold a field that decides on steps as it was sent.
    fn lost_write(&self, step: &StepDecision<'_, K>, sent: &Value, answer: &K) -> Option<(Duration, String)> {
        let cr = &step.cr;
        let now = self.clock.elapsed();
        let lost = self.dropped.learn::<K>(&cr.status_json(), sent, &answer.status_json(), now);
        if affect_decisions(&lost, self.table()) {
            let (object, dependency_digest) = (external_digest(cr.meta()), || self.dependency_digest(cr));
            let pause = self.retry_state.record_lost_write((step.key, cr.uid()), object, dependency_digest, now);
            return Some((pause, sentence::<K>(&lost)));
        }
        if !self.dropped.affects_decisions(self.table()) {
            self.retry_state.record_kept_write(step.key);
        }
        None
    }

    /// Returns the short back-off that gives the watch time to deliver the newer object.
    pub(super) fn requeue_stale(&self, step: &StepDecision<'_, K>) -> Requeue {
        self.retry_state.unconfirm(step.key);
        Requeue::After(status::short_backoff(self.retry_state.count_refusal(step.key, step.cr.uid())))
    }

    /// Returns the time until the next attempt after a failure, or until old attempts are forgotten; `None` if that time has
    /// passed, because this step was the attempt.
    fn due(&self, cr: &K) -> Option<Duration> {
        let phase = cr.phase()?;
        let failure = cr.common()?.failure.as_ref()?;
        let at = match status::settled_since(cr, phase) {
            Some(since) => since.checked_add(status::ATTEMPTS_EXPIRE_AFTER).ok()?,
            None => failure.next_attempt_at.as_ref()?.0,
        };
        // A wall clock that was set back makes no wait longer than the longest one.
        let left = at.duration_since(self.clock.now()).min(status::ATTEMPTS_EXPIRE_AFTER);
        let left = if status::settled_since(cr, phase).is_some() { left } else { left.min(status::LONGEST_WAIT) };
        Duration::try_from(left).ok().filter(|left| !left.is_zero()).map(|left| left.max(Duration::from_millis(100)))
    }

    fn describe(&self, step: &StepDecision<'_, K>, outcome: StepOutcome) -> StepRecord {
        let cr = &step.cr;
        let meta = cr.meta();
        let machine = cr.common();
        let phase = cr.raw_phase().unwrap_or_default().to_owned();
        StepRecord {
            kind: K::KIND,
            namespace: step.key.namespace.clone(),
            name: step.key.name.clone(),
            uid: cr.uid().to_owned(),
            generation: cr.generation(),
            seq: machine.and_then(|machine| machine.history.last()).map_or(0, |entry| entry.seq),
            action: step.owner.as_str(),
            from: phase.clone(),
            to: phase,
            outcome,
            reason: step.reason.clone().unwrap_or_default(),
            waiting_for: step.wait.as_ref().map(|wait| wait.message.clone()).unwrap_or_default(),
            passed_over: step.passed_over.clone(),
            notes: step.facts.clone(),
            took: step.took,
            rv_before: meta.resource_version.clone().unwrap_or_default(),
            rv_after: String::new(),
            digest: machine.and_then(|machine| machine.spec_digest.clone()).unwrap_or_default(),
            content_hash: K::content_hash(cr).unwrap_or_default().to_owned(),
            trace_id: String::new(),
            event: None,
        }
    }

    fn emit(&self, record: &StepRecord, next: Requeue) -> Requeue {
        for sink in &self.sinks {
            sink.record(record);
        }
        next
    }
}

/// Returns the Event for a write, if it is worth one.
fn event_text<K: PhasedObject>(before: &K, after: &K, wait: Option<&Wait>) -> Option<EventText> {
    let to = after.phase()?;
    let moved = before.phase() != Some(to);
    let failure = |cr: &K| cr.common().is_some_and(|machine| machine.failure.is_some());
    let ready = after.common()?.condition(condition_type::READY)?;
    let say = |warning, reason: &str, message: &str| {
        Some(EventText { warning, reason: reason.to_owned(), message: message.to_owned() })
    };
    match to.class() {
        PhaseClass::Failed if moved => say(true, &ready.reason, &ready.message),
        PhaseClass::Settled if moved && failure(after) => say(false, "Recovered", "works again"),
        PhaseClass::Settled if moved && K::FINALIZER.is_some() => say(false, to.as_str(), "ready"),
        PhaseClass::Stopped if moved => say(false, to.as_str(), &ready.message),
        PhaseClass::Progressing | PhaseClass::Settled => {
            let wait = wait.filter(|wait| wait.needs_user || wait.pod_problem)?;
            let known = before.common()?.condition(condition_type::READY).is_some_and(|old| old.reason == wait.reason);
            if known { None } else { say(true, wait.reason, &wait.message) }
        }
        _ => None,
    }
}
