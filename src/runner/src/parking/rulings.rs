//! Decisions on calls: what a client sends, and what is stored of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::models::ToolCall;

/// Longest reason of a rejection, in characters.
const MAX_REASON: usize = 1000;

/// Body of a decision: each call that waits is named once.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Decisions {
    approvals: Vec<CallDecision>,
}

/// Decision on one call.
#[derive(Debug, Clone, Deserialize)]
struct CallDecision {
    id: String,
    approved: bool,
    rejection_reason: Option<String>,
}

/// Decision on all calls of a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ruling {
    /// User who decided; empty for one without a name.
    by: String,
    /// By the ids of the calls.
    calls: BTreeMap<String, CallRuling>,
}

/// Decision on one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallRuling {
    Approved,
    /// With the reason, which may be empty.
    Rejected(String),
}

impl Decisions {
    /// Reports whether this is the decision that was taken, whatever its reasons are; one that names no call is, too.
    pub(super) fn repeats(&self, ruling: &Ruling) -> bool {
        let is_same = |decision: &CallDecision| {
            let before = ruling.calls.get(&decision.id);
            before.is_some_and(|before| (*before == CallRuling::Approved) == decision.approved)
        };
        self.approvals.iter().all(is_same)
    }

    /// Returns the decision of the user `by` on these calls.
    ///
    /// # Errors
    /// Why it is none on these calls, as a sentence.
    pub(super) fn on(self, calls: &[ToolCall], by: &str) -> Result<Ruling, String> {
        let mut ruled = BTreeMap::new();
        for CallDecision { id, approved, rejection_reason } in self.approvals {
            let reason: String = rejection_reason.unwrap_or_default().chars().take(MAX_REASON).collect();
            // PostgreSQL's text type rejects U+0000.
            let ruling = if approved { CallRuling::Approved } else { CallRuling::Rejected(reason.replace('\0', "")) };
            if !calls.iter().any(|call| call.id == id) {
                return Err(
                    "`approvals` names a call that does not wait: take the ids of the calls that were shown".into()
                );
            }
            if ruled.insert(id, ruling).is_some() {
                return Err("`approvals` names a call twice".into());
            }
        }
        if ruled.len() < calls.len() {
            return Err("`approvals` must name each call that waits: approve or reject all of them at once".into());
        }
        Ok(Ruling { by: by.to_owned(), calls: ruled })
    }
}

impl Ruling {
    /// Reports whether this user decided; empty for one without a name.
    pub(crate) fn is_by(&self, user: &str) -> bool {
        self.by == user
    }

    /// Returns ` by ` and the user who decided; nothing for one without a name.
    pub(super) fn by_whom(&self) -> String {
        if self.by.is_empty() { String::new() } else { format!(" by {}", self.by) }
    }

    /// Returns the names of the tools of the approved calls and of the rejected ones, for the log.
    pub(crate) fn tool_names(&self, calls: &[ToolCall]) -> [String; 2] {
        [true, false].map(|expected| {
            let is_approved = |call: &&ToolCall| self.calls.get(&call.id) == Some(&CallRuling::Approved);
            shown_names(calls.iter().filter(|call| is_approved(call) == expected))
        })
    }

    /// Checks that a call is approved.
    ///
    /// # Errors
    /// Why it is not made, for the model.
    pub(crate) fn check(&self, call: &ToolCall) -> Result<(), String> {
        match self.calls.get(&call.id) {
            Some(CallRuling::Approved) => Ok(()),
            Some(CallRuling::Rejected(reason)) if reason.is_empty() => Err(format!("rejected{}", self.by_whom())),
            Some(CallRuling::Rejected(reason)) => Err(format!("rejected{}: {reason}", self.by_whom())),
            None => Err("no user approved this call".into()),
        }
    }
}

/// Returns the names of the tools of calls for the log. They come from the model and may be of any length: each is cut.
pub(super) fn shown_names<'a>(calls: impl Iterator<Item = &'a ToolCall>) -> String {
    let names = calls.map(|call| call.name.chars().take(64).collect::<String>());
    names.collect::<Vec<_>>().join(",")
}
