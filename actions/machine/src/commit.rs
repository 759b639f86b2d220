//! Carries out the plan of a step: sends the write, then calls the sinks, and requeues by the answer of the API server.

use std::time::Duration;

use meta::{Phase, PhaseClass, PhasedObject};

use super::{
    ApiError, Driver, EdgeOwner, NamespaceReader, Requeue, StepOutcome, StepSpan,
    attempts::due,
    backoff::{LONGEST_BACKOFF, UNREACHABLE, backoff, short_backoff},
    plan::Plan,
    report::{chosen_event, event_text},
    requeue::soonest,
    send::StatusWrite,
    step_decision::StepDecision,
};

/// Longest back-off for an object that the API server does not have any more while the informer cache still has it.
const LEFT_BEHIND: Duration = Duration::from_secs(60);
/// Number of refusals of one version as stale from which the phase trace gives a reason: about three seconds.
const REPORTED_STALE_WRITES: i32 = 8;

impl<K: PhasedObject, D: NamespaceReader> Driver<K, D> {
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
        let next = match due(&done, self.clock.now()) {
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
                let history = done.common().map(|machine| machine.history.as_slice()).unwrap_or_default();
                record.entries = history.iter().filter(|entry| entry.seq > record.seq).cloned().collect();
                if let Some(entry) = record.entries.last() {
                    let span = StepSpan::of(step.cr.uid(), entry);
                    record.run = span.map(|span| span.trace_text()).unwrap_or_default();
                    record.seq = entry.seq;
                    record.reason = entry.reason.clone();
                    record.trace_id = entry.trace_id.clone();
                }
                let of_write = event_text(step.cr.as_ref(), &done, step.wait.as_ref());
                record.event = chosen_event(of_write, step.event.as_ref());
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
                self.emit(&record, Requeue::After(backoff(refusals, step.cr.uid(), LEFT_BEHIND)))
            }
            Err(error) => {
                let defect =
                    matches!(error, ApiError::Invalid(_) | ApiError::Refused(_) | ApiError::SelectorImmutable(_));
                record.outcome = if defect { StepOutcome::Defect } else { StepOutcome::Retry };
                record.reason = format!("the status could not be written: {error}");
                let most = if defect { LONGEST_BACKOFF } else { UNREACHABLE };
                let after = match error {
                    ApiError::Transient { after, .. } => {
                        self.retry_after(step, after);
                        after
                    }
                    _ => None,
                };
                let refusals = self.retry_state.count_refusal(step.key, step.cr.uid());
                let after = after.unwrap_or_else(|| backoff(refusals, step.cr.uid(), most) / 2);
                self.emit(&record, Requeue::After(after))
            }
        }
    }

    /// Returns the short back-off that gives the watch time to deliver the newer object.
    pub(super) fn requeue_stale(&self, step: &StepDecision<'_, K>) -> Requeue {
        self.retry_state.unconfirm(step.key);
        Requeue::After(short_backoff(self.retry_state.count_refusal(step.key, step.cr.uid())))
    }
}
