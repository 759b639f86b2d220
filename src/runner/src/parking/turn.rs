//! Parked turns as they are stored, claimed and shown.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rulings::{Ruling, shown_names};
use crate::{
    conversations::history::{ConversationId, UserName},
    models::{Message, ModelRequest, ToolCall},
    tools::Decider,
    usage::BudgetHeaders,
};

/// Time for which a claim holds without being renewed.
pub(super) const CLAIM: Duration = Duration::from_secs(30);
/// Interval between renewals of a claim.
pub(crate) const RENEWAL: Duration = Duration::from_secs(10);
/// Time after its expiry for which a decided turn waits for its caller, whose headers or key it needs.
pub(super) const CALLER_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Most times that a turn is continued before it is ended.
pub(super) const MOST_ATTEMPTS: i64 = 5;
/// Most parked turns of an agent.
pub(super) const MOST: i64 = 1000;
/// Most parked turns of one user, and most in a list.
pub(super) const MOST_OF_USER: i64 = 100;
/// Largest parked turn, in bytes.
pub(super) const MAX_TURN: usize = 4 << 20;
/// Most bytes of all turns that are parked in memory.
pub(super) const MAX_MEMORY: usize = 32 << 20;

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
    /// Who decides on them.
    #[serde(default)]
    pub(crate) by: Decider,
    /// Digests of the definitions of their tools, by the ids of the calls.
    pub(crate) definitions: BTreeMap<String, String>,
    /// Seconds for which they wait.
    pub(crate) patience: u64,
    /// Number of times that the turn was parked.
    pub(crate) round: u64,
    /// Number of tool turns that are left.
    pub(crate) tool_turns: usize,
    /// Fallback that has answered in this turn, and goes on.
    pub(crate) fallback: Option<String>,
    /// Text of the model so far.
    pub(crate) text: String,
    /// Budgets of the last request for this turn.
    pub(crate) budgets: BudgetHeaders,
    /// Set when the turn needs headers or the key of its caller.
    pub(crate) needs_caller: bool,
    /// Names of the headers of its caller that calls have. Their values are kept nowhere.
    pub(crate) forwarded: Vec<String>,
    /// Set when the turn follows others of its conversation.
    pub(crate) had_history: bool,
}

impl ParkedTurn {
    /// Returns its approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let calls = self.calls.iter().map(|call| call.arguments.to_string().len()).sum::<usize>();
        self.messages.iter().map(Message::bytes).sum::<usize>() + calls + self.text.len()
    }

    /// Returns the names of the tools of its calls, for the log.
    pub(crate) fn tool_names(&self) -> String {
        shown_names(self.calls.iter())
    }
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

impl CallProgress {
    /// Returns the size of the result in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Started => 0,
            Self::Finished(Ok(text) | Err(text)) => text.len(),
        }
    }
}

/// State of the approved calls, by their ids. A call that is not in it was not started.
pub(crate) type Progress = BTreeMap<String, CallProgress>;

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
    pub(crate) turn: ParkedTurn,
    /// Decision on its calls; `None` when no user decided in time.
    pub(crate) ruling: Option<Ruling>,
    /// How far the approved calls are.
    pub(crate) progress: Progress,
    /// Number of times that it was claimed, with this one.
    pub(crate) attempts: i64,
    /// Set when it was claimed without a request of its caller.
    pub(crate) is_swept: bool,
}

/// Reason why a turn ends without a further call and without its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ForcedEnd {
    /// It needs headers or the key of its caller, who did not come back.
    #[error("it needs its caller, who did not come back")]
    NoCaller,
    /// The turns before it were deleted.
    #[error("its conversation was forgotten")]
    Forgotten,
    /// Each attempt to continue it broke off.
    #[error("it broke off {} times", MOST_ATTEMPTS)]
    BrokeOff,
}

impl ClaimedTurn {
    /// Returns why the turn can only be ended, if that is so.
    pub(crate) fn forced_end(&self) -> Option<ForcedEnd> {
        if self.attempts > MOST_ATTEMPTS {
            return Some(ForcedEnd::BrokeOff);
        }
        (self.is_swept && self.turn.needs_caller).then_some(ForcedEnd::NoCaller)
    }
}

/// Result of parking a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParkResult {
    /// It waits until this time.
    Parked(Timestamp),
    /// Too many turns wait already, or it is too large.
    Full,
    /// The claim on the turn is lost.
    ClaimLost,
}

/// What is known of a turn without a claim on it.
pub(super) struct FoundTurn {
    /// User whose request began the turn, as the column holds it.
    pub(super) owner: String,
    pub(super) conversation: ConversationId,
    pub(super) calls: Vec<ToolCall>,
    /// Who decides on the calls.
    pub(super) by: Decider,
    /// Set when the turn needs headers or the key of its owner.
    pub(super) needs_caller: bool,
    /// Names of the headers that a request which goes on with the turn has to have; `None` where this version cannot go on with it.
    pub(super) forwarded: Option<Vec<String>>,
    pub(super) ruling: Option<Ruling>,
    /// Number of times that the turn was parked.
    pub(super) round: u64,
    pub(super) is_expired: bool,
    pub(super) expires: Timestamp,
}

impl FoundTurn {
    /// Describes the turn.
    pub(super) fn waiting(&self, task: &str, decided: bool) -> WaitingTurn {
        let Self { owner, conversation, calls, by, expires, .. } = self;
        WaitingTurn::new(task, owner, conversation.clone(), decided, calls, *by, *expires)
    }
}

