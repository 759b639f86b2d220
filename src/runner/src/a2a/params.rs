//! Decodes the parameters of both versions of the protocol into one request type.
//!
//! The versions differ in names and in wrapping, not in meaning. Unknown fields are ignored, as both versions require.

use ::a2a::{HITL_EXTENSION, MAY_WAIT};
use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    rpc::RpcError,
    tasks::{MessagePart, TaskPhase, UserMessage},
};
use crate::conversations::history::ConversationId;

/// Parameters of the methods that send a message.
#[derive(Debug)]
pub(super) struct SendParams {
    /// Message of the user.
    pub(super) message: UserMessage,
    /// Conversation to continue; `None` starts one.
    pub(super) context: Option<ConversationId>,
    /// Task that the message refers to.
    pub(super) task: Option<String>,
    /// Return at once, with a working task, instead of waiting for its end.
    pub(super) return_immediately: bool,
    /// Maximum number of messages of the task's history in the response; all when unset.
    pub(super) history: Option<usize>,
    /// Calls that a person has to approve may wait; false: no person reads the answer.
    pub(super) may_wait: bool,
    /// Metadata of the message for the extension for approvals, where that is active.
    pub(super) decision: Option<Value>,
}

impl SendParams {
    /// Reads and validates the parameters. Without `decides` the extension for approvals is not active.
    ///
    /// # Errors
    /// They are incomplete, or ask for something that is not offered.
    pub(super) fn read(params: Map<String, Value>, decides: bool) -> Result<Self, RpcError> {
        let SendBody { message, configuration, metadata } = read(params)?;
        if !matches!(message.role.as_str(), "ROLE_USER" | "user") {
            return Err(RpcError::Params("`message.role` must be the user's".into()));
        }
        if message.message_id.is_empty() {
            return Err(RpcError::Params("`message.messageId` is empty".into()));
        }
        if message.parts.is_empty() {
            return Err(RpcError::Params("`message.parts` is empty".into()));
        }
        let pieces = message.parts.into_iter().map(piece).collect::<Result<_, _>>()?;
        let context = message.context_id.filter(|id| !id.is_empty()).map(|id| {
            let wrong = "`message.contextId` must be 1 to 128 letters, digits, `.`, `_`, `:` or `-`";
            ConversationId::parse(&id).ok_or_else(|| RpcError::Params(wrong.into()))
        });
        let decision = message.metadata.filter(|_| decides).and_then(|mut metadata| metadata.remove(HITL_EXTENSION));
        let wanted = configuration.unwrap_or_default();
        if wanted.push().is_some() {
            return Err(RpcError::Push);
        }
        let modes = wanted.accepted_output_modes.unwrap_or_default();
        if !modes.is_empty()
            && !modes.iter().any(|mode| matches!(mode.as_str(), "*/*" | "text/*" | "text" | "text/plain"))
        {
            return Err(RpcError::ContentType("answers are text/plain, which `acceptedOutputModes` leaves out".into()));
        }
        Ok(Self {
            message: UserMessage { id: message.message_id, pieces },
            context: context.transpose()?,
            task: message.task_id.filter(|id| !id.is_empty()),
            return_immediately: wanted.return_immediately.unwrap_or(wanted.blocking == Some(false)),
            history: history(wanted.history_length)?,
            may_wait: metadata.is_none_or(|metadata| metadata.get(MAY_WAIT) != Some(&Value::Bool(false))),
            decision,
        })
    }

    /// Returns the message as one text for the model.
    ///
    /// # Errors
    /// The message is blank.
    pub(super) fn text(&self) -> Result<String, RpcError> {
        let text = self.message.text();
        if text.trim().is_empty() { Err(RpcError::Params("the message is empty".into())) } else { Ok(text) }
    }
}

impl UserMessage {
    /// Returns the message as one text.
    pub(super) fn text(&self) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            MessagePart::Text(text) => text.clone(),
            MessagePart::Data(data) => data.to_string(),
        });
        pieces.collect::<Vec<_>>().join("\n")
    }
}

