//! Conditions: the contract for machines (kstatus), derived from the phase, the notes and the failure.
//!
//! Actions say only what they know (`Available`, `ReferencesResolved`); `Ready`, `Reconciling` and `Stalled` are
//! composed here, once, for every kind. Times and generations are filled in last, so that a condition that says the
//! same as before is the same, byte for byte.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use meta::{Phase, PhaseClass, PhasedObject, SCALED_TO_ZERO, UNSET_TIME, condition, set_condition};

use super::{Table, Wait};

/// The types every kind has; the driver writes them.
const DERIVED: [&str; 3] = ["Ready", "Reconciling", "Stalled"];

/// The condition that is there while the API server drops fields of the status, which is also the reason of `Ready` where the
/// object cannot go on for that.
pub(super) const CRD_OUTDATED: &str = "CRDOutdated";

/// Reasons that say all.
const SELF_EXPLANATORY: [&str; 2] = ["Stopped", SCALED_TO_ZERO];

/// What a step found out that the conditions must say.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConditionInputs<'a> {
    /// Why the step waits.
    pub(super) wait: Option<&'a Wait>,
    /// Reason and message of a failure or retry of this very step.
    pub(super) failure: Option<(&'a str, &'a str)>,
}

/// Sets `Ready`, `Reconciling` and `Stalled` (and `Available`, where the phase decides it) as the phase and the
/// findings demand.
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
        // A failure keeps its words while nothing new is found.
        PhaseClass::Failed if findings.failure.is_none() && is_false(cr, "Ready") => return,
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
                condition_parts(true, "Stopped", phase.default_message()),
                condition_parts(false, "Stopped", ""),
                condition_parts(false, name, ""),
            ),
        },
        PhaseClass::Settled => match wait {
            Some((reason, message)) => (
                condition_parts(false, reason, message),
                condition_parts(true, reason, message),
                condition_parts(false, name, ""),
            ),
            // What serves without Pods is ready in the words in which it is available.
            None => match asleep.as_deref() {
                Some(message) => (
                    condition_parts(true, SCALED_TO_ZERO, message),
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
    let unknown = !conditions.iter().any(|found| found.type_ == "Available");
    if table.available_follows_ready {
        set_condition(conditions, condition("Available", available.0, &available.1, available.2));
    } else if unknown {
        // Every kind has it from the first status on; from then on it is the actions'.
        set_condition(conditions, condition("Available", false, name, ""));
    }
}

/// Leaves the words of reasons that say all as they were: another build may have others, which is not worth a write.
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

/// Brings the reason of an `Available` that is False up to date, for a status that is written anyway: none of an earlier
/// phase stays, and what failed does not sleep.
pub(super) fn renew_available<K: PhasedObject>(cr: &mut K, phase: K::Phase, wait: Option<&Wait>) {
    let (name, standing) = (phase.as_str(), phase.class());
    let failed = standing == PhaseClass::Failed;
    let in_progress = failed || standing == PhaseClass::Progressing;
    let stopping = wait.is_some_and(|wait| wait.reason == "Stopping");
    let conditions = &mut cr.common_mut().conditions;
    let Some(found) = conditions.iter_mut().find(|found| found.type_ == "Available") else { return };
    let of_a_phase = K::Phase::parse(&found.reason).is_some();
    let outdated = match found.status.as_str() {
        "False" => of_a_phase || (in_progress && !stopping && found.reason == "Stopped"),
        _ => failed && found.reason == SCALED_TO_ZERO,
    };
    if outdated && found.reason != name {
        *found = condition("Available", false, name, phase.default_message());
    }
}

/// Sets or removes the condition [`CRD_OUTDATED`].
pub(super) fn set_crd_outdated<K: PhasedObject>(cr: &mut K, dropped: Option<String>) {
    let conditions = &mut cr.common_mut().conditions;
    match dropped {
        Some(sentence) => set_condition(conditions, condition(CRD_OUTDATED, true, "FieldsDropped", sentence)),
        None => conditions.retain(|found| found.type_ != CRD_OUTDATED),
    }
}

/// Fills in times and generations: a condition keeps its time, if it has one, while its status stays, and somebody else's
/// condition is left alone.
pub(super) fn stamp<K: PhasedObject>(
    cr: &mut K,
    before: &[Condition],
    generation: Option<i64>,
    now: Timestamp,
    table: &Table<K::Phase>,
) {
    for condition in &mut cr.common_mut().conditions {
        let type_ = condition.type_.as_str();
        let ours = type_ == CRD_OUTDATED || DERIVED.contains(&type_) || table.conditions.contains(&type_);
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

/// The API server stores times in whole seconds; what we keep must equal what comes back.
pub(super) fn to_seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// What `Available` says of an object that serves without Pods.
fn scaled_to_zero_message<K: PhasedObject>(cr: &K) -> Option<String> {
    let available = cr.common()?.conditions.iter().find(|found| found.type_ == "Available" && found.status == "True");
    available.filter(|found| found.reason == SCALED_TO_ZERO).map(|found| found.message.clone())
}

fn condition_parts<'a>(status: bool, reason: &'a str, message: &'a str) -> (bool, &'a str, &'a str) {
    (status, reason, message)
}

fn is_false<K: PhasedObject>(cr: &K, type_: &str) -> bool {
    cr.common()
        .is_some_and(|machine| machine.conditions.iter().any(|found| found.type_ == type_ && found.status == "False"))
}
