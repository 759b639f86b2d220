//! Describes a step to the sinks.

use meta::{Phase, PhaseClass, PhasedObject, condition_type};

use super::{Driver, EventText, NamespaceReader, Requeue, StepOutcome, StepRecord, Wait, step_decision::StepDecision};

impl<K: PhasedObject, D: NamespaceReader> Driver<K, D> {
    /// Returns the record of a step, as far as its write adds nothing to it.
    pub(super) fn describe(&self, step: &StepDecision<'_, K>, outcome: StepOutcome) -> StepRecord {
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
            run: String::new(),
            entries: Vec::new(),
            event: None,
        }
    }

    /// Gives a record to all sinks, and returns the requeue.
    pub(super) fn emit(&self, record: &StepRecord, next: Requeue) -> Requeue {
        for sink in &self.sinks {
            sink.record(record);
        }
        next
    }
}

/// Returns the Event for a write, if it is worth one.
pub(super) fn event_text<K: PhasedObject>(before: &K, after: &K, wait: Option<&Wait>) -> Option<EventText> {
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

/// Returns the Event of a step that has written something, of that for the write and the one that the action noted: a warning comes
/// before other news.
pub(super) fn chosen_event(of_write: Option<EventText>, noted: Option<&EventText>) -> Option<EventText> {
    of_write.filter(|event| event.warning || noted.is_none()).or_else(|| noted.cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noted_warning_comes_before_good_news_and_after_the_warning_of_the_write() {
        let event = |warning, reason: &str| EventText { warning, reason: reason.to_owned(), message: String::new() };
        let (noted, recovered, failed) = (event(true, "Noted"), event(false, "Recovered"), event(true, "Failed"));
        for (of_write, noted, expected) in [
            (None, None, None),
            (Some(&recovered), None, Some("Recovered")),
            (None, Some(&noted), Some("Noted")),
            (Some(&recovered), Some(&noted), Some("Noted")),
            (Some(&failed), Some(&noted), Some("Failed")),
        ] {
            let chosen = chosen_event(of_write.cloned(), noted);
            assert_eq!(chosen.as_ref().map(|event| event.reason.as_str()), expected);
        }
    }
}
