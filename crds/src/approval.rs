//! Approval of tool calls: which calls wait until a person approves them, who that may be, and for how long they wait.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::period::Period;

/// No call waits.
pub const NEVER: &str = "Never";
/// All calls wait.
pub const ALWAYS: &str = "Always";
/// Calls that may change something wait.
pub const ON_WRITE: &str = "OnWrite";
/// The user whose request began the turn approves, or one with the right to approve.
pub const CALLER: &str = "Caller";
/// Another user than that one approves, who has the right to.
pub const APPROVER: &str = "Approver";

/// Header by which a sidecar says that the user of a request has the right to `create` on `agents/approve`: `true`. It is there only where
/// a gateway has signed that.
pub const APPROVER_HEADER: &str = "x-recif-approver";

/// Annotation of an Agent with an image of its own: `true` says that the image asks before it calls a tool with `approval`.
pub const ASKS: &str = "recif.dev/asks";

/// Which calls of a tool wait until a person approves them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Calls that wait: none (Never), all (Always), or those that may change something (OnWrite), which leaves out builtins and http
    /// tools whose method is GET. Default: Always.
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[schemars(extend("enum" = [NEVER, ALWAYS, ON_WRITE]))]
    #[serde(default = "always")]
    pub when: String,
    /// Who approves: the user whose request began the turn, or one with the right to create agents/approve (Caller), or only another
    /// user with that right (Approver). Default: Caller.
    // A string and not an enum, as above.
    #[schemars(extend("enum" = [CALLER, APPROVER]))]
    #[serde(default = "caller")]
    pub by: String,
    /// Time for which a call waits, from 1m to 168h, before it is refused. Default: 1h.
    #[schemars(transform = Period::between("1m", "168h", "30m or 24h"))]
    #[serde(default = "hour")]
    pub timeout: Period,
}

impl Approval {
    /// Returns the time for which a call waits.
    pub fn patience(&self) -> Duration {
        self.timeout.length_or(hour)
    }
}

/// Which calls of a server's tools wait until a person approves them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerApproval {
    /// Names at the server of the tools that this is about, with * for any text and ? for any character. A name without these
    /// must exist. Empty: all that are taken.
    // The API server limits the estimated cost of the rules on the items, and a FlowSet has 64 flows with 32 servers each.
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Calls, person and time.
    #[serde(flatten)]
    pub approval: Approval,
}

fn always() -> String {
    ALWAYS.into()
}
fn caller() -> String {
    CALLER.into()
}
fn hour() -> Period {
    "1h".into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_approval_has_defaults_and_keeps_what_was_written() {
        let approval: Approval = serde_json::from_value(json!({ "when": "Always" })).unwrap();
        assert_eq!((approval.by.as_str(), approval.patience()), (CALLER, Duration::from_secs(3600)));
        let empty: Approval = serde_json::from_value(json!({})).unwrap();
        assert_eq!(empty.when, ALWAYS, "who writes approval has a person asked");
        let newer: Approval = serde_json::from_value(json!({ "timeout": "2 weeks" })).unwrap();
        assert_eq!((newer.timeout.as_str(), newer.patience()), ("2 weeks", Duration::from_secs(3600)));
    }
}
