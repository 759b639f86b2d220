//! Answer to one message, from a response or from the events of a stream.
//!
//! The answer is a message, or a task: its artifacts grow by events, and its status changes until it ends. The text is that of
//! the artifacts, else that of the status. Both versions of the protocol are read alike: 1.0 names an object by the field that
//! holds it, 0.3 by its `kind`.

use serde_json::Value;

use crate::{
    error::A2aError,
    hitl::{RequestedCall, requested_calls},
    task_state::TaskState,
};

/// Key of the metadata of the status of a task that waits, of Récif's runtime: the task under which a person decides on its calls, and
/// the calls.
pub const WAITING: &str = "recif.dev/waiting";

/// Known part of the answer to a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct A2aTurn {
    task: Option<String>,
    context: Option<String>,
    state: Option<TaskState>,
    artifacts: Vec<TaskArtifact>,
    /// Text of the newest status, or of the message.
    status_text: String,
    /// Task of its newest status under which a person decides.
    decision_task: Option<String>,
    /// Calls that its newest status asks to approve.
    requested: Vec<RequestedCall>,
    /// Index of the artifact of which text was returned last.
    last: Option<usize>,
    /// Set once any text was returned.
    has_text: bool,
    /// Set once the text of the status was returned.
    has_status_text: bool,
}

/// Result of a task, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TaskArtifact {
    id: String,
    text: String,
}

