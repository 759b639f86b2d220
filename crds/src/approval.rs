//! Approval of tool calls: which calls wait until a person approves them, who that may be, and for how long they wait.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    period::Period,
    tool::{ToolSpec, ToolType},
    tool_server,
    tool_server_ref::ToolServerRef,
};

/// No call waits.
pub const NEVER: &str = "Never";
/// All calls wait.
pub const ALWAYS: &str = "Always";
/// Calls that may change something wait.
pub const ON_WRITE: &str = "OnWrite";
/// The user whose request began the turn approves.
pub const CALLER: &str = "Caller";
/// Another user than that one approves.
pub const APPROVER: &str = "Approver";

/// Annotation of an Agent with an image of its own: `true` says that the image asks before it calls a tool with `approval`.
pub const ASKS: &str = "recif.dev/asks";

/// Which calls of a tool wait until a person approves them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Calls that wait: none (Never), all (Always), or those that may change something (OnWrite), which leaves out builtins and http
    /// tools whose method is GET. Default: Never.
    // A string and not an enum: a value written by another version must not make the object unreadable.
    #[schemars(extend("enum" = [NEVER, ALWAYS, ON_WRITE]))]
    #[serde(default = "never")]
    pub when: String,
    /// Who approves: the user whose request began the turn (Caller), or somebody else (Approver). Default: Caller.
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
    /// Names at the server of the tools that this is about, with * for any text and ? for any character. Empty: all that are taken.
    // The API server limits the estimated cost of the rules on the items, and a FlowSet has 64 flows with 32 servers each.
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Calls, person and time.
    #[serde(flatten)]
    pub approval: Approval,
}

impl ToolServerRef {
    /// Returns the approval that is for a tool of the server, by its name there.
    pub fn approval_of(&self, tool: &str) -> Option<&Approval> {
        let found = self.approval.as_ref()?;
        tool_server::selects(&found.tools, &[], tool).then_some(&found.approval)
    }
}

impl ToolSpec {
    /// Returns the approval that calls of the tool wait for, if they do.
    pub fn needed_approval(&self) -> Option<&Approval> {
        self.approval.as_ref().filter(|approval| match approval.when.as_str() {
            NEVER => false,
            ON_WRITE => !self.only_reads(),
            // Calls wait for a value of another version too.
            _ => true,
        })
    }

    /// Reports whether calls of the tool are known to change nothing.
    fn only_reads(&self) -> bool {
        match self.tool_type() {
            Some(ToolType::Builtin) => true,
            Some(ToolType::Http) => match self.method.as_deref() {
                None | Some("") => true,
                Some(method) => method.eq_ignore_ascii_case("GET") || method.eq_ignore_ascii_case("HEAD"),
            },
            _ => false,
        }
    }
}

fn never() -> String {
    NEVER.into()
}
fn caller() -> String {
    CALLER.into()
}
fn hour() -> Period {
    "1h".into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asks(tool: Value) -> bool {
        let mut spec = json!({ "name": "t" });
        spec.as_object_mut().unwrap().extend(tool.as_object().unwrap().clone());
        serde_json::from_value::<ToolSpec>(spec).unwrap().needed_approval().is_some()
    }

    #[test]
    fn calls_that_may_change_something_wait_and_values_of_other_versions_too() {
        for (tool, expected) in [
            (json!({ "type": "http" }), false),
            (json!({ "type": "http", "approval": {} }), false),
            (json!({ "type": "http", "approval": { "when": "Never" } }), false),
            (json!({ "type": "http", "approval": { "when": "Always" } }), true),
            (json!({ "type": "http", "approval": { "when": "Sometimes" } }), true),
            (json!({ "type": "http", "approval": { "when": "OnWrite" } }), false),
            (json!({ "type": "http", "method": "get", "approval": { "when": "OnWrite" } }), false),
            (json!({ "type": "http", "method": "", "approval": { "when": "OnWrite" } }), false),
            (json!({ "type": "http", "method": "POST", "approval": { "when": "OnWrite" } }), true),
            (json!({ "type": "builtin", "approval": { "when": "OnWrite" } }), false),
            (json!({ "type": "builtin", "approval": { "when": "Always" } }), true),
            (json!({ "type": "cli", "approval": { "when": "OnWrite" } }), true),
            (json!({ "type": "mcp", "approval": { "when": "OnWrite" } }), true),
            (json!({ "type": "flow", "approval": { "when": "OnWrite" } }), true),
            (json!({ "type": "agent", "approval": { "when": "OnWrite" } }), true),
        ] {
            assert_eq!(asks(tool.clone()), expected, "{tool}");
        }
    }

    #[test]
    fn an_approval_has_defaults_and_keeps_what_was_written() {
        let approval: Approval = serde_json::from_value(json!({ "when": "Always" })).unwrap();
        assert_eq!((approval.by.as_str(), approval.patience()), (CALLER, Duration::from_secs(3600)));
        let newer: Approval = serde_json::from_value(json!({ "timeout": "2 weeks" })).unwrap();
        assert_eq!((newer.timeout.as_str(), newer.patience()), ("2 weeks", Duration::from_secs(3600)));
    }

    #[test]
    fn an_entry_names_the_tools_whose_calls_wait() {
        let entry = |approval: Value| -> ToolServerRef {
            serde_json::from_value(json!({ "name": "docs", "approval": approval })).unwrap()
        };
        let some = entry(json!({ "when": "Always", "timeout": "5m", "tools": ["delete_*"] }));
        assert_eq!(some.approval_of("delete_page").map(Approval::patience), Some(Duration::from_secs(300)));
        assert_eq!(some.approval_of("read_page"), None);
        assert!(entry(json!({ "when": "Always" })).approval_of("read_page").is_some());
    }
}
