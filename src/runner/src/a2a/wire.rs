//! Encodes tasks and their events for either version of the protocol.

use ::a2a::{HITL_EXTENSION, Version, WAITING};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    hitl,
    tasks::{MessagePart, Task, TaskPhase, TaskProgress},
};

/// Form of the response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WireFormat {
    /// Version of the protocol.
    pub(super) version: Version,
    /// Set if the request activates the extension for approvals.
    pub(super) asks_people: bool,
}

/// Id and name of the only artifact, the answer.
const REPLY: &str = "reply";

/// Encodes the task in its present state; `history` is the maximum number of messages before its answer.
pub(super) fn task(format: WireFormat, task: &Task, progress: &TaskProgress, history: Option<usize>) -> Value {
    let version = format.version;
    let mut value = json!({ "id": task.id, "contextId": task.context, "status": status(format, task, progress) });
    if !progress.text.is_empty() {
        value["artifacts"] = json!([artifact(version, &progress.text)]);
    }
    if history != Some(0) {
        let pieces = task.message.pieces.iter().map(|piece| part(version, piece)).collect();
        value["history"] = json!([message(version, task, &task.message.id, Speaker::User, pieces)]);
    }
    of_kind(version, "task", value)
}

/// Wraps an encoded task as the result of a method that sends, or as the first event.
pub(super) fn wrapped(version: Version, task: Value) -> Value {
    wrap(version, "task", task)
}

/// Encodes an event with more of the answer; `append` is false for the first piece.
pub(super) fn artifact_update(version: Version, task: &Task, text: &str, append: bool) -> Value {
    let event = json!({
        "taskId": task.id, "contextId": task.context, "artifact": artifact(version, text), "append": append,
    });
    wrap(version, "artifactUpdate", of_kind(version, "artifact-update", event))
}

/// Encodes the last event: the final state.
pub(super) fn status_update(format: WireFormat, task: &Task, progress: &TaskProgress) -> Value {
    let version = format.version;
    let mut event = json!({ "taskId": task.id, "contextId": task.context, "status": status(format, task, progress) });
    if version == Version::V03 {
        event["final"] = true.into();
    }
    wrap(version, "statusUpdate", of_kind(version, "status-update", event))
}

fn status(format: WireFormat, task: &Task, progress: &TaskProgress) -> Value {
    let version = format.version;
    let state = state(version, progress.phase);
    let mut status = json!({ "state": state, "timestamp": milliseconds(progress.since) });
    if let Some(error) = &progress.error {
        let what = if progress.phase == TaskPhase::InputRequired { "waiting" } else { "error" };
        let id = format!("{}-{what}", task.id);
        let parts = vec![part(version, &MessagePart::Text(error.clone()))];
        status["message"] = message(version, task, &id, Speaker::Agent, parts);
        if let Some(approval) = &progress.approval {
            let said = &mut status["message"];
            said["metadata"] = json!({ WAITING: approval });
            if format.asks_people {
                said["extensions"] = json!([HITL_EXTENSION]);
                said["metadata"][HITL_EXTENSION] = hitl::request(error, approval);
            }
        }
    }
    status
}

/// Returns the name of a phase.
pub(super) fn state(version: Version, phase: TaskPhase) -> &'static str {
    match (version, phase) {
        (Version::V1, TaskPhase::Working) => "TASK_STATE_WORKING",
        (Version::V1, TaskPhase::InputRequired) => "TASK_STATE_INPUT_REQUIRED",
        (Version::V1, TaskPhase::Completed) => "TASK_STATE_COMPLETED",
        (Version::V1, TaskPhase::Failed) => "TASK_STATE_FAILED",
        (Version::V1, TaskPhase::Canceled) => "TASK_STATE_CANCELED",
        (Version::V03, TaskPhase::Working) => "working",
        (Version::V03, TaskPhase::InputRequired) => "input-required",
        (Version::V03, TaskPhase::Completed) => "completed",
        (Version::V03, TaskPhase::Failed) => "failed",
        (Version::V03, TaskPhase::Canceled) => "canceled",
    }
}

#[derive(Clone, Copy)]
enum Speaker {
    User,
    Agent,
}

fn message(version: Version, task: &Task, id: &str, speaker: Speaker, parts: Vec<Value>) -> Value {
    let role = match (version, speaker) {
        (Version::V1, Speaker::User) => "ROLE_USER",
        (Version::V1, Speaker::Agent) => "ROLE_AGENT",
        (Version::V03, Speaker::User) => "user",
        (Version::V03, Speaker::Agent) => "agent",
    };
    let message =
        json!({ "messageId": id, "role": role, "parts": parts, "taskId": task.id, "contextId": task.context });
    of_kind(version, "message", message)
}

fn artifact(version: Version, text: &str) -> Value {
    json!({ "artifactId": REPLY, "name": REPLY, "parts": [part(version, &MessagePart::Text(text.into()))] })
}

fn part(version: Version, piece: &MessagePart) -> Value {
    match piece {
        MessagePart::Text(text) => of_kind(version, "text", json!({ "text": text })),
        MessagePart::Data(data) => of_kind(version, "data", json!({ "data": data })),
    }
}

