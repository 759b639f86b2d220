//! The writing half of a step: at most one patch of metadata and one of the status, then the sinks.

use std::{sync::Arc, time::Duration};

use meta::{Phase, PhasedObject, Standing};

use super::{
    Announcement, ApiError, By, Driver, Next, StepOutcome, StepRecord, Wait,
    conclude::UNREACHABLE,
    driver::{Step, by_others},
    patch::{metadata_patch, status_patch},
    step,
    written::{sentence, steers},
};

/// The longest wait of an object that the API server says is not there, while the watch still has it.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// What became of a write.
enum Sent<K> {
    Nothing,
    Written(Arc<K>),
    Gone,
}

impl<K: PhasedObject, D: Send + Sync + 'static> Driver<K, D> {
    /// Sends what differs, tells the sinks, and says when to look again.
    pub(super) async fn write(&self, step: &Step<'_, K>, mut done: K, outcome: StepOutcome) -> Next {
        let stays = done.phase() == step.cr.phase() && matches!(step.by, By::Action(_));
        let next = match self.due(&done) {
            _ if !stays => Next::Again,
            Some(due) => Next::After(due),
            None => Next::Idle,
        };
        let outcome = if step.braked { StepOutcome::Oscillating } else { outcome };
        let mut record = self.describe(step, outcome);
        let sent = self.send(step, &mut done).await;
        let lost = match &sent {
            Ok(Sent::Written(answer)) => self.not_held(step, &done, answer.as_ref()),
            _ => None,
        };
        let next = match (&lost, &sent) {
            (Some((pause, _)), _) => Next::After(*pause),
            // A move that could not be written was none.
            (None, Ok(_)) if !stays => {
                self.memory.moved(step.key, step.cr.uid(), self.clock.elapsed()).map_or(next, Next::After)
            }
            _ => next,
        };
        // The step's requests and its write went through.
        if sent.is_ok() && outcome != StepOutcome::Retry {
            self.memory.not_refused(step.key);
        }
        match sent {
            Ok(Sent::Nothing) => {
                if record.outcome == StepOutcome::Acted {
                    record.outcome = StepOutcome::Idle;
                }
                self.tell(&record, next)
            }
            Ok(Sent::Gone) => {
                record.to = "gone".to_owned();
                self.tell(&record, Next::Idle)
            }
            Ok(Sent::Written(answer)) => {
                record.rv_after = answer.meta().resource_version.clone().unwrap_or_default();
                record.to = done.raw_phase().unwrap_or_default().to_owned();
                let entry = done.machine().and_then(|machine| machine.history.last());
                if let Some(entry) = entry.filter(|entry| entry.seq > record.seq) {
                    record.seq = entry.seq;
                    record.reason = entry.reason.clone();
                    record.trace_id = entry.trace_id.clone();
                }
                record.announce = announcement(step.cr.as_ref(), &done, step.wait.as_ref());
                if let Some((_, why)) = lost {
                    record.outcome = StepOutcome::Defect;
                    record.reason = why;
                }
                self.tell(&record, next)
            }
            Err(ApiError::Stale | ApiError::WrongUid(_)) => {
                record.outcome = StepOutcome::Stale;
                self.memory.outdated(step.key, step.cr.uid(), step.cr.version(), self.clock.elapsed());
                self.tell(&record, self.stale(step))
            }
            // The watch will say that it is gone. Where its namespace went and it was left behind, nothing ever will.
            Err(ApiError::NotFound) => {
                record.outcome = StepOutcome::Stale;
                let refusals = self.memory.refused(step.key, step.cr.uid());
                self.tell(&record, Next::After(step::backoff(refusals, step.cr.uid(), LEFT_BEHIND)))
            }
            Err(error) => {
                let defect =
                    matches!(error, ApiError::Invalid(_) | ApiError::Refused(_) | ApiError::SelectorImmutable(_));
                record.outcome = if defect { StepOutcome::Defect } else { StepOutcome::Retry };
                record.reason = format!("the status could not be written: {error}");
                let most = if defect { step::LONGEST_BACKOFF } else { UNREACHABLE };
                let after = match error {
                    ApiError::Transient { after, .. } => {
                        self.retry_after(step, after);
                        after
                    }
                    _ => None,
                };
                let refusals = self.memory.refused(step.key, step.cr.uid());
                let after = after.unwrap_or_else(|| step::backoff(refusals, step.cr.uid(), most) / 2);
                self.tell(&record, Next::After(after))
            }
        }
    }

    async fn send(&self, step: &Step<'_, K>, done: &mut K) -> Result<Sent<K>, ApiError> {
        let cr = &step.cr;
        let mut answer = None;
        if let Some(patch) = metadata_patch(cr.meta(), done.meta()) {
            match self.objects.patch_metadata(step.key, patch).await? {
                Some(stored) if !stored.is_deleting() || stored.has_finalizer() => answer = Some(stored),
                // After the last finalizer is gone no status is written.
                _ => return Ok(Sent::Gone),
            }
        }
        let mut patch = status_patch(cr.meta(), cr.status_json(), done.status_json());
        // Who writes is told by what is written anyway.
        if patch.is_some() && self.instance.is_some() && done.machine_mut().managed_by != self.instance {
            done.machine_mut().managed_by.clone_from(&self.instance);
            patch = status_patch(cr.meta(), cr.status_json(), done.status_json());
        }
        if let Some(patch) = patch {
            answer = Some(self.objects.patch_status(step.key, patch).await?);
            self.memory.wrote((step.key, cr.uid()), answer.as_ref().and_then(|stored| stored.version()));
        }
        Ok(answer.map_or(Sent::Nothing, Sent::Written))
    }

    /// How long to pause where a field that steps are chosen by is not in the answer as it was sent, and why.
    fn not_held(&self, step: &Step<'_, K>, done: &K, answer: &K) -> Option<(Duration, String)> {
        let cr = &step.cr;
        let lost = self.dropped.learn::<K>(&cr.status_json(), &done.status_json(), &answer.status_json());
        if steers(&lost, self.table()) {
            let (object, world) = (by_others(cr.meta()), || self.outside(cr));
            let pause = self.memory.not_held((step.key, cr.uid()), object, world, self.clock.elapsed());
            return Some((pause, sentence::<K>(&lost)));
        }
        if !self.dropped.steers(self.table()) {
            self.memory.held(step.key);
        }
        None
    }

    /// Tells the sinks of a step that wrote nothing.
    pub(super) fn told(&self, step: &Step<'_, K>, outcome: StepOutcome, next: Next) -> Next {
        self.tell(&self.describe(step, outcome), next)
    }

    /// How long to give the watch to bring the newer object.
    pub(super) fn stale(&self, step: &Step<'_, K>) -> Next {
        self.memory.doubt(step.key);
        Next::After(step::short_backoff(self.memory.refused(step.key, step.cr.uid())))
    }

    /// Until the next attempt of a failure, or until old attempts are forgotten; `None` when that is over: this step was
    /// the attempt.
    fn due(&self, cr: &K) -> Option<Duration> {
        let phase = cr.phase()?;
        let failure = cr.machine()?.failure.as_ref()?;
        let at = match step::settled_since(cr, phase) {
            Some(since) => since.checked_add(step::FORGIVEN_AFTER).ok()?,
            None => failure.next_attempt_at.as_ref()?.0,
        };
        // A clock that was put back makes no wait longer than the longest there is.
        let left = at.duration_since(self.clock.now()).min(step::FORGIVEN_AFTER);
        let left = if step::settled_since(cr, phase).is_some() { left } else { left.min(step::LONGEST_WAIT) };
        Duration::try_from(left).ok().filter(|left| !left.is_zero()).map(|left| left.max(Duration::from_millis(100)))
    }

    fn describe(&self, step: &Step<'_, K>, outcome: StepOutcome) -> StepRecord {
        let cr = &step.cr;
        let meta = cr.meta();
        let machine = cr.machine();
        let phase = cr.raw_phase().unwrap_or_default().to_owned();
        StepRecord {
            kind: K::KIND,
            namespace: step.key.namespace.clone(),
            name: step.key.name.clone(),
            uid: cr.uid().to_owned(),
            generation: cr.generation(),
            seq: machine.and_then(|machine| machine.history.last()).map_or(0, |entry| entry.seq),
            action: step.by.as_str(),
            from: phase.clone(),
            to: phase,
            outcome,
            reason: step.because.clone().unwrap_or_default(),
            waiting_for: step.wait.as_ref().map(|wait| wait.message.clone()).unwrap_or_default(),
            passed_over: step.passed_over.clone(),
            notes: step.facts.clone(),
            took: step.took,
            rv_before: meta.resource_version.clone().unwrap_or_default(),
            rv_after: String::new(),
            digest: machine.and_then(|machine| machine.spec_digest.clone()).unwrap_or_default(),
            content_hash: K::content_hash(cr).unwrap_or_default().to_owned(),
            trace_id: String::new(),
            announce: None,
        }
    }

    fn tell(&self, record: &StepRecord, next: Next) -> Next {
        for sink in &self.sinks {
            sink.record(record);
        }
        next
    }
}

