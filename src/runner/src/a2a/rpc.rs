//! JSON-RPC 2.0: decodes requests, encodes results and the errors of A2A.
//!
//! Codes and reasons are those of the A2A specification, sections 5.4 and 9.5. A2A has no batches. See the [JSON-RPC
//! specification](https://www.jsonrpc.org/specification).

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};

/// Well-formed request.
#[derive(Debug, PartialEq)]
pub(super) struct JsonRpcRequest {
    /// Id to echo in the response, a string or a number; otherwise the reason why it is not valid. Errors of method and
    /// parameters are reported before this one.
    pub(super) id: Result<Value, &'static str>,
    /// Name of the method.
    pub(super) method: String,
    /// Parameters; empty when the request has none.
    pub(super) params: Map<String, Value>,
}

/// Error response to a request.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum RpcError {
    /// The body is not JSON.
    #[error("the body is not JSON: {0}")]
    Parse(String),
    /// The body is not a JSON-RPC request.
    #[error("{0}")]
    Request(String),
    /// The body is over the limit.
    #[error("the body is larger than 1 MiB")]
    TooLarge,
    /// The method does not exist.
    #[error("unknown method `{0}`")]
    Method(String),
    /// The parameters are invalid.
    #[error("{0}")]
    Params(String),
    /// Internal error, not caused by the client.
    #[error("{0}")]
    Internal(String),
    /// The model needs the caller's own key.
    #[error("{0}")]
    NoKey(String),
    /// The agent cannot answer now.
    #[error("{0}")]
    Unavailable(String),
    /// The task does not exist (any more) for this caller.
    #[error("unknown task `{id}`: {why}")]
    NoTask {
        /// Requested id.
        id: String,
        /// Possible reason.
        why: &'static str,
    },
    /// The task has ended, or goes on with calls that a person approved or rejected.
    #[error("task `{0}` has ended, or its calls are decided")]
    NotCancelable(String),
    /// The request asks for push notifications.
    #[error("push notifications are not supported: stream, or poll the task")]
    Push,
    /// The operation is known and not offered.
    #[error("{0}")]
    Unsupported(String),
    /// A content type that cannot be read or written.
    #[error("{0}")]
    ContentType(String),
    /// The request asks for another version of the protocol.
    #[error("version {0} of A2A is not supported by this method")]
    Version(String),
}

impl RpcError {
    /// Returns the error code, and the reason if the error is one of A2A's own.
    pub(super) fn code(&self) -> (i32, Option<&'static str>) {
        match self {
            Self::Parse(_) => (-32700, None),
            Self::Request(_) | Self::TooLarge | Self::NoKey(_) => (-32600, None),
            Self::Method(_) => (-32601, None),
            Self::Params(_) => (-32602, None),
            Self::Internal(_) | Self::Unavailable(_) => (-32603, None),
            Self::NoTask { .. } => (-32001, Some("TASK_NOT_FOUND")),
            Self::NotCancelable(_) => (-32002, Some("TASK_NOT_CANCELABLE")),
            Self::Push => (-32003, Some("PUSH_NOTIFICATION_NOT_SUPPORTED")),
            Self::Unsupported(_) => (-32004, Some("UNSUPPORTED_OPERATION")),
            Self::ContentType(_) => (-32005, Some("CONTENT_TYPE_NOT_SUPPORTED")),
            Self::Version(_) => (-32009, Some("VERSION_NOT_SUPPORTED")),
        }
    }

    /// Returns the HTTP status. Only errors that proxies between client and agent should see differ from 200.
    fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoKey(_) => StatusCode::UNAUTHORIZED,
            _ => StatusCode::OK,
        }
    }

    /// Encodes the error response to the request `id`, null when the id is unknown.
    pub(super) fn respond(&self, id: &Value) -> Response {
        let (code, reason) = self.code();
        let mut error = json!({ "code": code, "message": self.to_string() });
        if let Some(reason) = reason {
            let kind = "type.googleapis.com/google.rpc.ErrorInfo";
            error["data"] = json!([{ "@type": kind, "reason": reason, "domain": "a2a-protocol.org", "metadata": {} }]);
        }
        (self.status(), Json(json!({ "jsonrpc": "2.0", "id": id, "error": error }))).into_response()
    }
}

/// Encodes the successful response to the request `id`.
pub(super) fn result(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

impl JsonRpcRequest {
    /// Decodes a body.
    ///
    /// # Errors
    /// The body is not a valid request; the error comes with the id as far as it can be read.
    pub(super) fn read(body: &[u8]) -> Result<Self, (Value, RpcError)> {
        let wrong = |id: &Value, what: &str| Err((id.clone(), RpcError::Request(what.into())));
        let body: Value =
            serde_json::from_slice(body).map_err(|error| (Value::Null, RpcError::Parse(error.to_string())))?;
        let mut body = match body {
            Value::Object(body) => body,
            Value::Array(_) => return wrong(&Value::Null, "batches are not supported: send one request at a time"),
            _ => return wrong(&Value::Null, "the body must be a JSON-RPC request, an object"),
        };
        let id = match body.remove("id") {
            Some(id @ (Value::String(_) | Value::Number(_))) => Ok(id),
            Some(_) => Err("`id` must be a string or a number"),
            None => Err("`id` is missing: every request is answered"),
        };
        let known = id.clone().unwrap_or_default();
        if body.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return wrong(&known, "`jsonrpc` must be \"2.0\"");
        }
        let Some(Value::String(method)) = body.remove("method") else {
            return wrong(&known, "`method` must be a string");
        };
        match body.remove("params") {
            None => Ok(Self { id, method, params: Map::new() }),
            Some(Value::Object(params)) => Ok(Self { id, method, params }),
            Some(_) => Err((known, RpcError::Params("`params` must be an object".into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_refused_with_the_code_for_it() {
        for (body, id, code) in [
            ("", Value::Null, -32700),
            ("{", Value::Null, -32700),
            ("1", Value::Null, -32600),
            ("[]", Value::Null, -32600),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#, Value::Null, -32600),
            (r#"{"id":1,"method":"GetTask"}"#, json!(1), -32600),
            (r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#, json!(1), -32600),
            (r#"{"jsonrpc":"2.0","id":"a"}"#, json!("a"), -32600),
            (r#"{"jsonrpc":"2.0","id":"a","method":7}"#, json!("a"), -32600),
            (r#"{"jsonrpc":"2.0","id":"a","method":"GetTask","params":[1]}"#, json!("a"), -32602),
        ] {
            let (found, fault) = JsonRpcRequest::read(body.as_bytes()).unwrap_err();
            assert_eq!((found, fault.code().0), (id, code), "{body}");
        }
        let call = JsonRpcRequest::read(br#"{"jsonrpc":"2.0","id":1,"method":"X"}"#).unwrap();
        assert_eq!((call.id, call.method.as_str(), call.params.len()), (Ok(json!(1)), "X", 0));
    }
}
