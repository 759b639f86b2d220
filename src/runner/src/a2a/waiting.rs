//! Tasks whose turn waits for a person.
//!
//! A task stops as its turn is [parked](crate::parking), and its row says no more than that. Which calls wait, that the turn goes on, and
//! its answer are read from the parked turns and the conversation whenever a client asks, until the answer is known: any replica may go on
//! with the turn, and each tells the same. A client that [decides](super::deciding) by a message follows the turn as it goes on.

use std::{cmp::Reverse, sync::Arc};

use ::a2a::WAITING;
use jiff::Timestamp;

use super::{
    A2a,
    rows::TaskSummary,
    rpc::RpcError,
    tasks::{Task, TaskPhase, TaskProgress, TaskWait},
};
use crate::{
    agent::{Agent, TurnError},
    conversations::history::{ConversationId, UserName},
    models::{Message, text_of},
    parking::{ParkedReply, WaitingTurn},
};

/// Reason of a failure for a task whose turn is in no conversation.
const NO_ANSWER: &str = "the turn that waited has no answer: its conversation was forgotten, or is another user's";

impl A2a {
    /// Returns what a task of this user waits for. The text names no task of the parked turn, as its [note](ParkedReply::note) does not: the
    /// command lists it for a user with a name, and others take it from the metadata.
    pub(super) fn wait(&self, parked: &ParkedReply, user: &UserName) -> TaskWait {
        let (wait, agent, namespace) = (parked.wait(), &self.name, &self.namespace);
        let text = if user.is_some() || parked.needs_approver() {
            format!("{wait}: recif approve agent/{agent} -n {namespace}")
        } else {
            format!("{wait}: recif approve agent/{agent} TASK -n {namespace}, where TASK is in the metadata {WAITING}")
        };
        // Texts and JSON values under string keys: this cannot fail.
        TaskWait { text, approval: serde_json::to_value(parked).unwrap_or_default() }
    }

    /// Returns the progress of a task as it is now: a turn that waited may go on, or have ended.
    ///
    /// # Errors
    /// The parked turns or the conversation cannot be read.
    pub(super) async fn present(&self, task: &Task) -> Result<TaskProgress, RpcError> {
        if task.phase() != TaskPhase::InputRequired {
            return Ok(task.snapshot());
        }
        let waiting = self.ready_agent()?.parked.waiting_of(&task.id, &task.user).await.map_err(TurnError::from)?;
        self.present_among(task, &waiting).await
    }