/// Decision of an approver that is kept until the caller of its turn comes back.
#[derive(Debug)]
pub(crate) struct KeptDecision {
    /// The turn.
    pub(crate) waiting: WaitingTurn,
    /// Number of times that the turn was parked.
    pub(crate) round: u64,
    /// Calls that are decided.
    pub(crate) calls: Vec<ToolCall>,
    /// The decision.
    pub(crate) ruling: Ruling,
    /// Set unless the same decision was kept before.
    pub(crate) is_new: bool,
}

/// Turn of an agent that is being answered.
pub(crate) struct OpenTurn {
    /// Conversation of the turn.
    pub(crate) conversation: ConversationId,
    /// Title of the conversation that the turn begins.
    pub(crate) title: Option<String>,
    /// Request with all messages so far.
    pub(crate) request: ModelRequest,
    /// Number of the request's first messages that are not part of the turn.
    pub(crate) earlier: usize,
    /// Number of tool turns that are left.
    pub(crate) tool_turns: usize,
    /// Text of the model before the turn was last continued.
    pub(crate) text: String,
    /// Number of times that the turn was parked.
    pub(crate) round: u64,
    /// Task of Agent2Agent that the turn answers.
    pub(crate) a2a_task: Option<String>,
}

/// Returns a new id of a parked turn, which cannot be guessed. That of a task of Agent2Agent begins with the id of that task, so that
/// each process knows what became of it.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn parked_id(a2a_task: Option<&str>) -> Result<ConversationId, getrandom::Error> {
    let random = ConversationId::random()?;
    // Two ids and a dot are an id, too.
    Ok(a2a_task.and_then(|asked| ConversationId::parse(&format!("{asked}.{random}"))).unwrap_or(random))
}

/// Returns the task of Agent2Agent of a parked turn, by the id of the parked turn.
pub(crate) fn a2a_task_of(parked: &str) -> Option<&str> {
    parked.split_once('.').map(|(asked, _)| asked)
}

/// Turn that waits for a decision, or is decided and has not ended.
#[derive(Debug, Serialize)]
pub(crate) struct WaitingTurn {
    /// Conversation of the turn.
    pub(super) conversation_id: ConversationId,
    /// User whose request began the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// Set once it is decided: the same decision again goes on with it where no process does.
    pub(crate) decided: bool,
    #[serde(flatten)]
    pub(crate) parked: ParkedReply,
}

impl WaitingTurn {
    /// Describes a parked turn of this owner.
    pub(super) fn new(
        task: &str,
        owner: &str,
        conversation: ConversationId,
        decided: bool,
        calls: &[ToolCall],
        by: Decider,
        expires: Timestamp,
    ) -> Self {
        let user = (!owner.is_empty()).then(|| owner.to_owned());
        Self { conversation_id: conversation, user, decided, parked: ParkedReply::new(task, calls, by, expires) }
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
    /// Who decides.
    by: Decider,
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
    /// The arguments as JSON for people: readers in JavaScript cannot parse every number exactly.
    args_text: String,
}

impl ParkedReply {
    /// Describes a parked turn with these calls.
    pub(crate) fn new(task: &str, calls: &[ToolCall], by: Decider, expires: Timestamp) -> Self {
        let shown = |ToolCall { id, name, arguments, .. }: &ToolCall| AskedCall {
            id: id.clone(),
            name: name.clone(),
            args: arguments.clone(),
            args_text: format!("{arguments:#}"),
        };
        let tools = calls.iter().map(shown).collect();
        Self { task: task.to_owned(), approval: AskedApproval { by, expires, tools } }
    }

    /// Returns the id by which the turn is decided.
    pub(crate) fn task(&self) -> &str {
        &self.task
    }

    /// Returns a note for clients that read the text alone. It does not have the task: a model that asks this agent by a tool reads the
    /// text too, and must not decide in a person's place.
    pub(crate) fn note(&self) -> String {
        format!("[{}]", self.wait())
    }

    /// Returns what the turn waits for, as a text.
    pub(crate) fn wait(&self) -> String {
        let names = self.names();
        match self.approval.by {
            Decider::Caller => format!("waiting until you approve {names}"),
            Decider::Approver => format!("waiting until an approver other than you approves {names}"),
        }
    }

    /// Reports whether only an approver can decide.
    pub(crate) fn needs_approver(&self) -> bool {
        self.approval.by == Decider::Approver
    }

    /// Reports whether the turn answers this task of Agent2Agent.
    pub(crate) fn is_of(&self, a2a_task: &str) -> bool {
        a2a_task_of(&self.task) == Some(a2a_task)
    }

    /// Returns the names of the tools.
    pub(crate) fn names(&self) -> String {
        let names: Vec<_> = self.approval.tools.iter().map(|call| format!("`{}`", call.name)).collect();
        names.join(", ")
    }
}

/// Puts the results at the end into the order of their calls, which some providers expect.
pub(crate) fn sort_results(messages: &mut [Arc<Message>]) {
    let is_result = |message: &Arc<Message>| matches!(**message, Message::ToolResult { .. });
    let begin = messages.iter().rposition(|message| !is_result(message)).map_or(0, |last| last + 1);
    let (before, results) = messages.split_at_mut(begin);
    results.sort_by_key(|result| {
        let Message::ToolResult { id, .. } = &**result else { return None };
        before.iter().rposition(|call| matches!(&**call, Message::Call(call) if call.id == *id))
    });
}
