//! Approval that the calls of a tool wait for: of a Tool, and of the tools of a server.

use crate::{
    approval::{Approval, NEVER, ON_WRITE},
    tool::{ToolSpec, ToolType},
    tool_server,
    tool_server_ref::ToolServerRef,
};

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::approval::ALWAYS;

    fn asks(tool: Value) -> bool {
        let mut spec = json!({ "name": "t" });
        spec.as_object_mut().unwrap().extend(tool.as_object().unwrap().clone());
        serde_json::from_value::<ToolSpec>(spec).unwrap().needed_approval().is_some()
    }

    #[test]
    fn calls_that_may_change_something_wait_and_values_of_other_versions_too() {
        for (tool, expected) in [
            (json!({ "type": "http" }), false),
            (json!({ "type": "http", "approval": {} }), true),
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
    fn an_entry_names_the_tools_whose_calls_wait() {
        let entry = |approval: Value| -> ToolServerRef {
            serde_json::from_value(json!({ "name": "docs", "approval": approval })).unwrap()
        };
        let some = entry(json!({ "when": "Always", "timeout": "5m", "tools": ["delete_*"] }));
        assert_eq!(some.approval_of("delete_page").map(Approval::patience), Some(Duration::from_secs(300)));
        assert_eq!(some.approval_of("read_page"), None);
        assert!(entry(json!({ "when": "Always" })).approval_of("read_page").is_some());
        assert_eq!(entry(json!({ "tools": ["pay"] })).approval_of("pay").unwrap().when, ALWAYS);
    }
}