impl A2aTurn {
    /// Reads a response, or the data of an event, and returns the text that it adds to the answer.
    ///
    /// # Errors
    /// The agent refuses the request, or the answer cannot be understood.
    pub fn read(&mut self, json: &str) -> Result<String, A2aError> {
        let response: Value = serde_json::from_str(json).map_err(|_| A2aError::Malformed("it is not JSON"))?;
        if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
            let message = error["message"].as_str().unwrap_or("the agent refuses the request").to_owned();
            return Err(A2aError::Refused { code: error["code"].as_i64().unwrap_or_default(), message });
        }
        let result = response.get("result").filter(|result| result.is_object());
        self.apply(result.ok_or(A2aError::Malformed("it has neither a result nor an error"))?)
    }

    /// Returns the id of the task, if the answer is one.
    pub fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    /// Returns the id of the context, which the next message continues.
    pub fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// Returns the state of the task; that of a message is [`TaskState::Completed`].
    pub fn state(&self) -> Option<TaskState> {
        self.state
    }

    /// Returns the task under which a person decides on the calls that the turn waits for, where the agent names one.
    pub fn decision_task(&self) -> Option<&str> {
        self.decision_task.as_deref().filter(|_| self.state == Some(TaskState::InputRequired))
    }

    /// Returns the calls that a person is asked to approve, where the client named the extension for it.
    pub fn requested_calls(&self) -> &[RequestedCall] {
        if self.state == Some(TaskState::InputRequired) { &self.requested } else { &[] }
    }

    /// Reports whether more is to come.
    pub fn is_working(&self) -> bool {
        matches!(self.state, None | Some(TaskState::Working))
    }

    /// Returns the text of the answer: that of the artifacts, else of the status. A task that waits for input says in its status
    /// what it waits for.
    pub fn text(&self) -> String {
        let mut texts: Vec<&str> = self.artifacts.iter().map(|artifact| artifact.text.as_str()).collect();
        texts.retain(|text| !text.is_empty());
        if (texts.is_empty() || self.state == Some(TaskState::InputRequired)) && !self.status_text.is_empty() {
            texts.push(&self.status_text);
        }
        texts.join("\n")
    }

    /// Returns why the task has no answer, if it ended or stopped without one.
    pub fn failure(&self) -> Option<String> {
        let what = match self.state? {
            TaskState::Failed => "the agent failed",
            TaskState::Canceled => "the agent cancelled the task",
            TaskState::Rejected => "the agent rejected the task",
            TaskState::AuthRequired => "the agent requires credentials",
            TaskState::Working | TaskState::InputRequired | TaskState::Completed => return None,
        };
        Some(if self.status_text.is_empty() { what.to_owned() } else { format!("{what}: {}", self.status_text) })
    }

    fn apply(&mut self, result: &Value) -> Result<String, A2aError> {
        let held = |field: &str| result.get(field).filter(|held| held.is_object());
        let own = |kind: &str| (result["kind"] == kind).then_some(result);
        if let Some(update) = held("artifactUpdate").or_else(|| own("artifact-update")) {
            self.identify(&update["taskId"], &update["contextId"]);
            return Ok(self.artifact(&update["artifact"], update["append"] == true));
        }
        if let Some(update) = held("statusUpdate").or_else(|| own("status-update")) {
            self.identify(&update["taskId"], &update["contextId"]);
            return Ok(self.status(&update["status"]));
        }
        if let Some(message) = held("message").or_else(|| own("message")) {
            self.identify(&message["taskId"], &message["contextId"]);
            self.state = Some(TaskState::Completed);
            self.status_text = text(message);
            return Ok(self.closing_text());
        }
        // The result of `GetTask` is the task itself.
        let bare = (result["id"].is_string() && result["status"].is_object()).then_some(result);
        let task = held("task").or_else(|| own("task")).or(bare);
        let task = task.ok_or(A2aError::Malformed("its result is neither a task nor a message"))?;
        self.identify(&task["id"], &task["contextId"]);
        let artifacts = task["artifacts"].as_array().into_iter().flatten();
        let new: Vec<String> = artifacts.map(|artifact| self.artifact(artifact, false)).collect();
        Ok(new.concat() + &self.status(&task["status"]))
    }

    fn identify(&mut self, task: &Value, context: &Value) {
        let set = |known: &mut Option<String>, id: &Value| {
            if let Some(id) = id.as_str().filter(|id| !id.is_empty()) {
                *known = Some(id.to_owned());
            }
        };
        set(&mut self.task, task);
        set(&mut self.context, context);
    }

    /// Replaces or extends an artifact, and returns what is new of its text.
    fn artifact(&mut self, artifact: &Value, append: bool) -> String {
        let (id, text) = (artifact["artifactId"].as_str().unwrap_or_default(), text(artifact));
        let at = self.artifacts.iter().position(|known| known.id == id).unwrap_or_else(|| {
            self.artifacts.push(TaskArtifact { id: id.to_owned(), text: String::new() });
            self.artifacts.len() - 1
        });
        let known = &mut self.artifacts[at].text;
        let new = if append {
            known.push_str(&text);
            text
        } else {
            // An artifact that was sent piece by piece may come as a whole in the end.
            let new = text.strip_prefix(known.as_str()).map_or_else(|| format!("\n{text}"), str::to_owned);
            *known = text;
            new
        };
        if new.is_empty() {
            return new;
        }
        let is_other = self.has_text && self.last != Some(at);
        self.last = Some(at);
        self.has_text = true;
        if is_other { format!("\n{new}") } else { new }
    }

    fn status(&mut self, status: &Value) -> String {
        self.state = Some(TaskState::parse(status["state"].as_str().unwrap_or_default()));
        self.status_text = text(&status["message"]);
        self.decision_task = status["message"]["metadata"][WAITING]["task"].as_str().map(str::to_owned);
        self.requested = requested_calls(&status["message"]);
        self.closing_text()
    }

    /// Returns the text of the status, once, if it belongs to the answer.
    fn closing_text(&mut self) -> String {
        let is_part = match self.state {
            Some(TaskState::Completed) => self.artifacts.iter().all(|artifact| artifact.text.is_empty()),
            Some(TaskState::InputRequired) => true,
            _ => false,
        };
        if !is_part || self.has_status_text || self.status_text.is_empty() {
            return String::new();
        }
        self.has_status_text = true;
        let before = if self.has_text { "\n" } else { "" };
        self.has_text = true;
        format!("{before}{}", self.status_text)
    }
}

/// Returns the text of the parts of a message or artifact; of data, its JSON. Files are left out.
fn text(of: &Value) -> String {
    let parts = of["parts"].as_array().into_iter().flatten();
    let texts = parts.filter_map(|part| match (part["text"].as_str(), &part["data"]) {
        (Some(text), _) => Some(text.to_owned()),
        (None, Value::Null) => None,
        (None, data) => Some(data.to_string()),
    });
    texts.collect()
}
