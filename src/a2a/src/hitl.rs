//! Extension for people who approve calls of tools within the protocol, as [kagent](https://kagent.dev) defines it.
//!
//! A client names [`HITL_EXTENSION`] in the [header](crate::Version::extensions_header) of its requests. The status of a task that waits for
//! input then has a message whose metadata holds an [`APPROVAL_REQUEST`] under that URI, and a message to the same task, whose metadata holds
//! an [`APPROVAL_RESPONSE`] there, decides on the calls.

use serde_json::Value;

/// URI of the extension, and key of its metadata.
pub const HITL_EXTENSION: &str = "https://kagent.dev/extensions/hitl/v1";
/// Type of the metadata of a status that asks for decisions.
pub const APPROVAL_REQUEST: &str = "tool_approval_request";
/// Type of the metadata of a message that decides.
pub const APPROVAL_RESPONSE: &str = "tool_approval_response";

/// Call of a tool that a person is asked to approve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestedCall {
    /// Name of the tool.
    pub name: String,
    /// Arguments, as JSON.
    pub args: String,
}

/// Reports whether a card offers the extension.
pub(crate) fn is_offered(card: &Value) -> bool {
    let mut listed = card["capabilities"]["extensions"].as_array().into_iter().flatten();
    listed.any(|extension| extension["uri"] == HITL_EXTENSION)
}

/// Returns the calls that the message of a status asks to approve. Those of an agent that this one asks are in `nested`: they are the ones
/// that are decided on.
pub(crate) fn requested_calls(message: &Value) -> Vec<RequestedCall> {
    let request = &message["metadata"][HITL_EXTENSION];
    if request["type"] != APPROVAL_REQUEST {
        return Vec::new();
    }
    let tools = request["nested"]["tools"].as_array().or_else(|| request["tools"].as_array());
    let call =
        |tool: &Value| Some(RequestedCall { name: tool["name"].as_str()?.to_owned(), args: tool["args"].to_string() });
    tools.into_iter().flatten().filter_map(call).collect()
}
