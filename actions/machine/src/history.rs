//! Builds `status.history`: the entry of an admission, one for each step that says something new, and the ids of all.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use meta::{HistoryEntry, Phase, PhasedObject};

use super::{EdgeOwner, Rule, Table, step_span::trace_id};

/// Entries kept in `status.history`.
const MAX_ENTRIES: usize = 20;

/// Facts about a step, for its history entry.
pub(super) struct HistoryInputs<P> {
    /// Phase after the step.
    pub(super) to: P,
    /// Action or rule that decided.
    pub(super) by: &'static str,
    /// Reason of the transition or wait.
    pub(super) reason: String,
    /// Time of the step.
    pub(super) at: Timestamp,
    /// Time that the decision took.
    pub(super) took: Duration,
}

/// Appends the entry of a step of the object `before`, and drops the oldest entries beyond [`MAX_ENTRIES`].
pub(super) fn append<K: PhasedObject>(
    history: &mut Vec<HistoryEntry>,
    before: &K,
    HistoryInputs { to, by, reason, at, took }: HistoryInputs<K::Phase>,
) {
    let seq = history.last().map_or(0, |entry| entry.seq) + 1;
    let trace_id = trace_id(before, history, seq);
    history.push(HistoryEntry {
        seq,
        // Microseconds, as the API server stores them.
        at: MicroTime(Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)),
        from: before.raw_phase().unwrap_or_default().to_owned(),
        to: to.as_str().to_owned(),
        action: by.to_owned(),
        reason,
        took_ms: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
        trace_id,
    });
    let surplus = history.len().saturating_sub(MAX_ENTRIES);
    history.drain(..surplus);
}

/// Returns the history entry of a new object's admission, which was no step of the operator.
pub(super) fn admission<K: PhasedObject>(cr: &K, now: Timestamp, table: &Table<K::Phase>) -> HistoryEntry {
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
        trace_id: trace_id(cr, &[], 1),
    }
}
