//! Derives the status conditions from the phase, the notes and the failure, by the contract of
//! [kstatus](https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus).
//!
//! Actions set only the conditions they know (`Available`, `ReferencesResolved`); `Ready`, `Reconciling` and `Stalled` are
//! derived here for every kind. Times and generations are filled in last, so that a condition with unchanged content is unchanged
//! byte for byte.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use meta::{Phase, PhaseClass, PhasedObject, UNSET_TIME, condition, condition_type, reason, set_condition};

use super::{Table, Wait};

/// Condition types of every kind, written by the driver.
const DERIVED: [&str; 3] = [condition_type::READY, condition_type::RECONCILING, condition_type::STALLED];

/// Reasons that need no message.
const SELF_EXPLANATORY: [&str; 2] = [reason::STOPPED, reason::SCALED_TO_ZERO];

/// Findings of a step for the conditions.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConditionInputs<'a> {
    /// Wait of the step, if it waits.
    pub(super) wait: Option<&'a Wait>,
    /// Reason and message of a failure or retry of this step.
    pub(super) failure: Option<(&'a str, &'a str)>,
}

/// Sets `Ready`, `Reconciling` and `Stalled` (and `Available`, if it follows `Ready`) from the phase and the findings.
pub(super) fn derive<K: PhasedObject>(
    cr: &mut K,
    phase: K::Phase,
    findings: ConditionInputs<'_>,
    table: &Table<K::Phase>,
) {
    let name = phase.as_str();
    let wait = findings.failure.or(findings.wait.map(|wait| (wait.reason, wait.message.as_str())));
    let asleep = scaled_to_zero_message(cr);
    let (ready, reconciling, stalled) = match phase.class() {
        // A failure keeps its message while there is no newer finding.
        PhaseClass::Failed if findings.failure.is_none() && is_false(cr, condition_type::READY) => return,
        PhaseClass::Failed => {
            let (reason, message) = wait.unwrap_or((name, phase.default_message()));
            (
                condition_parts(false, reason, message),
                condition_parts(false, reason, ""),
                condition_parts(true, reason, message),
            )
        }
        PhaseClass::Stopped => match wait {
            Some((reason, message)) => (
                condition_parts(false, reason, message),
                condition_parts(true, reason, message),
                condition_parts(false, name, ""),
            ),
            None => (
                condition_parts(true, reason::STOPPED, phase.default_message()),
                condition_parts(false, reason::STOPPED, ""),
                condition_parts(false, name, ""),
            ),
        },
        PhaseClass::Settled => match wait {
            Some((reason, message)) => (
                condition_parts(false, reason, message),
                condition_parts(true, reason, message),
                condition_parts(false, name, ""),
            ),
            // The message of `Ready` is that of `Available` for a workload that is scaled to zero.
            None => match asleep.as_deref() {
                Some(message) => (
                    condition_parts(true, reason::SCALED_TO_ZERO, message),
                    condition_parts(false, name, ""),
                    condition_parts(false, name, ""),
                ),
                None => (
                    condition_parts(true, name, ""),
                    condition_parts(false, name, ""),
                    condition_parts(false, name, ""),
                ),
            },
        },
        PhaseClass::Progressing | PhaseClass::Terminating => {
            let (reason, message) = wait.unwrap_or((name, phase.default_message()));
            (
                condition_parts(false, reason, message),
                condition_parts(true, reason, message),
                condition_parts(false, name, ""),
            )
        }
    };
    let available = (ready.0, ready.1.to_owned(), ready.2.to_owned());
    let conditions = &mut cr.common_mut().conditions;
    for (type_, (status, reason, message)) in DERIVED.into_iter().zip([ready, reconciling, stalled]) {
        set_condition(conditions, condition(type_, status, reason, message));
    }
    let unknown = !conditions.iter().any(|found| found.type_ == condition_type::AVAILABLE);
    if table.available_follows_ready {
        set_condition(conditions, condition(condition_type::AVAILABLE, available.0, &available.1, available.2));
    } else if unknown {
        // Every kind has the condition from its first status on; after that the actions own it.
        set_condition(conditions, condition(condition_type::AVAILABLE, false, name, ""));
    }
}

/// Keeps the old message of a self-explanatory reason: another build may word it differently, which is not worth a write.
pub(super) fn retain_messages<K: PhasedObject>(cr: &mut K, before: &[Condition]) {
    for condition in &mut cr.common_mut().conditions {
        let same = |old: &&Condition| {
            old.type_ == condition.type_ && old.status == condition.status && old.reason == condition.reason
        };
        if SELF_EXPLANATORY.contains(&condition.reason.as_str())
            && let Some(old) = before.iter().find(same)
        {
            condition.message.clone_from(&old.message);
        }
    }
}

