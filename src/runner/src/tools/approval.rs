//! Approval of calls: whom the operator names for the calls of a tool, and the consent with which a call is made.

use std::time::Duration;

use crds::approval::CALLER;
use serde::Deserialize;

use super::{Toolbox, definition::ToolKind};
use crate::models::ToolCall;

/// Most bytes of a call's arguments that a person is asked to read.
const MAX_ARGUMENTS: usize = 64 << 10;

/// What the operator says of the person who has to approve the calls of a tool.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct ApprovalRule {
    /// `Caller`: the user whose request began the turn. No other person can be told apart here, so that calls for one are refused.
    #[serde(default)]
    by: String,
    /// Seconds for which a call waits.
    #[serde(default)]
    timeout: u64,
}

/// Consent of a person to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent<'a> {
    /// Nobody was asked.
    Missing,
    /// A person approved this call, whose `Idempotency-Key` this is.
    Given(&'a str),
}

impl Toolbox {
    /// Returns how long a call waits until the user whose request began the turn approves it; `None` for a call that waits for nobody,
    /// or that this user cannot approve.
    pub(crate) fn patience(&self, call: &ToolCall) -> Option<Duration> {
        let rule = self.tools.iter().find(|tool| tool.name == call.name)?.approval.as_ref()?;
        let is_readable = call.arguments.to_string().len() <= MAX_ARGUMENTS;
        (rule.by == CALLER && is_readable).then(|| Duration::from_secs(rule.timeout))
    }

    /// Reports whether a call that may have been sent can be sent again, because the effect of two is that of one.
    pub(crate) fn may_repeat(&self, call: &ToolCall) -> bool {
        let tool = self.tools.iter().find(|tool| tool.name == call.name);
        tool.is_some_and(|tool| matches!(&tool.kind, ToolKind::Http(http) if http.is_idempotent()))
    }

    /// Reports whether calls of a tool wait for the user whose request began the turn.
    pub(crate) fn asks_callers(&self) -> bool {
        self.tools.iter().any(|tool| tool.approval.as_ref().is_some_and(|rule| rule.by == CALLER))
    }

    /// Reports whether calls of a tool may have headers of the request that began the turn.
    pub(crate) fn forwards_headers(&self) -> bool {
        self.tools.iter().any(|tool| tool.forwards_headers)
    }
}
