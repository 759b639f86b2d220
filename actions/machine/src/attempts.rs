//! Counts the failures of an object in its status: the time of the next attempt, and the time after which old ones are forgotten.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use meta::{Failure, Phase, PhaseClass, PhasedObject, condition_type};

use super::{
    backoff::{LONGEST_BACKOFF, LONGEST_WAIT, backoff},
    conditions,
};

/// Counted attempts before an object is Failed.
pub(super) const ATTEMPTS: i32 = 8;
/// Time without a failure after which old attempts are forgotten.
const ATTEMPTS_EXPIRE_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Failure or counted retry.
#[derive(Debug, Clone)]
pub(super) struct StepFailure {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// True if time alone may repair it.
    pub(super) retryable: bool,
    /// Delay before the next attempt; `None`: exponential back-off.
    pub(super) after: Option<Duration>,
}

/// Returns the record of a failure in the status, after those before it.
pub(super) fn record_attempt<K: PhasedObject>(
    failed: &StepFailure,
    previous: Option<&Failure>,
    during: K::Phase,
    uid: &str,
    now: Timestamp,
) -> Failure {
    let attempts = previous.map_or(0, |failure| failure.attempts).saturating_add(1);
    let delay = failed.after.unwrap_or_else(|| backoff(attempts, uid, LONGEST_BACKOFF));
    // Rounded up: an attempt that is due in the past would never be made.
    let almost = Duration::from_millis(999);
    let next = now.checked_add(delay + almost).map_or(now, conditions::to_seconds);
    // The phase that failed, also if a retry from Failed fails in the same way.
    let during = match previous {
        Some(failure) if during == K::Phase::FAILED => failure.during.clone(),
        _ => during.as_str().to_owned(),
    };
    Failure {
        reason: failed.reason.to_owned(),
        during,
        retryable: failed.retryable,
        attempts,
        next_attempt_at: failed.retryable.then_some(Time(next)),
    }
}

/// Reports whether the object is Failed and its status says so already, so that nothing is to be written.
pub(super) fn is_recorded<K: PhasedObject>(cr: &K, failed: &StepFailure) -> bool {
    let Some(machine) = cr.common().filter(|_| cr.phase() == Some(K::Phase::FAILED)) else { return false };
    let reason = machine.failure.as_ref().is_some_and(|failure| failure.reason == failed.reason);
    reason && machine.condition(condition_type::READY).is_some_and(|ready| ready.message == failed.message)
}

/// Reports whether the object has been healthy for so long that old attempts do not count any more.
pub(super) fn attempts_expired<K: PhasedObject>(before: &K, phase: K::Phase, now: Timestamp) -> bool {
    settled_since(before, phase).is_some_and(|since| now.duration_since(since) >= ATTEMPTS_EXPIRE_AFTER)
}

/// Returns since when the object has been healthy, if it still carries a failure that is to be forgotten.
fn settled_since<K: PhasedObject>(cr: &K, phase: K::Phase) -> Option<Timestamp> {
    let machine = cr.common()?;
    machine.failure.as_ref()?;
    let well = matches!(phase.class(), PhaseClass::Settled | PhaseClass::Stopped);
    let ready = machine.condition(condition_type::READY).filter(|ready| ready.status == "True")?;
    well.then_some(ready.last_transition_time.0)
}

/// Returns the time until the next attempt after a failure, or until old attempts are forgotten; `None` if that time has
/// passed, because this step was the attempt.
pub(super) fn due<K: PhasedObject>(cr: &K, now: Timestamp) -> Option<Duration> {
    let phase = cr.phase()?;
    let failure = cr.common()?.failure.as_ref()?;
    let settled = settled_since(cr, phase);
    let at = match settled {
        Some(since) => since.checked_add(ATTEMPTS_EXPIRE_AFTER).ok()?,
        None => failure.next_attempt_at.as_ref()?.0,
    };
    // A wall clock that was set back makes no wait longer than the longest one.
    let left = at.duration_since(now).min(if settled.is_some() { ATTEMPTS_EXPIRE_AFTER } else { LONGEST_WAIT });
    Duration::try_from(left).ok().filter(|left| !left.is_zero()).map(|left| left.max(Duration::from_millis(100)))
}
