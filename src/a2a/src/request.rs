//! Bodies of requests: JSON-RPC 2.0, with the names and shapes of either version.
//!
//! A connection carries one request at a time, so that each has the same id.

use serde_json::{Value, json};

use crate::version::Version;

/// Key of the metadata of a request that sends a message. With the value false no person reads the answer: an agent of Récif's runtime then
/// refuses calls of tools that a person has to approve, in place of a task that waits.
pub const MAY_WAIT: &str = "recif.dev/may-wait";

/// Message to an agent: one text part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutgoingMessage<'a> {
    /// Id of the message, unique.
    pub id: &'a str,
    /// Text of the message.
    pub text: &'a str,
    /// Context that the message continues; `None` begins one.
    pub context: Option<&'a str>,
    /// Task that waits for the message.
    pub task: Option<&'a str>,
}

/// Returns the request that sends a message, and waits for the task where the agent does so.
pub fn send_message(version: Version, message: &OutgoingMessage<'_>) -> Value {
    let mut params = json!({ "message": encoded(version, message) });
    match version {
        Version::V1 => request("SendMessage", params),
        Version::V03 => {
            params["configuration"] = json!({ "blocking": true });
            request("message/send", params)
        }
    }
}

/// Returns the request that sends a message, and asks for a stream of events.
pub fn stream_message(version: Version, message: &OutgoingMessage<'_>) -> Value {
    let method = match version {
        Version::V1 => "SendStreamingMessage",
        Version::V03 => "message/stream",
    };
    request(method, json!({ "message": encoded(version, message) }))
}

/// Returns the request for a task.
pub fn get_task(version: Version, id: &str) -> Value {
    let method = match version {
        Version::V1 => "GetTask",
        Version::V03 => "tasks/get",
    };
    request(method, json!({ "id": id, "historyLength": 0 }))
}

/// Returns the request that cancels a task.
pub fn cancel_task(version: Version, id: &str) -> Value {
    let method = match version {
        Version::V1 => "CancelTask",
        Version::V03 => "tasks/cancel",
    };
    request(method, json!({ "id": id }))
}

fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

fn encoded(version: Version, message: &OutgoingMessage<'_>) -> Value {
    let OutgoingMessage { id, text, context, task } = *message;
    let mut encoded = match version {
        Version::V1 => json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] }),
        Version::V03 => json!({
            "kind": "message", "messageId": id, "role": "user", "parts": [{ "kind": "text", "text": text }],
        }),
    };
    for (field, value) in [("contextId", context), ("taskId", task)] {
        if let Some(value) = value {
            encoded[field] = value.into();
        }
    }
    encoded
}
