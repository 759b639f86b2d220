//! Computes the next status from the result of an action; pure, without I/O.

use std::time::Duration;

use jiff::Timestamp;
use meta::{CommonStatus, Phase, PhasedObject, condition_type};

use super::{
    Table, Wait,
    attempts::{StepFailure, attempts_expired, record_attempt},
    conditions::{self, ConditionInputs},
    history::{HistoryInputs, admission, append},
};

/// Decision of an action, before the driver's part of the status is filled in.
#[derive(Debug)]
pub(super) struct StatusInputs<K> {
    /// The object as it is to be written, its phase included.
    pub(super) next: K,
    /// Action or rule that decided.
    pub(super) by: &'static str,
    /// Reason, for history and trace.
    pub(super) reason: String,
    /// Wait of the step, if it waits.
    pub(super) wait: Option<Wait>,
    /// Failure or counted retry of this step.
    pub(super) failure: Option<StepFailure>,
    /// True if the step completed its work for this generation; a rejected step has not.
    pub(super) observed: bool,
}

/// Returns the object with the driver's part of the status filled in, ready to be compared with `before`.
pub(super) fn complete_status<K: PhasedObject>(
    before: &K,
    inputs: StatusInputs<K>,
    table: &Table<K::Phase>,
    now: Timestamp,
    took: Duration,
) -> K {
    let StatusInputs { mut next, by, reason, wait, failure, observed } = inputs;
    let from = before.phase();
    let Some(phase) = next.phase() else { return next };
    let exact = now;
    let now = conditions::to_seconds(now);
    if is_new(before) {
        pin_spec(&mut next, table);
        next.common_mut().history.push(admission(before, now, table));
    }
    let old = before.common().cloned().unwrap_or_default();

    let inputs_changed =
        old.inputs.is_some() && next.common().and_then(|new| new.inputs.as_ref()) != old.inputs.as_ref();
    let record = match &failure {
        Some(failed) => {
            let previous = if inputs_changed { None } else { old.failure.as_ref() };
            Some(record_attempt::<K>(failed, previous, from.unwrap_or(phase), before.uid(), exact))
        }
        None if inputs_changed || attempts_expired(before, phase, now) => None,
        None => next.common().and_then(|machine| machine.failure.clone()),
    };
    let findings = ConditionInputs {
        wait: wait.as_ref(),
        failure: failure.as_ref().map(|failed| (failed.reason, failed.message.as_str())),
    };
    if let Some(Wait { false_condition: Some(unmet), reason, message, .. }) = &wait {
        let condition = meta::condition(unmet, false, reason, message);
        meta::set_condition(&mut next.common_mut().conditions, condition);
    }
    conditions::derive(&mut next, phase, findings, table);
    let generation = if observed { Some(before.generation()) } else { old.observed_generation };
    conditions::retain_messages(&mut next, &old.conditions);
    let says_new = from != Some(phase) || failure.is_some() || next.common().and_then(ready_text) != ready_text(&old);
    if says_new && !table.available_follows_ready {
        conditions::renew_available(&mut next, phase, wait.as_ref());
    }
    conditions::stamp(&mut next, &old.conditions, generation, now, table);
    let machine = next.common_mut();
    machine.failure = record;
    machine.observed_generation = generation;
    if says_new {
        append(&mut machine.history, before, HistoryInputs { to: phase, by, reason, at: exact, took });
    }
    next
}

/// Reports whether the object is as it was created: Pending by the default of its CRD, with a status that no client has written.
pub(super) fn is_new<K: PhasedObject>(cr: &K) -> bool {
    cr.phase() == Some(K::Phase::FIRST) && cr.common().is_some_and(CommonStatus::is_initial)
}

/// Pins the digest of the spec and the version of its rendering.
pub(super) fn pin_spec<K: PhasedObject>(cr: &mut K, table: &Table<K::Phase>) {
    let digest = cr.spec_digest();
    let machine = cr.common_mut();
    machine.spec_digest = Some(digest);
    machine.render_version = Some(table.render_version);
}

fn ready_text(status: &CommonStatus) -> Option<(String, String)> {
    let ready = status.condition(condition_type::READY)?;
    Some((ready.reason.clone(), ready.message.clone()))
}
