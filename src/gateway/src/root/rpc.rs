//! JSON-RPC 2.0, as MCP uses it: one request, notification or response per HTTP request.

use serde_json::{Value, json};

// JSON-RPC 2.0, section 5.1.
pub(super) const PARSE_ERROR: i32 = -32700;
pub(super) const INVALID_REQUEST: i32 = -32600;
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
pub(super) const INVALID_PARAMS: i32 = -32602;

/// Error of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    /// Code of JSON-RPC.
    pub(super) code: i32,
    /// Sentence on what is wrong, and what to do.
    pub(super) message: String,
}

/// Message of a client.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    /// Request, which wants an answer.
    Request {
        /// Id that the answer repeats.
        id: Value,
        /// Method.
        method: String,
        /// Parameters; null if there are none.
        params: Value,
    },
    /// Notification, or a response to a request that was never sent: nothing is answered.
    Notification,
}

impl RpcError {
    /// Creates an error.
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl Message {
    /// Decodes a body.
    ///
    /// # Errors
    /// It is no message.
    pub(super) fn read(body: &[u8]) -> Result<Self, RpcError> {
        let mut message: Value = serde_json::from_slice(body)
            .map_err(|error| RpcError::new(PARSE_ERROR, format!("the body is not JSON: {error}")))?;
        let mut take = |name: &str| message.get_mut(name).map(Value::take).unwrap_or_default();
        let (id, params) = (take("id"), take("params"));
        let is_message = message["jsonrpc"] == "2.0";
        match message["method"].as_str() {
            Some(method) if is_message && (id.is_string() || id.is_number()) => {
                Ok(Self::Request { id, method: method.to_owned(), params })
            }
            Some(_) if is_message && id.is_null() => Ok(Self::Notification),
            None if is_message && (message.get("result").is_some() || message.get("error").is_some()) => {
                Ok(Self::Notification)
            }
            _ => Err(RpcError::new(INVALID_REQUEST, "the body must be one message of JSON-RPC 2.0")),
        }
    }
}

/// Encodes the answer to a request.
pub(super) fn answer(id: &Value, result: Result<Value, RpcError>) -> String {
    let answer = match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(RpcError { code, message }) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
        }
    };
    answer.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_of_three() {
        let read = |text: &str| Message::read(text.as_bytes()).map_err(|error| error.code);
        let request = Message::Request { id: json!(1), method: "ping".into(), params: Value::Null };
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, Ok(request)),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, Ok(Message::Notification)),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Ok(Message::Notification)),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Err(INVALID_REQUEST)),
            (r#"{"id":1,"method":"ping"}"#, Err(INVALID_REQUEST)),
            (r#"{"jsonrpc":"2.0","id":1}"#, Err(INVALID_REQUEST)),
            ("[]", Err(INVALID_REQUEST)),
            ("1", Err(INVALID_REQUEST)),
            ("{", Err(PARSE_ERROR)),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