    /// Returns the progress of a task as it is now, where these turns of its user wait. The end of one that waited is stored as it is
    /// first seen: its conversation goes on, and may be forgotten.
    ///
    /// # Errors
    /// The parked turns or the conversation cannot be read.
    pub(super) async fn present_among(&self, task: &Task, waiting: &[WaitingTurn]) -> Result<TaskProgress, RpcError> {
        let stopped = task.snapshot();
        let context = ConversationId::parse(&task.context);
        let (TaskPhase::InputRequired, Some(context)) = (stopped.phase, context) else { return Ok(stopped) };
        let agent = self.ready_agent()?;
        let found = waiting.iter().find(|turn| turn.parked.is_of(&task.id));
        if let Some(turn) = found.filter(|turn| !turn.decided) {
            let TaskWait { text, approval } = self.wait(&turn.parked, &task.user);
            return Ok(TaskProgress { error: Some(text), approval: Some(approval), ..stopped });
        }
        let settled = TaskProgress { error: None, approval: None, ..stopped };
        // One that has expired is continued soon.
        if found.is_some() || agent.parked.is_open_for(&task.id, &task.user).await.map_err(TurnError::from)? {
            return Ok(TaskProgress { phase: TaskPhase::Working, ..settled });
        }
        let answer = match agent.history(&context, &task.user).await {
            Ok(conversation) => answer_to(&conversation.messages, &task.message.text()),
            Err(TurnError::NoConversation(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let Some(text) = answer else {
            return Ok(TaskProgress { phase: TaskPhase::Failed, error: Some(NO_ANSWER.to_owned()), ..settled });
        };
        let end = TaskProgress { phase: TaskPhase::Completed, since: Timestamp::now(), text, ..settled };
        self.tasks.settle(task, &end).await;
        Ok(end)
    }

    /// Cancels a task that waited, unless its calls are decided, and returns its end.
    ///
    /// # Errors
    /// Its calls are decided, or the parked turns cannot be read.
    pub(super) async fn withdraw(&self, task: &Task) -> Result<TaskProgress, RpcError> {
        let withdrawn = self.ready_agent()?.parked.withdraw(&task.id, &task.user).await;
        if !withdrawn.map_err(TurnError::from)? {
            return Err(RpcError::NotCancelable(task.id.clone()));
        }
        tracing::info!(user = task.user.as_deref(), task = task.id, "calls that waited were withdrawn");
        let (phase, since) = (TaskPhase::Canceled, Timestamp::now());
        let end = TaskProgress { phase, since, error: None, approval: None, ..task.snapshot() };
        self.tasks.settle(task, &end).await;
        Ok(end)
    }

    /// Stores the ends of the tasks of a conversation that waited, before another turn of it may have the same message.
    ///
    /// # Errors
    /// The tasks, the parked turns or the conversation cannot be read.
    pub(super) async fn settle_waited(&self, context: &ConversationId, user: &UserName) -> Result<(), RpcError> {
        for task in self.tasks.waited(context.as_str(), user).await? {
            self.present_among(&task, &[]).await?;
        }
        Ok(())
    }

    /// Sets the phases of tasks whose turn waited to what they are now, and returns the turns of `user` that wait.
    ///
    /// # Errors
    /// The tasks, the parked turns or a conversation cannot be read.
    pub(super) async fn update_phases(
        &self,
        user: &UserName,
        tasks: &mut [TaskSummary],
    ) -> Result<Vec<WaitingTurn>, RpcError> {
        if tasks.iter().all(|task| task.phase != TaskPhase::InputRequired) {
            return Ok(Vec::new());
        }
        let waiting = self.ready_agent()?.waiting(user).await?;
        let mut others = Vec::new();
        for task in tasks.iter_mut().filter(|task| task.phase == TaskPhase::InputRequired) {
            match waiting.iter().find(|turn| turn.parked.is_of(&task.id)) {
                Some(turn) if turn.decided => task.phase = TaskPhase::Working,
                Some(_) => {}
                None => others.push(task.clone()),
            }
        }
        for task in self.tasks.load(&others, user).await? {
            let now = self.present_among(&task, &waiting).await?;
            if let Some(summary) = tasks.iter_mut().find(|summary| summary.id == task.id) {
                (summary.phase, summary.since) = (now.phase, now.since);
            }
        }
        tasks.sort_by_key(|task| Reverse(task.since));
        Ok(waiting)
    }

    pub(super) fn ready_agent(&self) -> Result<Arc<Agent>, RpcError> {
        self.agent.clone().map_err(RpcError::Unavailable)
    }
}

/// Returns the text of the model after the last message of the user with this text; `None` without such a message.
fn answer_to(messages: &[Arc<Message>], question: &str) -> Option<String> {
    let asks = |message: &Arc<Message>| matches!(&**message, Message::User(parts) if text_of(parts) == question);
    let asked = messages.iter().rposition(asks)?;
    let turn = messages[asked + 1..].iter().take_while(|message| !matches!(&***message, Message::User(_)));
    let texts = turn.filter_map(|message| match &**message {
        Message::Assistant(text) => Some(text.as_str()),
        _ => None,
    });
    Some(texts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_what_the_model_said_to_the_last_message_of_that_text() {
        let said = |text: &str| Message::Assistant(text.to_owned());
        let result = Message::ToolResult { id: "1".into(), name: "pay".into(), outcome: Ok("paid".into()) };
        let talk =
            [Message::user("a"), said("1"), Message::user("a"), said("2"), result, said("3"), Message::user("b")];
        let talk: Vec<_> = talk.into_iter().map(Arc::new).collect();
        assert_eq!(answer_to(&talk, "a").as_deref(), Some("23"));
        assert_eq!(answer_to(&talk, "b").as_deref(), Some(""));
        assert_eq!(answer_to(&talk, "c"), None);
    }
}
