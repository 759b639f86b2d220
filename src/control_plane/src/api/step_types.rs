//! Response types of what objects did, from which the OpenAPI document is generated.

use schemars::JsonSchema;
use serde::Serialize;

/// One thing that an object did: a move, or a wait or retry (from = to).
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    /// Its number in the object's history.
    pub(crate) seq: i64,
    /// When it was decided, RFC 3339.
    pub(crate) at: String,
    /// The phase before; empty for the first one.
    pub(crate) from: String,
    /// The phase after.
    pub(crate) to: String,
    /// The action or rule that decided.
    pub(crate) action: String,
    /// Why, as one sentence.
    pub(crate) reason: String,
    /// How long the step took, in milliseconds.
    pub(crate) took_ms: i64,
    /// Joins it with the operator's log.
    pub(crate) trace_id: String,
}

impl From<&meta::HistoryEntry> for Step {
    fn from(entry: &meta::HistoryEntry) -> Self {
        Self {
            seq: entry.seq,
            at: entry.at.0.to_string(),
            from: entry.from.clone(),
            to: entry.to.clone(),
            action: entry.action.clone(),
            reason: entry.reason.clone(),
            took_ms: entry.took_ms,
            trace_id: entry.trace_id.clone(),
        }
    }
}

/// What an object did.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Trace {
    /// Its steps, oldest first.
    pub(super) entries: Vec<Step>,
    /// Steps that are not kept: the first and the last number of each gap.
    pub(super) gaps: Vec<(i64, i64)>,
}

/// Fields of a step of an object, as the event stream sends them.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Transition {
    /// The object's kind.
    pub(crate) kind: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Its uid.
    pub(crate) uid: String,
    /// The step.
    #[serde(flatten)]
    pub(crate) step: Step,
}

impl From<store::TransitionRow> for Step {
    fn from(row: store::TransitionRow) -> Self {
        let store::TransitionRow { seq, at, from, to, action, reason, took_ms, trace_id } = row;
        Self { seq, at: at.to_string(), from, to, action, reason, took_ms, trace_id }
    }
}

impl From<store::ObjectTransition> for Transition {
    fn from(row: store::ObjectTransition) -> Self {
        let store::ObjectTransition { kind, namespace, name, uid, step } = row;
        Self { kind, namespace, name, uid, step: step.into() }
    }
}

/// How far what happened is stored in the database.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct History {
    /// How long the oldest change that is not stored yet has been waiting, in seconds; 0: everything is stored.
    pub(super) behind_seconds: u64,
    /// Why nothing is stored for now; null: the database works.
    pub(super) problem: Option<&'static str>,
}

/// A page of what happened.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Transitions {
    /// Steps, the newest first.
    pub(super) items: Vec<Transition>,
    /// What to send as `before` for the next page; absent on the last one.
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}
