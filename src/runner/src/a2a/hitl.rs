//! Extension by which a person decides within the protocol, as the crate `a2a` describes it: which requests activate it, what a
//! status asks, and what a message answers.

use ::a2a::{APPROVAL_REQUEST, APPROVAL_RESPONSE, HITL_EXTENSION, Version};
use axum::http::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::rpc::RpcError;
use crate::parking::Decisions;

/// Returns the names of those headers of a request that ask for the extension.
pub(super) fn requested(headers: &HeaderMap) -> Vec<HeaderName> {
    let names = [Version::V1, Version::V03].map(|version| HeaderName::from_static(version.extensions_header()));
    let lists = |value: &HeaderValue| {
        value.to_str().is_ok_and(|value| value.split(',').any(|listed| listed.trim() == HITL_EXTENSION))
    };
    names.into_iter().filter(|name| headers.get_all(name).iter().any(lists)).collect()
}

/// Says in the headers of a response that the extension is active.
pub(super) fn echo(headers: &mut HeaderMap, requested: Vec<HeaderName>) {
    for name in requested {
        headers.insert(name, HeaderValue::from_static(HITL_EXTENSION));
    }
}

/// Describes the extension on the card of an agent.
pub(super) fn on_card() -> Value {
    json!({
        "uri": HITL_EXTENSION,
        "description": "A person approves or rejects calls of tools by a message to the task that waits for it",
        "required": false,
    })
}

/// Returns the request for decisions on the calls of a parked turn, which is described as for the other clients.
pub(super) fn request(hint: &str, parked: &Value) -> Value {
    let calls = parked["approval"]["tools"].as_array().into_iter().flatten();
    let tool = |call: &Value| {
        let (id, args) = (&call["id"], object(&call["args"]));
        json!({ "id": id, "call_id": id, "name": call["name"], "args": args })
    };
    json!({ "type": APPROVAL_REQUEST, "hint": hint, "tools": calls.map(tool).collect::<Vec<_>>() })
}

/// Returns the arguments of a call as the object that the extension demands. A model may send any other JSON, of which nothing is left out.
fn object(args: &Value) -> Value {
    match args {
        Value::Object(_) => args.clone(),
        Value::Null => json!({}),
        other => json!({ "arguments": other }),
    }
}

/// Reads the decisions in the metadata of a message.
///
/// # Errors
/// It is no answer to a [`request`].
pub(super) fn decisions(response: &Value) -> Result<Decisions, RpcError> {
    let wrong = |why: String| RpcError::Params(format!("`message.metadata[\"{HITL_EXTENSION}\"]`: {why}"));
    if response["type"] != APPROVAL_RESPONSE {
        return Err(wrong(format!("its `type` must be `{APPROVAL_RESPONSE}`")));
    }
    Decisions::deserialize(response).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_is_asked_for_by_either_header_in_any_list() {
        let names = |sent: &[(&'static str, &str)]| {
            let sent = sent.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            let mut headers = HeaderMap::new();
            for (name, value) in sent {
                headers.append(name, value);
            }
            requested(&headers)
        };
        let several = format!("https://a.example/x , {HITL_EXTENSION}");
        for (sent, expected) in [
            (&[("a2a-extensions", HITL_EXTENSION)][..], &["a2a-extensions"][..]),
            (&[("x-a2a-extensions", several.as_str())], &["x-a2a-extensions"]),
            (&[("a2a-extensions", "https://a.example/x"), ("a2a-extensions", HITL_EXTENSION)], &["a2a-extensions"]),
            (
                &[("x-a2a-extensions", HITL_EXTENSION), ("a2a-extensions", several.as_str())],
                &["a2a-extensions", "x-a2a-extensions"],
            ),
            (&[("a2a-extensions", "https://kagent.dev/extensions/hitl/v10")], &[]),
            (&[("x-extensions", HITL_EXTENSION)], &[]),
            (&[], &[]),
        ] {
            assert_eq!(names(sent), expected, "{sent:?}");
        }
    }

    #[test]
    fn a_request_names_every_call_with_its_arguments() {
        let call = |id: &str, args: Value| json!({ "id": id, "name": "pay", "args": args, "args_text": "shown" });
        let calls = json!([call("1", json!({ "euros": 5 })), call("2", Value::Null), call("3", json!([7]))]);
        let parked = json!({ "task": "p", "approval": { "expires": "2026-01-01T01:00:00Z", "tools": calls } });
        let tool = |id: &str, args: Value| json!({ "id": id, "call_id": id, "name": "pay", "args": args });
        let tools = [tool("1", json!({ "euros": 5 })), tool("2", json!({})), tool("3", json!({ "arguments": [7] }))];
        let expected = json!({ "type": "tool_approval_request", "hint": "pay?", "tools": tools });
        assert_eq!(request("pay?", &parked), expected);
    }

    #[test]
    fn what_is_no_decision_is_named() {
        let approvals = json!([{ "id": "1", "approved": false, "rejection_reason": "too much" }]);
        assert!(decisions(&json!({ "type": "tool_approval_response", "approvals": approvals })).is_ok());
        for (response, expected) in [
            (json!({ "type": "ask_user_response", "id": "1", "answers": [] }), "its `type` must be"),
            (json!({ "approvals": approvals }), "its `type` must be"),
            (json!("yes"), "its `type` must be"),
            (json!({ "type": "tool_approval_response" }), "missing field `approvals`"),
            (json!({ "type": "tool_approval_response", "approvals": [{ "id": "1" }] }), "missing field `approved`"),
        ] {
            let error = decisions(&response).unwrap_err().to_string();
            assert!(error.contains(HITL_EXTENSION) && error.contains(expected), "{response}: {error}");
        }
    }
}
