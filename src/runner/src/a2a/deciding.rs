//! Messages to a task: those that decide on the calls for which it waits, by the [extension](super::hitl). Every other one is refused.
//!
//! A decision is taken as at `POST /approvals/{task}`, and the turn goes on in a task of its own, which ends also if the client disconnects.
//! The client watches a copy of the task with the answer as it comes; what the task has come to is [found](super::waiting) by all others in
//! the conversation. A turn that is decided and needs headers or the key of its caller goes on as that caller gets the task.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use telemetry::semconv::{A2A_TASK_ID, GEN_AI_CONVERSATION_ID};
use tokio::time::sleep;

use super::{
    A2a, hitl,
    params::SendParams,
    rpc::RpcError,
    tasks::{RowState, Task, TaskPhase, TaskProgress},
};
use crate::{
    agent::{Agent, TurnError},
    caller::CallerContext,
    parking::{ClaimedTurn, DecisionError, Decisions},
};

/// Interval at which a turn is looked for that another process goes on with.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for that: an abandoned turn is claimed again within 35 s.
const OTHER_PROCESS_TIMEOUT: Duration = Duration::from_secs(120);

impl A2a {
    /// Takes a message to the task `id`, and returns the task as its client is to watch it.
    ///
    /// # Errors
    /// The message is no decision on calls for which the task waits, or the decision is not taken.
    pub(super) async fn message_to(
        &self,
        agent: Arc<Agent>,
        id: &str,
        send: &SendParams,
        caller: CallerContext,
    ) -> Result<Arc<Task>, RpcError> {
        let task = self.tasks.get(id, &caller.user).await?;
        if send.context.as_ref().is_some_and(|context| context.to_string() != task.context) {
            return Err(RpcError::Params(format!("task `{id}` is of another context than `message.contextId`")));
        }
        if let Some(response) = &send.decision {
            return self.decide(agent, task, caller, hitl::decisions(response)?).await;
        }
        let now = self.present(&task).await?;
        if now.phase == TaskPhase::InputRequired {
            let what = now.error.unwrap_or_default();
            return Err(RpcError::Unsupported(format!("no text decides on task `{id}`: {what}")));
        }
        Err(takes_no_message(id))
    }

    /// Takes the decision of the caller on the calls for which the task waits, and lets its turn go on.
    async fn decide(
        &self,
        agent: Arc<Agent>,
        task: Arc<Task>,
        caller: CallerContext,
        decisions: Decisions,
    ) -> Result<Arc<Task>, RpcError> {
        let waiting = agent.parked.waiting_of(&task.id, &task.user).await.map_err(TurnError::from)?;
        let Some(turn) = waiting.iter().find(|turn| turn.parked.is_of(&task.id)) else {
            let has_waited = task.phase() == TaskPhase::InputRequired;
            let is_expired = has_waited && self.present(&task).await?.phase == TaskPhase::Working;
            return Err(if is_expired { DecisionError::Expired.into() } else { takes_no_message(&task.id) });
        };
        let claimed = agent.decide(turn.parked.task(), &caller, decisions).await?;
        Ok(self.begin(agent, task, claimed, caller))
    }

    /// Returns a task of the caller as it is now. Where its turn is decided and needs headers or the key of the caller, it goes on with this
    /// request.
    ///
    /// # Errors
    /// There is no such task, or the parked turns or the conversation cannot be read or written.
    pub(super) async fn get(&self, id: &str, caller: CallerContext) -> Result<(Arc<Task>, TaskProgress), RpcError> {
        let task = self.tasks.get(id, &caller.user).await?;
        let now = self.present(&task).await?;
        if task.phase() == TaskPhase::InputRequired && now.phase == TaskPhase::Working {
            self.go_on_decided(&task, caller).await?;
        }
        Ok((task, now))
    }

    /// Lets the decided turn of a task go on with this request, where the turn needs it and no process goes on with it.
    async fn go_on_decided(&self, task: &Arc<Task>, caller: CallerContext) -> Result<(), RpcError> {
        let agent = self.ready_agent()?;
        let waiting = agent.parked.waiting_of(&task.id, &task.user).await.map_err(TurnError::from)?;
        let decided = waiting.iter().find(|turn| turn.decided && turn.parked.is_of(&task.id));
        let Some(turn) = decided else { return Ok(()) };
        if let Some(claimed) = agent.claim_decided(turn.parked.task(), &caller).await? {
            self.begin(agent, task.clone(), claimed, caller);
        }
        Ok(())
    }

