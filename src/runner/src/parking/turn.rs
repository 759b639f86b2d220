//! Parked turns as they are stored, claimed and shown.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rulings::Ruling;
use crate::{
    conversations::history::{ConversationId, UserName},
    models::{Message, ToolCall},
};

/// All that it takes to go on with a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ParkedTurn {
    /// Conversation of the turn.
    pub(crate) conversation: ConversationId,
    /// Title of the conversation that the turn begins.
    pub(crate) title: Option<String>,
    /// Messages of the turn so far, the user's first.
    pub(crate) messages: Vec<Message>,
    /// Calls that wait, each with its own id.
    pub(crate) calls: Vec<ToolCall>,
    /// Seconds for which they wait.
    pub(crate) patience: u64,
    /// Number of tool turns that are left.
    pub(crate) tool_turns: usize,
    /// Fallback that has answered in this turn, and goes on.
    pub(crate) fallback: Option<String>,
    /// Text of the model so far.
    pub(crate) text: String,
    /// Set when the turn needs headers or the key of its caller.
    pub(crate) needs_caller: bool,
}

/// State of an approved call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallProgress {
    /// It is about to be sent, or was sent.
    Started,
    /// Its result, or the text of its error.
    Finished(Result<String, String>),
}

/// State of the approved calls, by their ids. A call that is not in it was not started.
pub(super) type Progress = BTreeMap<String, CallProgress>;

/// Right of one process to continue a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    /// Task of the turn.
    pub(crate) task: String,
    /// Random text that every write names.
    pub(crate) token: String,
}

impl Claim {
    /// Creates a claim that no other process has.
    pub(super) fn new(task: &str) -> Result<Self, getrandom::Error> {
        Ok(Self { task: task.to_owned(), token: ConversationId::random()?.to_string() })
    }
}

/// Turn that this process continues.
#[derive(Debug, PartialEq)]
pub(crate) struct ClaimedTurn {
    /// Claim of this process.
    pub(crate) claim: Claim,
    /// User whose request began the turn.
    pub(crate) owner: UserName,
    /// The turn.
    pub(super) turn: ParkedTurn,
    /// Decision on its calls; `None` when nobody decided in time.
    pub(super) ruling: Option<Ruling>,
    /// How far the approved calls are.
    pub(super) progress: Progress,
}

/// Turn that waits for a decision.
#[derive(Debug, Serialize)]
pub(crate) struct WaitingTurn {
    /// Conversation of the turn.
    pub(super) conversation_id: ConversationId,
    #[serde(flatten)]
    pub(super) parked: ParkedReply,
}

impl WaitingTurn {
    /// Reports whether it is a turn of this conversation.
    pub(super) fn is_of(&self, conversation: &ConversationId) -> bool {
        self.conversation_id == *conversation
    }

    /// Describes a parked turn.
    pub(super) fn new(task: &str, turn: &ParkedTurn, expires: Timestamp) -> Self {
        Self { conversation_id: turn.conversation.clone(), parked: ParkedReply::new(task, turn, expires) }
    }
}

/// What a client gets to know of a turn that waits.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ParkedReply {
    /// Id by which the turn is decided.
    task: String,
    approval: AskedApproval,
}

#[derive(Debug, Clone, Serialize)]
struct AskedApproval {
    /// Time at which the calls are refused.
    expires: Timestamp,
    tools: Vec<AskedCall>,
}

/// Call that waits.
#[derive(Debug, Clone, Serialize)]
struct AskedCall {
    id: String,
    name: String,
    args: Value,
}

impl ParkedReply {
    /// Describes a parked turn.
    pub(crate) fn new(task: &str, turn: &ParkedTurn, expires: Timestamp) -> Self {
        let shown = |ToolCall { id, name, arguments, .. }: &ToolCall| AskedCall {
            id: id.clone(),
            name: name.clone(),
            args: arguments.clone(),
        };
        let tools = turn.calls.iter().map(shown).collect();
        Self { task: task.to_owned(), approval: AskedApproval { expires, tools } }
    }

    /// Returns a note for clients that read the text alone. It does not have the task: a model that asks this agent by a tool reads the
    /// text too, and must not decide in a person's place.
    pub(crate) fn note(&self) -> String {
        let names: Vec<_> = self.approval.tools.iter().map(|call| format!("`{}`", call.name)).collect();
        format!("[waiting until you approve {}]", names.join(", "))
    }
}
