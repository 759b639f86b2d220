//! Parses [JSON-RPC 2.0](https://www.jsonrpc.org/specification) messages, only as far as the bridge needs to route
//! them.

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Id of a request, or token of its progress: an integer or a string.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum RpcId {
    /// An integer.
    Number(i64),
    /// A string, compared without its escapes: the child may return them in another form.
    Text(String),
}

impl RpcId {
    /// Parses an id.
    pub(super) fn read(raw: &str) -> Option<Self> {
        let raw = raw.trim();
        if raw.starts_with('"') {
            return serde_json::from_str(raw).ok().map(Self::Text);
        }
        raw.parse().ok().map(Self::Number)
    }

    /// Returns the id as JSON.
    pub(super) fn to_json(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        }
    }
}

/// JSON-RPC message; its sort follows from its fields.
#[derive(Debug)]
pub(super) enum Message<'a> {
    /// A message that has to be answered.
    Request { id: RpcId, method: String, params: Option<&'a RawValue> },
    /// A message without a response.
    Notification { method: String, params: Option<&'a RawValue> },
    /// The response to a request; without an id if that of the request could not be read.
    Response { id: Option<RpcId>, outcome: RpcOutcome<'a> },
}

/// Outcome of a request.
#[derive(Debug)]
pub(super) enum RpcOutcome<'a> {
    Result(&'a RawValue),
    Error(&'a RawValue),
}

/// Reason for which a text is not a message.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum MessageError {
    #[error("this is not JSON")]
    Json,
    #[error("send one message per request: batches were taken out of the protocol in revision 2025-06-18")]
    Batch,
    #[error("this is not a JSON-RPC 2.0 message")]
    Shape,
    #[error("the id of a request is a text or a whole number of 64 bits")]
    Id,
}

impl MessageError {
    /// Returns the JSON-RPC error code.
    pub(super) fn code(&self) -> i32 {
        if *self == Self::Json { -32700 } else { -32600 }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    jsonrpc: Option<String>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Deserializes a field that is present, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Message<'a> {
    /// Parses a message. A field that is there twice makes it invalid, because parsers would not agree which one
    /// counts.
    pub(super) fn read(text: &'a str) -> Result<Self, MessageError> {
        let envelope: Envelope<'a> = serde_json::from_str(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data if text.trim_start().starts_with('[') => MessageError::Batch,
            serde_json::error::Category::Data => MessageError::Shape,
            _ => MessageError::Json,
        })?;
        if envelope.jsonrpc.as_deref() != Some("2.0") {
            return Err(MessageError::Shape);
        }
        let id = envelope.id.map(|raw| RpcId::read(raw.get()));
        match (envelope.method, id, envelope.result, envelope.error) {
            (Some(method), None, None, None) => Ok(Self::Notification { method, params: envelope.params }),
            (Some(method), Some(Some(id)), None, None) => Ok(Self::Request { id, method, params: envelope.params }),
            (Some(_), Some(None), None, None) => Err(MessageError::Id),
            (None, Some(id), Some(result), None) => Ok(Self::Response { id, outcome: RpcOutcome::Result(result) }),
            (None, id, None, Some(error)) => Ok(Self::Response { id: id.flatten(), outcome: RpcOutcome::Error(error) }),
            _ => Err(MessageError::Shape),
        }
    }
}

/// Returns the message as one line with its line break. In valid JSON a line break stands between tokens only: in a
/// string it is escaped.
pub(super) fn line(mut text: String) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', text.as_bytes()).is_some() {
        text = text.replace(['\n', '\r'], " ");
    }
    text.push('\n');
    text.into()
}

/// Returns an error response of the bridge itself.
pub(super) fn error_message(id: Option<&RpcId>, code: i32, message: &str) -> String {
    let id = id.map_or_else(|| "null".to_owned(), RpcId::to_json);
    let message = serde_json::Value::from(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}

/// Returns the progress token of a request, if its sender asked for progress.
pub(super) fn progress_token(params: &RawValue) -> Option<RpcId> {
    #[derive(Deserialize)]
    struct ProgressTokenParams<'a> {
        #[serde(borrow, default, rename = "_meta")]
        meta: Option<ProgressTokenMeta<'a>>,
    }
    #[derive(Deserialize)]
    struct ProgressTokenMeta<'a> {
        #[serde(borrow, default, rename = "progressToken")]
        token: Option<&'a RawValue>,
    }
    RpcId::read(serde_json::from_str::<ProgressTokenParams<'_>>(params.get()).ok()?.meta?.token?.get())
}

/// Returns the token of the request whose progress a `notifications/progress` reports.
pub(super) fn progress_of(params: &RawValue) -> Option<RpcId> {
    #[derive(Deserialize)]
    struct ProgressParams<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: &'a RawValue,
    }
    RpcId::read(serde_json::from_str::<ProgressParams<'_>>(params.get()).ok()?.token.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> String {
        match Message::read(text) {
            Ok(Message::Request { id, method, .. }) => format!("request {} {method}", id.to_json()),
            Ok(Message::Notification { method, .. }) => format!("notification {method}"),
            Ok(Message::Response { id, outcome: RpcOutcome::Result(_) }) => {
                format!("result {:?}", id.map(|id| id.to_json()))
            }
            Ok(Message::Response { id, outcome: RpcOutcome::Error(_) }) => {
                format!("error {:?}", id.map(|id| id.to_json()))
            }
            Err(error) => format!("{error:?}"),
        }
    }

    #[test]
    fn a_message_is_what_it_has() {
        for (text, wanted) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, "request 1 a"),
            (r#"{"jsonrpc":"2.0","\u0069d":"\u0061","method":"a"}"#, r#"request "a" a"#),
            (r#"{"jsonrpc":"2.0","method":"a","params":{}}"#, "notification a"),
            (r#"{"jsonrpc":"2.0","id":-1,"result":null}"#, r#"result Some("-1")"#),
            (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, "error None"),
            (r#"{"jsonrpc":"2.0","error":{}}"#, "error None"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, "Id"),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, "Id"),
            (r#"{"jsonrpc":"2.0","id":[],"method":"a"}"#, "Id"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#, "Shape"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#, "Shape"),
            (r#"{"jsonrpc":"2.0","id":1}"#, "Shape"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, "Shape"),
            (r#"{"level":"info","message":"x"}"#, "Shape"),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#, "Batch"),
            ("{", "Json"),
            ("hello", "Json"),
        ] {
            assert_eq!(kind(text), wanted, "{text}");
        }
    }

    #[test]
    fn line_breaks_between_the_parts_go_and_those_in_texts_stay() {
        let text = "{\n\"a\":\r\n\"x\\ny\"}".to_owned();
        assert_eq!(line(text), "{ \"a\":  \"x\\ny\"}\n");
    }

    #[test]
    fn an_error_of_ours_is_a_message() {
        let text = error_message(Some(&RpcId::Text("a\"b".into())), -32000, "it \"ended\"\n");
        assert_eq!(kind(&text), r#"error Some("\"a\\\"b\"")"#);
        assert_eq!(kind(&error_message(None, -32600, "x")), "error None");
    }

    #[test]
    fn progress_is_named_by_its_token() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(progress_token(&raw(r#"{"_meta":{"progressToken":7},"x":1}"#)), Some(RpcId::Number(7)));
        assert_eq!(progress_token(&raw(r#"{"_meta":{}}"#)), None);
        assert_eq!(progress_token(&raw("[]")), None);
        assert_eq!(progress_of(&raw(r#"{"progress":1,"progressToken":"t"}"#)), Some(RpcId::Text("t".into())));
    }
}