/// What a person wants to be told about a write.
fn announcement<K: PhasedObject>(before: &K, after: &K, wait: Option<&Wait>) -> Option<Announcement> {
    let to = after.phase()?;
    let moved = before.phase() != Some(to);
    let failure = |cr: &K| cr.machine().is_some_and(|machine| machine.failure.is_some());
    let ready = after.machine()?.conditions.iter().find(|found| found.type_ == "Ready")?;
    let say = |warning, reason: &str, message: &str| {
        Some(Announcement { warning, reason: reason.to_owned(), message: message.to_owned() })
    };
    match to.standing() {
        Standing::Failed if moved => say(true, &ready.reason, &ready.message),
        Standing::Settled if moved && failure(after) => say(false, "Recovered", "works again"),
        Standing::Settled if moved && K::FINALIZER.is_some() => say(false, to.as_str(), "ready"),
        Standing::Stopped if moved => say(false, to.as_str(), &ready.message),
        Standing::Progressing | Standing::Settled => {
            let wait = wait.filter(|wait| wait.missing || wait.trouble)?;
            let known =
                before.machine()?.conditions.iter().any(|old| old.type_ == "Ready" && old.reason == wait.reason);
            if known { None } else { say(true, wait.reason, &wait.message) }
        }
        _ => None,
    }
}
