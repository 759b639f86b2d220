//! Conditions: the contract for machines (kstatus), derived from the phase, the notes and the failure.
//!
//! Actions say only what they know (`Available`, `ReferencesResolved`); `Ready`, `Reconciling` and `Stalled` are
//! composed here, once, for every kind. Times and generations are filled in last, so that a condition that says the
//! same as before is the same, byte for byte.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use meta::{Phase, PhasedObject, SCALED_TO_ZERO, Standing, UNDATED, condition, set_condition};

use super::{Table, Wait};

/// The types every kind has; the driver writes them.
const DERIVED: [&str; 3] = ["Ready", "Reconciling", "Stalled"];

/// The condition that is there while the API server drops fields of the status, which is also the reason of `Ready` where the
/// object cannot go on for that.
pub(super) const CRD_OUTDATED: &str = "CRDOutdated";

/// Reasons that say all.
const WORDLESS: [&str; 2] = ["Stopped", SCALED_TO_ZERO];

/// What a step found out that the conditions must say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Findings<'a> {
    /// Why the step waits.
    pub(super) wait: Option<&'a Wait>,
    /// Reason and message of a failure or retry of this very step.
    pub(super) failure: Option<(&'a str, &'a str)>,
}

/// Sets `Ready`, `Reconciling` and `Stalled` (and `Available`, where the phase decides it) as the phase and the
/// findings demand.
pub(super) fn derive<K: PhasedObject>(cr: &mut K, phase: K::Phase, findings: Findings<'_>, table: &Table<K::Phase>) {
    let name = phase.as_str();
    let wait = findings.failure.or(findings.wait.map(|wait| (wait.reason, wait.message.as_str())));
    let asleep = asleep(cr);
    let (ready, reconciling, stalled) = match phase.standing() {
        // A failure keeps its words while nothing new is found.
        Standing::Failed if findings.failure.is_none() && is_false(cr, "Ready") => return,
        Standing::Failed => {
            let (reason, message) = wait.unwrap_or((name, phase.doing()));
            (said(false, reason, message), said(false, reason, ""), said(true, reason, message))
        }
        Standing::Stopped => match wait {
            Some((reason, message)) => {
                (said(false, reason, message), said(true, reason, message), said(false, name, ""))
            }
            None => (said(true, "Stopped", phase.doing()), said(false, "Stopped", ""), said(false, name, "")),
        },
        Standing::Settled => match wait {
            Some((reason, message)) => {
                (said(false, reason, message), said(true, reason, message), said(false, name, ""))
            }
            // What serves without Pods is ready in the words in which it is available.
            None => match asleep.as_deref() {
                Some(message) => (said(true, SCALED_TO_ZERO, message), said(false, name, ""), said(false, name, "")),
                None => (said(true, name, ""), said(false, name, ""), said(false, name, "")),
            },
        },
        Standing::Progressing | Standing::Terminating => {
            let (reason, message) = wait.unwrap_or((name, phase.doing()));
            (said(false, reason, message), said(true, reason, message), said(false, name, ""))
        }
    };
    let available = (ready.0, ready.1.to_owned(), ready.2.to_owned());
    let conditions = &mut cr.machine_mut().conditions;
    for (type_, (status, reason, message)) in DERIVED.into_iter().zip([ready, reconciling, stalled]) {
        set_condition(conditions, condition(type_, status, reason, message));
    }
    let unknown = !conditions.iter().any(|found| found.type_ == "Available");
    if table.available_by_phase {
        set_condition(conditions, condition("Available", available.0, &available.1, available.2));
    } else if unknown {
        // Every kind has it from the first status on; from then on it is the actions'.
        set_condition(conditions, condition("Available", false, name, ""));
    }
}

/// Leaves the words of reasons that say all as they were: another build may have others, which is not worth a write.
pub(super) fn keep_words<K: PhasedObject>(cr: &mut K, before: &[Condition]) {
    for condition in &mut cr.machine_mut().conditions {
        let same = |old: &&Condition| {
            old.type_ == condition.type_ && old.status == condition.status && old.reason == condition.reason
        };
        if WORDLESS.contains(&condition.reason.as_str())
            && let Some(old) = before.iter().find(same)
        {
            condition.message.clone_from(&old.message);
        }
    }
}

/// Brings the reason of an `Available` that is False up to date, for a status that is written anyway: none of an earlier
/// phase stays, and what failed does not sleep.
pub(super) fn renew_available<K: PhasedObject>(cr: &mut K, phase: K::Phase, wait: Option<&Wait>) {
    let (name, standing) = (phase.as_str(), phase.standing());
    let failed = standing == Standing::Failed;
    let in_progress = failed || standing == Standing::Progressing;
    let stopping = wait.is_some_and(|wait| wait.reason == "Stopping");
    let conditions = &mut cr.machine_mut().conditions;
    let Some(found) = conditions.iter_mut().find(|found| found.type_ == "Available") else { return };
    let of_a_phase = K::Phase::parse(&found.reason).is_some();
    let outdated = match found.status.as_str() {
        "False" => of_a_phase || (in_progress && !stopping && found.reason == "Stopped"),
        _ => failed && found.reason == SCALED_TO_ZERO,
    };
    if outdated && found.reason != name {
        *found = condition("Available", false, name, phase.doing());
    }
}

/// Sets or removes the condition [`CRD_OUTDATED`].
pub(super) fn say_dropped<K: PhasedObject>(cr: &mut K, dropped: Option<String>) {
    let conditions = &mut cr.machine_mut().conditions;
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
    for condition in &mut cr.machine_mut().conditions {
        let type_ = condition.type_.as_str();
        let ours = type_ == CRD_OUTDATED || DERIVED.contains(&type_) || table.conditions.contains(&type_);
        if !ours {
            continue;
        }
        let old = before.iter().find(|old| old.type_ == condition.type_ && old.last_transition_time.0 != UNDATED);
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
fn asleep<K: PhasedObject>(cr: &K) -> Option<String> {
    let available = cr.machine()?.conditions.iter().find(|found| found.type_ == "Available" && found.status == "True");
    available.filter(|found| found.reason == SCALED_TO_ZERO).map(|found| found.message.clone())
}

fn said<'a>(status: bool, reason: &'a str, message: &'a str) -> (bool, &'a str, &'a str) {
    (status, reason, message)
}

fn is_false<K: PhasedObject>(cr: &K, type_: &str) -> bool {
    cr.machine()
        .is_some_and(|machine| machine.conditions.iter().any(|found| found.type_ == type_ && found.status == "False"))
}