/// Parameters of the methods about one task.
#[derive(Debug, PartialEq)]
pub(super) struct TaskParams {
    /// Id of the task.
    pub(super) id: String,
    /// Maximum number of messages of its history in the response; all when unset.
    pub(super) history: Option<usize>,
}

impl TaskParams {
    /// Reads and validates the parameters.
    ///
    /// # Errors
    /// They are incomplete.
    pub(super) fn read(params: Map<String, Value>) -> Result<Self, RpcError> {
        let WireTask { id, history_length } = read(params)?;
        if id.is_empty() {
            return Err(RpcError::Params("`id` is empty".into()));
        }
        Ok(Self { id, history: history(history_length)? })
    }
}

/// Filters and page of `ListTasks`.
#[derive(Debug, PartialEq)]
pub(super) struct ListParams {
    /// Only tasks of this conversation.
    pub(super) context: Option<String>,
    /// Only tasks in this state; `Some(None)` is a state that no task of this runtime ever has, so the list is empty.
    pub(super) phase: Option<Option<TaskPhase>>,
    /// Only tasks whose state changed at this time or later.
    pub(super) after: Option<Timestamp>,
    /// Page size.
    pub(super) size: usize,
    /// Page token: the id of the last task of the previous page.
    pub(super) token: Option<String>,
    /// Maximum number of messages of each task's history in the response; all when unset.
    pub(super) history: Option<usize>,
    /// Include artifacts, which hold the answers.
    pub(super) artifacts: bool,
}

/// Maximum and default page size (specification, section 3.1.4).
const PAGE: (i64, i64) = (100, 50);

