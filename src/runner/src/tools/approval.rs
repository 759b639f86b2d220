//! Approval of calls: whom the operator names for the calls of a tool, and the consent with which a call is made.

use std::time::Duration;

use crds::approval::CALLER;
use serde::Deserialize;
use serde_json::Value;

/// Most bytes of a call's arguments that a person is asked to read.
const MAX_ARGUMENTS: usize = 64 << 10;

/// What the operator says of the person who has to approve the calls of a tool.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct ApprovalRule {
    /// `Caller`: the user whose request began the turn. The runtime cannot identify any other person, so that calls for one are refused.
    #[serde(default)]
    by: String,
    /// Seconds for which a call waits.
    #[serde(default)]
    timeout: u64,
}

/// Consent of a person to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent<'a> {
    /// No user was asked.
    Missing,
    /// A person approved this call, whose `Idempotency-Key` this is.
    Given(&'a str),
}

impl ApprovalRule {
    /// Returns how long a call with these arguments waits until the user whose request began the turn approves it; `None` for a call
    /// that this user cannot approve.
    pub(super) fn patience(&self, arguments: &Value) -> Option<Duration> {
        let is_readable = arguments.to_string().len() <= MAX_ARGUMENTS;
        (self.asks_caller() && is_readable).then(|| Duration::from_secs(self.timeout))
    }

    /// Reports whether the user whose request began the turn approves.
    pub(super) fn asks_caller(&self) -> bool {
        self.by == CALLER
    }
}