    /// Begins to go on with the turn of a task, and returns the copy of the task that tells its progress.
    fn begin(&self, agent: Arc<Agent>, task: Arc<Task>, claimed: ClaimedTurn, caller: CallerContext) -> Arc<Task> {
        let trace = caller.account.trace();
        trace.set(A2A_TASK_ID, task.id.clone());
        trace.set(GEN_AI_CONVERSATION_ID, task.context.clone());
        let watched = Arc::new(resumed(&task, claimed.turn.text.clone()));
        self.requests.spawn(self.clone().go_on(agent, task, watched.clone(), claimed, caller));
        watched
    }

    /// Goes on with the turn of a task, and tells its progress to `watched`.
    async fn go_on(
        self,
        agent: Arc<Agent>,
        task: Arc<Task>,
        watched: Arc<Task>,
        claimed: ClaimedTurn,
        caller: CallerContext,
    ) {
        let (service, waited, copy) = (self.clone(), task.clone(), watched.clone());
        // No other process goes on with a turn that needs its caller until the decision is sent again.
        let needs_caller = claimed.turn.needs_caller;
        let answer = async move |tokens| {
            let error = match agent.resume(claimed, caller, &service.requests, Some(&tokens)).await {
                Ok(reply) => return Ok(reply.parked.map(|parked| service.wait(&parked, &waited.user))),
                Err(error) => error.to_string(),
            };
            let is_followed = !needs_caller && service.follow_waited(&waited, &copy).await;
            if is_followed { Ok(None) } else { Err(error) }
        };
        watched.run(answer).await;
        // Stores the end of the task while its conversation is known.
        if let Err(error) = self.present(&task).await {
            tracing::debug!(task = task.id, "the end of a task that waited is not known yet: {error}");
        }
    }

    /// Returns the task of a decision as its client gets to know it once `watched` has ended. A copy that failed says only that this process
    /// does not go on with the turn: the task itself knows its end.
    ///
    /// # Errors
    /// The turn goes on elsewhere, or once the decision is sent again; or the task cannot be read.
    pub(super) async fn decided(&self, watched: Arc<Task>) -> Result<Arc<Task>, RpcError> {
        let TaskProgress { phase, error, .. } = watched.snapshot();
        if phase != TaskPhase::Failed {
            return Ok(watched);
        }
        let task = self.tasks.get(&watched.id, &watched.user).await?;
        match self.present(&task).await?.phase {
            TaskPhase::Working => Err(RpcError::Unavailable(error.unwrap_or_default())),
            _ => Ok(task),
        }
    }

    /// Copies the progress of a task to `copy` once another process has gone on with its turn; false where that takes too long, this
    /// process drains, or the text is not a continuation of what the client has seen.
    async fn follow_waited(&self, task: &Task, copy: &Task) -> bool {
        let begun = Instant::now();
        while !self.requests.is_closed() && begun.elapsed() < OTHER_PROCESS_TIMEOUT {
            if let Ok(now) = self.present(task).await
                && now.phase != TaskPhase::Working
            {
                let goes_on = now.text.starts_with(&copy.snapshot().text);
                if goes_on {
                    copy.follow(&now);
                }
                return goes_on;
            }
            sleep(POLL_INTERVAL).await;
        }
        false
    }
}

/// Returns a copy of a task that works again, with the text of its turn so far. Nothing of it is stored.
fn resumed(task: &Task, text: String) -> Task {
    let (phase, since) = (TaskPhase::Working, Timestamp::now());
    let progress = TaskProgress { phase, since, text, error: None, approval: None };
    let copy = Task::remote(task.id.clone(), task.context.clone(), task.user.clone(), task.message.clone(), progress);
    copy.row_state.send_replace(RowState::Ended);
    copy
}

/// Returns the error for a message to a task that waits for none.
fn takes_no_message(id: &str) -> RpcError {
    let wrong = "takes no further message: send it without `taskId`, with the task's `contextId`";
    RpcError::Unsupported(format!("task `{id}` {wrong}"))
}

impl From<DecisionError> for RpcError {
    fn from(error: DecisionError) -> Self {
        let text = error.to_string();
        match error {
            DecisionError::Invalid(_) | DecisionError::MissingHeaders(_) => Self::Params(text),
            DecisionError::UnknownTask(_)
            | DecisionError::NotApprover
            | DecisionError::NotSignedIn
            | DecisionError::Kept(_)
            | DecisionError::Decided(_)
            | DecisionError::Busy
            | DecisionError::Expired => Self::Unsupported(text),
            DecisionError::Random(_) => Self::Internal(text),
            DecisionError::Model(error) => TurnError::from(error).into(),
            DecisionError::OtherVersion | DecisionError::Database(_) => Self::Unavailable(text),
        }
    }
}