/// Updates the reason of an `Available` that is False, for a status that is written anyway: no reason of an earlier phase stays,
/// a failed workload is not scaled to zero, and its message is that of `Ready`.
pub(super) fn renew_available<K: PhasedObject>(cr: &mut K, phase: K::Phase, wait: Option<&Wait>) {
    let (name, standing) = (phase.as_str(), phase.class());
    let failed = standing == PhaseClass::Failed;
    let in_progress = failed || standing == PhaseClass::Progressing;
    let stopping = wait.is_some_and(|wait| wait.reason == reason::STOPPING);
    let conditions = &mut cr.common_mut().conditions;
    let ready = conditions.iter().find(|found| found.type_ == condition_type::READY);
    let message = match ready.filter(|ready| ready.message != phase.default_message()) {
        _ if !failed => phase.default_message().to_owned(),
        Some(ready) => ready.message.clone(),
        None => String::new(),
    };
    let Some(found) = conditions.iter_mut().find(|found| found.type_ == condition_type::AVAILABLE) else { return };
    let of_a_phase = K::Phase::parse(&found.reason).is_some();
    let outdated = match found.status.as_str() {
        "False" => of_a_phase || (in_progress && !stopping && found.reason == reason::STOPPED),
        _ => failed && found.reason == reason::SCALED_TO_ZERO,
    };
    if outdated && (found.reason != name || (failed && found.message != message)) {
        *found = condition(condition_type::AVAILABLE, false, name, message);
    }
}

/// Returns the message of the condition [`CRD_OUTDATED`](condition_type::CRD_OUTDATED), if the object has it.
pub(super) fn crd_outdated<K: PhasedObject>(cr: &K) -> Option<&str> {
    cr.common()?.condition(condition_type::CRD_OUTDATED).map(|found| found.message.as_str())
}

/// Sets or removes that condition in a status that is complete otherwise.
pub(super) fn set_crd_outdated<K: PhasedObject>(cr: &mut K, dropped: Option<String>, now: Timestamp) {
    let machine = cr.common_mut();
    let Some(sentence) = dropped else {
        machine.conditions.retain(|found| found.type_ != condition_type::CRD_OUTDATED);
        return;
    };
    let known = machine.condition(condition_type::CRD_OUTDATED);
    let since = known.map_or(Time(to_seconds(now)), |known| known.last_transition_time.clone());
    let mut new = condition(condition_type::CRD_OUTDATED, true, "FieldsDropped", sentence);
    (new.observed_generation, new.last_transition_time) = (machine.observed_generation, since);
    set_condition(&mut machine.conditions, new);
}

/// Fills in times and generations. A condition keeps its transition time, if it has one, while its status stays the same. A
/// condition of another client is left alone.
pub(super) fn stamp<K: PhasedObject>(
    cr: &mut K,
    before: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
    table: &Table<K::Phase>,
) {
    for condition in &mut cr.common_mut().conditions {
        let type_ = condition.type_.as_str();
        let ours =
            type_ == condition_type::CRD_OUTDATED || DERIVED.contains(&type_) || table.conditions.contains(&type_);
        if !ours {
            continue;
        }
        let old = before.iter().find(|old| old.type_ == condition.type_ && old.last_transition_time.0 != UNSET_TIME);
        condition.observed_generation = generation;
        condition.last_transition_time = match old {
            Some(old) if old.status == condition.status => old.last_transition_time.clone(),
            _ => Time(to_seconds(now)),
        };
    }
}

/// Truncates a time to whole seconds, as the API server stores it, so that what is sent equals what comes back.
pub(super) fn to_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Returns the message of `Available` for an object that is scaled to zero.
fn scaled_to_zero_message<K: PhasedObject>(cr: &K) -> Option<String> {
    let available = cr.common()?.condition(condition_type::AVAILABLE).filter(|found| found.status == "True")?;
    (available.reason == reason::SCALED_TO_ZERO).then(|| available.message.clone())
}

fn condition_parts<'a>(status: bool, reason: &'a str, message: &'a str) -> (bool, &'a str, &'a str) {
    (status, reason, message)
}

fn is_false<K: PhasedObject>(cr: &K, type_: &str) -> bool {
    cr.common().and_then(|status| status.condition(type_)).is_some_and(|found| found.status == "False")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{Lamp, LampPhase};

    #[test]
    fn available_of_a_failed_object_has_the_message_of_ready_and_none_if_the_cause_is_unknown() {
        let mut lamp = Lamp::new("desk", 40);
        lamp.common_mut().conditions = vec![condition(condition_type::AVAILABLE, false, "Pending", "")];
        let unknown = LampPhase::Broken.default_message();
        for (ready, expected) in
            [("the bulb burnt out", "the bulb burnt out"), ("no socket", "no socket"), (unknown, "")]
        {
            set_condition(
                &mut lamp.common_mut().conditions,
                condition(condition_type::READY, false, "BurntOut", ready),
            );
            renew_available(&mut lamp, LampPhase::Broken, None);
            let found = lamp.common().unwrap().condition(condition_type::AVAILABLE).unwrap();
            assert_eq!((found.reason.as_str(), found.message.as_str()), ("Broken", expected));
        }
    }
}
