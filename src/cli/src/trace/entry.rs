//! One line of a timeline, from whichever source.

use jiff::Timestamp;
use meta::HistoryEntry;
use serde::Serialize;

/// One step of an object: a move, or a wait or retry (`from` = `to`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// Position in the object's history; of a step that was not written, that of the last one that was. 0: not known.
    pub seq: i64,
    /// When it was decided; to the second where only the history knows it.
    pub at: Timestamp,
    /// The phase before; empty at first sight.
    pub from: String,
    /// The phase after.
    pub to: String,
    /// The action or rule that decided.
    pub action: String,
    /// How the step ended, in the operator's words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// Why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it waits for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
    /// Actions that claim the phase but declined.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub passed_over: String,
    /// What the action added, as `key=value`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// How long the step took, in milliseconds.
    pub took_ms: i64,
    /// How long the object had been in `from`, in milliseconds; only of a move, and only if its beginning is known well enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<i64>,
    /// Joins history and log.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
    /// Whether the step is in the object's history.
    pub written: bool,
    /// How many steps said just this, one after the other.
    pub times: u32,
}

/// How long an object was in a phase, all its stays together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseSpan {
    /// The phase.
    pub phase: String,
    /// In milliseconds; 0: less than can be told.
    pub ms: i64,
    /// Whether it is still there.
    pub ongoing: bool,
}

impl TimelineEntry {
    /// Whether the phase changed.
    pub fn is_move(&self) -> bool {
        self.from != self.to
    }

    /// What tells it from every other entry of the object: each of these does. Two, where both the history and a log
    /// know it, because either may have told of it first.
    pub(super) fn identities(&self) -> impl Iterator<Item = String> {
        let in_history = self.written.then(|| match self.trace_id.as_str() {
            "" => format!("#{}", self.seq),
            id => id.to_owned(),
        });
        let logged = !self.written || !self.outcome.is_empty();
        let in_log = logged.then(|| format!("{}@{}", self.action, self.at));
        in_history.into_iter().chain(in_log)
    }

    /// Why, in one line.
    pub(super) fn why(&self) -> String {
        let mut text = self.reason.clone();
        for more in [&self.waiting_for, &self.notes] {
            if !more.is_empty() && !text.contains(more.as_str()) {
                text = if text.is_empty() { more.clone() } else { format!("{text}: {more}") };
            }
        }
        text
    }

    /// Whether it says what the other says, so that one of them is enough.
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
            written: true,
            times: 1,
        }
    }
}
