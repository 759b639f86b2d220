//! Entry of a timeline, from the history or from a log.

use jiff::Timestamp;
use meta::HistoryEntry;
use serde::Serialize;

/// One step of an object: a move, or a wait or retry (`from` = `to`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// Position in the object's history; for a step that was not written, the position of the last written one. 0 if
    /// unknown.
    pub seq: i64,
    /// Time of the decision; to the second where only the history has it.
    pub at: Timestamp,
    /// Phase before; empty for the first step.
    pub from: String,
    /// Phase after.
    pub to: String,
    /// Action or rule that decided.
    pub action: String,
    /// Outcome of the step, in the operator's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// Reason of the decision.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Object or event that the step waits for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
    /// Actions for the phase that declined.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub passed_over: String,
    /// Notes of the action, as `key=value`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// Duration of the step, in milliseconds.
    pub took_ms: i64,
    /// Time that the object was in `from`, in milliseconds; only for a move whose beginning is known precisely enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<i64>,
    /// Id that joins history and log.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
    /// Id of the trace of the change that the step belongs to, for `recif trace --run`; empty for a step that was not written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// Set if the step is in the object's history.
    pub written: bool,
    /// Number of consecutive steps that this entry stands for.
    pub times: u32,
}

/// Time that an object was in a phase, the sum of all stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseSpan {
    /// Name of the phase.
    pub phase: String,
    /// Milliseconds; 0 if less than can be measured.
    pub ms: i64,
    /// Set if the object is still in the phase.
    pub ongoing: bool,
}

impl TimelineEntry {
    /// Reports whether the phase changed.
    pub fn is_move(&self) -> bool {
        self.from != self.to
    }

    /// Returns the identities of the entry, each of which is unique among the entries of the object. It has two if both
    /// the history and a log hold it, because either may have been read first.
    pub(super) fn identities(&self) -> impl Iterator<Item = String> {
        let in_history = self.written.then(|| match self.trace_id.as_str() {
            "" => format!("#{}", self.seq),
            id => id.to_owned(),
        });
        let logged = !self.written || !self.outcome.is_empty();
        let in_log = logged.then(|| format!("{}@{}", self.action, self.at));
        in_history.into_iter().chain(in_log)
    }

    /// Returns the reason in one line.
    pub(super) fn why(&self) -> String {
        let mut text = self.reason.clone();
        for more in [&self.waiting_for, &self.notes] {
            if !more.is_empty() && !text.contains(more.as_str()) {
                text = if text.is_empty() { more.clone() } else { format!("{text}: {more}") };
            }
        }
        text
    }

    /// Reports whether the entry repeats another one, so that one of them is enough.
    pub(super) fn repeats(&self, other: &Self) -> bool {
        let same = self.to == other.to && self.action == other.action && self.why() == other.why();
        same && !self.is_move() && !other.is_move()
    }
}

impl From<&HistoryEntry> for TimelineEntry {
    fn from(entry: &HistoryEntry) -> Self {
        Self {
            seq: entry.seq,
            at: entry.at.0,
            from: entry.from.clone(),
            to: entry.to.clone(),
            action: entry.action.clone(),
            outcome: String::new(),
            reason: entry.reason.clone(),
            waiting_for: String::new(),
            passed_over: String::new(),
            notes: String::new(),
            took_ms: entry.took_ms,
            after_ms: None,
            trace_id: entry.trace_id.clone(),
            run: String::new(),
            written: true,
            times: 1,
        }
    }
}