impl ListParams {
    /// Reads and validates the parameters.
    ///
    /// # Errors
    /// One of them is invalid.
    pub(super) fn read(params: Map<String, Value>) -> Result<Self, RpcError> {
        let wire: WireList = read(params)?;
        let set = |text: Option<String>| text.filter(|text| !text.is_empty());
        let size = wire.page_size.unwrap_or(PAGE.1);
        if !(1..=PAGE.0).contains(&size) {
            return Err(RpcError::Params(format!("`pageSize` must be from 1 to {}", PAGE.0)));
        }
        let phase =
            set(wire.status).filter(|state| state != "TASK_STATE_UNSPECIFIED").map(|state| match state.as_str() {
                "TASK_STATE_WORKING" => Ok(Some(TaskPhase::Working)),
                "TASK_STATE_INPUT_REQUIRED" => Ok(Some(TaskPhase::InputRequired)),
                "TASK_STATE_COMPLETED" => Ok(Some(TaskPhase::Completed)),
                "TASK_STATE_FAILED" => Ok(Some(TaskPhase::Failed)),
                "TASK_STATE_CANCELED" => Ok(Some(TaskPhase::Canceled)),
                "TASK_STATE_SUBMITTED" | "TASK_STATE_REJECTED" | "TASK_STATE_AUTH_REQUIRED" => Ok(None),
                _ => Err(RpcError::Params("`status` is not a state of a task".into())),
            });
        let after = set(wire.status_timestamp_after).map(|text| text.parse());
        Ok(Self {
            context: set(wire.context_id),
            phase: phase.transpose()?,
            after: after
                .transpose()
                .map_err(|_| RpcError::Params("`statusTimestampAfter` is not a timestamp".into()))?,
            size: usize::try_from(size).unwrap_or_default(),
            token: set(wire.page_token),
            history: history(wire.history_length)?,
            artifacts: wire.include_artifacts.unwrap_or_default(),
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireList {
    context_id: Option<String>,
    status: Option<String>,
    status_timestamp_after: Option<String>,
    page_size: Option<i64>,
    page_token: Option<String>,
    history_length: Option<i64>,
    include_artifacts: Option<bool>,
}

#[derive(Deserialize)]
struct SendBody {
    message: WireMessage,
    configuration: Option<Configuration>,
    metadata: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMessage {
    message_id: String,
    role: String,
    parts: Vec<Map<String, Value>>,
    context_id: Option<String>,
    task_id: Option<String>,
    metadata: Option<Map<String, Value>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    accepted_output_modes: Option<Vec<String>>,
    history_length: Option<i64>,
    /// 1.0 only.
    return_immediately: Option<bool>,
    task_push_notification_config: Option<Value>,
    /// 0.3 only.
    blocking: Option<bool>,
    push_notification_config: Option<Value>,
}

impl Configuration {
    fn push(&self) -> Option<&Value> {
        self.task_push_notification_config.as_ref().or(self.push_notification_config.as_ref())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTask {
    id: String,
    history_length: Option<i64>,
}

fn read<T: DeserializeOwned>(params: Map<String, Value>) -> Result<T, RpcError> {
    serde_json::from_value(Value::Object(params)).map_err(|error| RpcError::Params(format!("`params`: {error}")))
}

fn history(length: Option<i64>) -> Result<Option<usize>, RpcError> {
    let length = length.map(usize::try_from).transpose();
    length.map_err(|_| RpcError::Params("`historyLength` is negative".into()))
}

/// Decodes a part: 1.0 tells parts apart by the field that is set, 0.3 by `kind`, and the fields have the same names.
fn piece(mut part: Map<String, Value>) -> Result<MessagePart, RpcError> {
    let is_known = |kind: &Value| matches!(kind.as_str(), Some("text" | "data" | "file"));
    if part.get("kind").is_some_and(|kind| !is_known(kind)) {
        return Err(RpcError::Params("the `kind` of a part must be text or data".into()));
    }
    match (part.remove("text"), part.remove("data")) {
        (Some(Value::String(text)), None) => Ok(MessagePart::Text(text)),
        (None, Some(data)) => Ok(MessagePart::Data(data)),
        _ if ["raw", "url", "file"].iter().any(|name| part.contains_key(*name)) => {
            Err(RpcError::ContentType("files are not read: send text or data".into()))
        }
        _ => Err(RpcError::Params("every part has either `text`, a string, or `data`".into())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn send(message: Value, configuration: Value) -> Result<SendParams, RpcError> {
        let mut whole = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
        for (name, value) in object(message) {
            whole[name] = value;
        }
        SendParams::read(object(json!({ "message": whole, "configuration": configuration })), true)
    }

    #[test]
    fn parts_of_both_versions_are_read() {
        let parts = json!([{ "kind": "text", "text": "a" }, { "data": { "b": 1 }, "mediaType": "application/json" }]);
        let read = send(json!({ "role": "user", "parts": parts }), json!({})).unwrap();
        assert_eq!(read.text().unwrap(), "a\n{\"b\":1}");
    }

    #[test]
    fn a_list_is_bounded_and_what_is_wrong_is_named() {
        let list = |params: Value| ListParams::read(object(params));
        let all = list(json!({})).unwrap();
        assert_eq!((all.size, all.context, all.phase, all.token, all.artifacts), (50, None, None, None, false));
        let some = list(json!({ "contextId": "c", "status": "TASK_STATE_FAILED", "pageSize": 100 })).unwrap();
        assert_eq!((some.size, some.phase), (100, Some(Some(TaskPhase::Failed))));
        assert_eq!(list(json!({ "status": "TASK_STATE_REJECTED" })).unwrap().phase, Some(None));
        for (params, text) in [
            (json!({ "pageSize": 0 }), "`pageSize` must be from 1 to 100"),
            (json!({ "pageSize": 101 }), "`pageSize` must be from 1 to 100"),
            (json!({ "status": "bogus" }), "`status` is not a state"),
            (json!({ "statusTimestampAfter": "soon" }), "is not a timestamp"),
            (json!({ "historyLength": -1 }), "`historyLength` is negative"),
        ] {
            assert!(list(params.clone()).unwrap_err().to_string().contains(text), "{params}");
        }
    }

    #[test]
    fn an_answer_is_waited_for_unless_it_is_not_wanted() {
        for (configuration, at_once) in [
            (json!(null), false),
            (json!({}), false),
            (json!({ "returnImmediately": false }), false),
            (json!({ "returnImmediately": true }), true),
            (json!({ "blocking": true }), false),
            (json!({ "blocking": false }), true),
        ] {
            assert_eq!(send(json!({}), configuration.clone()).unwrap().return_immediately, at_once, "{configuration}");
        }
    }

    #[test]
    fn calls_may_wait_unless_no_person_reads_the_answer() {
        for (metadata, expected) in [
            (json!(null), true),
            (json!({ "x": 1 }), true),
            (json!({ MAY_WAIT: true }), true),
            (json!({ MAY_WAIT: "false" }), true),
            (json!({ MAY_WAIT: false }), false),
        ] {
            let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }] });
            let params = SendParams::read(object(json!({ "message": message, "metadata": metadata })), false);
            assert_eq!(params.unwrap().may_wait, expected, "{metadata}");
        }
    }

    #[test]
    fn a_message_decides_where_the_extension_is_active() {
        let metadata = json!({ "x": 1, HITL_EXTENSION: { "type": "tool_approval_response" } });
        let message = json!({ "messageId": "m", "role": "user", "parts": [{ "text": "yes" }], "metadata": metadata });
        for (decides, expected) in [(true, Some(metadata[HITL_EXTENSION].clone())), (false, None)] {
            let params = SendParams::read(object(json!({ "message": message })), decides).unwrap();
            assert_eq!(params.decision, expected, "{decides}");
        }
        assert_eq!(send(json!({}), json!({})).unwrap().decision, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let file = json!([{ "kind": "file", "file": { "uri": "http://a" } }]);
        for (message, configuration, text) in [
            (json!({ "role": "ROLE_AGENT" }), json!({}), "`message.role` must be the user's"),
            (json!({ "role": 1 }), json!({}), "invalid type: integer `1`"),
            (json!({ "messageId": "" }), json!({}), "`message.messageId` is empty"),
            (json!({ "parts": [] }), json!({}), "`message.parts` is empty"),
            (json!({ "parts": [{}] }), json!({}), "either `text`"),
            (json!({ "parts": [{ "text": "a", "data": 1 }] }), json!({}), "either `text`"),
            (json!({ "parts": file }), json!({}), "files are not read"),
            (json!({ "parts": [{ "kind": "bogus", "text": "x" }] }), json!({}), "the `kind` of a part must be"),
            (json!({ "parts": [{ "kind": 1, "text": "x" }] }), json!({}), "the `kind` of a part must be"),
            (json!({ "contextId": "a b" }), json!({}), "`message.contextId` must be"),
            (json!({}), json!({ "historyLength": -1 }), "`historyLength` is negative"),
            (json!({}), json!({ "acceptedOutputModes": ["image/png"] }), "answers are text/plain"),
            (json!({}), json!({ "taskPushNotificationConfig": { "url": "http://a" } }), "push notifications"),
            (json!({}), json!({ "pushNotificationConfig": { "url": "http://a" } }), "push notifications"),
        ] {
            let fault = send(message, configuration).unwrap_err().to_string();
            assert!(fault.contains(text), "{fault}");
        }
        let blank = send(json!({ "parts": [{ "text": " " }] }), json!({})).unwrap();
        assert_eq!(blank.text(), Err(RpcError::Params("the message is empty".into())));
        assert!(TaskParams::read(object(json!({ "id": "" }))).is_err());
        assert!(TaskParams::read(object(json!({}))).unwrap_err().to_string().contains("missing field `id`"));
    }
}
