//! Approval of calls: whom the operator names for the calls of a tool, and the consent with which a call is made.

use std::time::Duration;

use crds::approval::{APPROVER, CALLER};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most bytes of a call's arguments that a person is asked to read.
const MAX_ARGUMENTS: usize = 64 << 10;

/// Person who decides on a call. Of several calls of one turn the last of these decides on all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Decider {
    /// The user whose request began the turn, or an approver.
    #[default]
    Caller,
    /// An approver other than that user.
    Approver,
}

/// What the operator says of the person who has to approve the calls of a tool.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct ApprovalRule {
    /// `Caller` or `Approver`. Calls for a person that this version does not know are refused.
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
    /// Returns how long a call with these arguments waits until a person decides; `None` for a call that no person can decide on.
    pub(super) fn patience(&self, arguments: &Value) -> Option<Duration> {
        let is_readable = arguments.to_string().len() <= MAX_ARGUMENTS;
        (self.decider().is_some() && is_readable).then(|| Duration::from_secs(self.timeout))
    }

    /// Returns who decides; `None` for a person that this version does not know.
    pub(super) fn decider(&self) -> Option<Decider> {
        match self.by.as_str() {
            CALLER => Some(Decider::Caller),
            APPROVER => Some(Decider::Approver),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_waits_for_a_person_that_is_known_here() {
        for (by, expected) in
            [("Caller", Some(Decider::Caller)), ("Approver", Some(Decider::Approver)), ("Council", None), ("", None)]
        {
            let rule: ApprovalRule = serde_json::from_value(json!({ "by": by, "timeout": 60 })).unwrap();
            assert_eq!(rule.decider(), expected, "{by}");
            let patience = expected.map(|_| Duration::from_secs(60));
            assert_eq!(rule.patience(&json!({ "euros": 5 })), patience, "{by}");
            assert_eq!(rule.patience(&json!("x".repeat(MAX_ARGUMENTS))), None, "no person reads that");
        }
        assert!(Decider::Caller < Decider::Approver);
    }
}