/// Adds `kind`, by which 0.3 tells objects apart.
fn of_kind(version: Version, kind: &str, mut object: Value) -> Value {
    if version == Version::V03 {
        object["kind"] = kind.into();
    }
    object
}

/// Wraps the object in the field by which 1.0 tells objects apart.
fn wrap(version: Version, field: &str, object: Value) -> Value {
    match version {
        Version::V1 => json!({ field: object }),
        Version::V03 => object,
    }
}

/// Formats a time in UTC to the millisecond, as the specification requires.
fn milliseconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::super::tasks::UserMessage;
    use super::*;

    const V1: WireFormat = WireFormat { version: Version::V1, asks_people: false };
    const V03: WireFormat = WireFormat { version: Version::V03, asks_people: false };

    fn failed() -> (Task, TaskProgress) {
        let message =
            UserMessage { id: "m".into(), pieces: vec![MessagePart::Text("hi".into()), MessagePart::Data(json!([1]))] };
        let since = "2026-01-02T03:04:05.6789Z".parse().unwrap();
        let (text, error) = ("so far".into(), Some("asleep".into()));
        let progress = TaskProgress { phase: TaskPhase::Failed, since, text, error, approval: None };
        (Task::new("t".into(), "c".into(), None, message), progress)
    }

    #[test]
    fn a_task_in_the_form_of_1_0() {
        let (one, progress) = failed();
        let expected = json!({
            "id": "t",
            "contextId": "c",
            "status": {
                "state": "TASK_STATE_FAILED",
                "timestamp": "2026-01-02T03:04:05.678Z",
                "message": {
                    "messageId": "t-error", "role": "ROLE_AGENT", "parts": [{ "text": "asleep" }],
                    "taskId": "t", "contextId": "c",
                },
            },
            "artifacts": [{ "artifactId": "reply", "name": "reply", "parts": [{ "text": "so far" }] }],
            "history": [{
                "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hi" }, { "data": [1] }],
                "taskId": "t", "contextId": "c",
            }],
        });
        assert_eq!(task(V1, &one, &progress, None), expected);
    }

    #[test]
    fn a_task_in_the_form_of_0_3() {
        let (one, progress) = failed();
        let found = task(V03, &one, &progress, Some(1));
        assert_eq!((&found["kind"], &found["status"]["state"]), (&json!("task"), &json!("failed")));
        let message = &found["history"][0];
        assert_eq!((&message["kind"], &message["role"]), (&json!("message"), &json!("user")));
        assert_eq!(message["parts"], json!([{ "kind": "text", "text": "hi" }, { "kind": "data", "data": [1] }]));
        assert_eq!(found["artifacts"][0]["parts"], json!([{ "kind": "text", "text": "so far" }]));
        assert!(task(V03, &one, &progress, Some(0)).get("history").is_none());
    }

    #[test]
    fn a_task_that_waits_says_what_for() {
        let (one, failed) = failed();
        let (error, approval) = (Some("waiting".into()), Some(json!({ "task": "p" })));
        let waits = TaskProgress { phase: TaskPhase::InputRequired, error, approval, ..failed };
        let status = task(V03, &one, &waits, None)["status"].take();
        assert_eq!(
            (&status["state"], &status["message"]["messageId"]),
            (&json!("input-required"), &json!("t-waiting"))
        );
        assert_eq!(status["message"]["metadata"], json!({ "recif.dev/waiting": { "task": "p" } }));
        assert_eq!(status["message"].get("extensions"), None);
        assert_eq!(status_update(V03, &one, &waits)["final"], true, "its stream ends");
    }

    #[test]
    fn a_client_that_activated_the_extension_is_asked_to_decide() {
        let (one, failed) = failed();
        let parked = json!({ "task": "p", "approval": { "tools": [{ "id": "1", "name": "pay", "args": {} }] } });
        let (error, approval) = (Some("waiting".into()), Some(parked.clone()));
        let waits = TaskProgress { phase: TaskPhase::InputRequired, error, approval, ..failed };
        let call = json!({ "id": "1", "call_id": "1", "name": "pay", "args": {} });
        let request = json!({ "type": "tool_approval_request", "hint": "waiting", "tools": [call] });
        for version in [Version::V1, Version::V03] {
            let format = WireFormat { version, asks_people: true };
            let shown = task(format, &one, &waits, None);
            let said = &shown["status"]["message"];
            assert_eq!(said["extensions"], json!([HITL_EXTENSION]));
            assert_eq!(said["metadata"], json!({ WAITING: parked, HITL_EXTENSION: request }));
        }
    }

    #[test]
    fn events_are_told_apart_by_field_or_by_kind() {
        let (one, progress) = failed();
        assert_eq!(artifact_update(Version::V1, &one, "x", false)["artifactUpdate"]["append"], false);
        assert_eq!(status_update(V1, &one, &progress)["statusUpdate"].get("final"), None);
        let event = artifact_update(Version::V03, &one, "x", true);
        assert_eq!((&event["kind"], &event["append"]), (&json!("artifact-update"), &json!(true)));
        let event = status_update(V03, &one, &progress);
        assert_eq!((&event["kind"], &event["final"]), (&json!("status-update"), &json!(true)));
    }
}
