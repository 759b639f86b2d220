//! Computes the next status from the result of an action; pure, without I/O.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use meta::{CommonStatus, Failure, HistoryEntry, Phase, PhaseClass, PhasedObject, condition_type};
use sha2::{Digest, Sha256};

use super::{
    EdgeOwner, Rule, Table, Wait,
    conditions::{self, ConditionInputs},
};

/// Entries kept in `status.history`.
const HISTORY: usize = 20;
/// Counted attempts before an object is Failed.
pub(super) const ATTEMPTS: i32 = 8;
/// Time without a failure after which old attempts are forgotten.
pub(super) const ATTEMPTS_EXPIRE_AFTER: SignedDuration = SignedDuration::from_mins(10);

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
        let seq = machine.history.last().map_or(0, |entry| entry.seq) + 1;
        machine.history.push(HistoryEntry {
            seq,
            at: MicroTime(Timestamp::from_microsecond(exact.as_microsecond()).unwrap_or(now)),
            from: before.raw_phase().unwrap_or_default().to_owned(),
            to: phase.as_str().to_owned(),
            action: by.to_owned(),
            reason,
            took_ms: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
            trace_id: trace_id(before.uid(), seq, now),
        });
        let surplus = machine.history.len().saturating_sub(HISTORY);
        machine.history.drain(..surplus);
    }
    next
}

/// Reports whether the object is as it was created: Pending by the default of its CRD, with a status that no client has written.
pub(super) fn is_new<K: PhasedObject>(cr: &K) -> bool {
    cr.phase() == Some(K::Phase::FIRST) && cr.common().is_some_and(CommonStatus::is_initial)
}

/// Returns the history entry of a new object's admission, which was no step of the operator.
fn admission<K: PhasedObject>(cr: &K, now: Timestamp, table: &Table<K::Phase>) -> HistoryEntry {
    let (phase, by) = (K::Phase::FIRST, EdgeOwner::Rule(Rule::Admit));
    let at = cr.meta().creation_timestamp.as_ref().map_or(now, |created| created.0);
    let edge = table.edges.iter().find(|edge| edge.allows(None, phase, by));
    HistoryEntry {
        seq: 1,
        at: MicroTime(at),
        from: String::new(),
        to: phase.as_str().to_owned(),
        action: by.as_str().to_owned(),
        reason: edge.map(|edge| edge.why.to_owned()).unwrap_or_default(),
        took_ms: 0,
        trace_id: trace_id(cr.uid(), 1, at),
    }
}

/// Pins the digest of the spec and the version of its rendering.
pub(super) fn pin_spec<K: PhasedObject>(cr: &mut K, table: &Table<K::Phase>) {
    let digest = cr.spec_digest();
    let machine = cr.common_mut();
    machine.spec_digest = Some(digest);
    machine.render_version = Some(table.render_version);
}

/// Returns the id that joins a history entry with its trace line: 16 hex digits of SHA-256 over uid, number and time.
pub(super) fn trace_id(uid: &str, seq: i64, at: Timestamp) -> String {
    let digest = Sha256::digest(format!("{uid}/{seq}/{}", at.as_second()));
    hex::encode(&digest[..8])
}

/// Returns the exponential back-off with jitter before the next attempt: 1 s · 2ⁿ up to `most`, spread by ±20 %, so that objects
/// that failed together are not retried together. The jitter is derived from the uid, so that a restart computes the same delay.
///
/// See <https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>.
pub(super) fn backoff(attempts: i32, uid: &str, most: Duration) -> Duration {
    let exponent = u32::try_from(attempts.clamp(1, 20) - 1).unwrap_or_default();
    let base = Duration::from_secs(1).saturating_mul(1 << exponent).min(most);
    jitter(base, &format!("{uid}/{attempts}"))
}

/// Returns the exponential back-off for an object that a watch is to deliver soon: 20 ms · 2ⁿ up to 1 s, without jitter.
pub(super) fn short_backoff(attempts: i32) -> Duration {
    Duration::from_millis(20 << (attempts.clamp(1, 7) - 1)).min(Duration::from_secs(1))
}

/// Spreads a delay by ±20 %, the same for the same seed.
pub(super) fn jitter(delay: Duration, seed: &str) -> Duration {
    let digest = Sha256::digest(seed);
    delay.mul_f64(0.8 + 0.4 * f64::from(digest.first().copied().unwrap_or_default()) / 255.0)
}

/// Resync period: an object that waits for a watch event, or for nothing, gets a step after about this long, from the informer
/// caches and without a request, to make up for a missed event.
pub const RECHECK: Duration = Duration::from_secs(600);

/// Longest back-off.
pub(super) const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

/// Longest time until an attempt: the longest back-off with its jitter, rounded up.
pub(super) const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(361);

/// Reports whether an attempt is due. A time that is farther away than the longest back-off was set by another clock, or before
/// this clock was set back, and is not waited for.
pub fn is_due(at: Timestamp, now: Timestamp) -> bool {
    at <= now || at.duration_since(now) > LONGEST_WAIT
}

fn record_attempt<K: PhasedObject>(
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

/// Reports whether the object has been healthy for so long that old attempts do not count any more.
fn attempts_expired<K: PhasedObject>(before: &K, phase: K::Phase, now: Timestamp) -> bool {
    settled_since(before, phase).is_some_and(|since| now.duration_since(since) >= ATTEMPTS_EXPIRE_AFTER)
}

/// Returns since when the object has been healthy, if it still carries a failure that is to be forgotten.
pub(super) fn settled_since<K: PhasedObject>(cr: &K, phase: K::Phase) -> Option<Timestamp> {
    let machine = cr.common()?;
    machine.failure.as_ref()?;
    let well = matches!(phase.class(), PhaseClass::Settled | PhaseClass::Stopped);
    let ready = machine.condition(condition_type::READY).filter(|ready| ready.status == "True")?;
    well.then_some(ready.last_transition_time.0)
}

fn ready_text(status: &CommonStatus) -> Option<(String, String)> {
    let ready = status.condition(condition_type::READY)?;
    Some((ready.reason.clone(), ready.message.clone()))
}
