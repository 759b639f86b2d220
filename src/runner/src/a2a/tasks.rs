//! Tasks: turns that a client can query, follow and cancel while they run, and query for some time afterwards.
//!
//! They live in the memory of this process and are bounded: the oldest ended ones are evicted for new ones. The part
//! that other replicas see is in [`rows`](super::rows). A task runs on when the client that started it disconnects
//! (specification, section 3.5.2). A watcher reads the whole text so far and is woken when it grows (a `watch`
//! channel), so a slow watcher needs no buffer and misses no text.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicUsize},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    conversations::history::UserName,
    turn_event::{TurnEvent, next_text},
};

/// Bounds of the stored tasks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Number of tasks.
    pub(super) count: usize,
    /// Bytes of text in all of them; running tasks may exceed it.
    pub(super) bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { count: 1000, bytes: 32 << 20 }
    }
}

/// Phase of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskPhase {
    /// The model is answering.
    Working,
    /// Calls of the turn waited for a person as it stopped here; [`super::A2a::present`] says what is now.
    InputRequired,
    /// The answer is complete.
    Completed,
    /// The turn failed: there will be no complete answer.
    Failed,
    /// A client canceled it.
    Canceled,
}

/// State of a task's row in the database, in the order in which it advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowState {
    /// There is no row.
    Absent,
    /// The row says that the task is working.
    Working,
    /// The row holds the final state.
    Ended,
    /// The database refuses the row; it is not written again.
    Refused,
}

/// Mutable part of a task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TaskProgress {
    /// Phase.
    pub(super) phase: TaskPhase,
    /// Time of the last change of phase.
    pub(super) since: Timestamp,
    /// Answer so far.
    pub(super) text: String,
    /// Reason of a failure, or what waits, for the client.
    pub(super) error: Option<String>,
    /// Calls that wait, for programs.
    pub(super) approval: Option<Value>,
}

/// What a task waits for.
#[derive(Debug)]
pub(super) struct TaskWait {
    /// The same for people, with the command that decides.
    pub(super) text: String,
    /// Calls that wait, for programs.
    pub(super) approval: Value,
}

/// Part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MessagePart {
    /// Text.
    Text(String),
    /// JSON.
    Data(Value),
}

impl MessagePart {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Data(data) => data.to_string().len(),
        }
    }
}

/// Message of the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct UserMessage {
    /// Id given by the client.
    pub(super) id: String,
    /// Parts of the message.
    pub(super) pieces: Vec<MessagePart>,
}

/// Turn that can be watched. Invariant: the phase leaves [`TaskPhase::Working`] at most once; the first end wins. Once the calls of a turn
/// that waited are decided, [`Task::follow`] brings its end.
#[derive(Debug)]
pub(super) struct Task {
    /// Unguessable id: 128 random bits.
    pub(super) id: String,
    /// Id of the conversation.
    pub(super) context: String,
    /// User who started it; it does not exist for any other user.
    pub(super) user: UserName,
    /// Message that it answers.
    pub(super) message: UserMessage,
    /// Bytes of the message.
    size: usize,
    progress: watch::Sender<TaskProgress>,
    canceled: CancellationToken,
    /// Set for a task that another replica runs: the progress is then a copy of its row.
    pub(super) is_remote: bool,
    /// State of its row, for waiters.
    pub(super) row_state: watch::Sender<RowState>,
    /// Bytes of the answer that its row holds while it is working.
    pub(super) written_bytes: AtomicUsize,
}

/// Tasks of this process. Invariant: at most [`Limits::count`] tasks, and a running task is never evicted.
pub(super) struct Tasks {
    limits: Limits,
    /// Oldest first.
    tasks: Mutex<VecDeque<Arc<Task>>>,
}

impl Task {
    /// Creates a working task.
    pub(super) fn new(id: String, context: String, user: UserName, message: UserMessage) -> Self {
        let (phase, since) = (TaskPhase::Working, Timestamp::now());
        let progress = TaskProgress { phase, since, text: String::new(), error: None, approval: None };
        let size = message.pieces.iter().map(MessagePart::bytes).sum();
        Self {
            id,
            context,
            user,
            message,
            size,
            progress: watch::Sender::new(progress),
            canceled: CancellationToken::new(),
            is_remote: false,
            row_state: watch::Sender::new(RowState::Absent),
            written_bytes: AtomicUsize::new(0),
        }
    }

    /// Creates a copy of another replica's task from its row.
    pub(super) fn remote(
        id: String,
        context: String,
        user: UserName,
        message: UserMessage,
        progress: TaskProgress,
    ) -> Self {
        let progress = watch::Sender::new(progress);
        Self { progress, is_remote: true, ..Self::new(id, context, user, message) }
    }

    /// Subscribes to the progress.
    pub(super) fn watch(&self) -> watch::Receiver<TaskProgress> {
        self.progress.subscribe()
    }

    /// Runs `turn`, which gets the sender of its events and may return what it waits for, until it ends or the task is canceled.
    pub(super) async fn run<F>(&self, turn: impl FnOnce(mpsc::Sender<TurnEvent>) -> F)
    where
        F: Future<Output = Result<Option<TaskWait>, String>>,
    {
        // Ends the task also when the turn panics.
        let _ended = EndGuard(self);
        let (sender, mut tokens) = mpsc::channel(16);
        let text = async {
            while let Some(token) = next_text(&mut tokens).await {
                self.progress.send_modify(|progress| progress.text.push_str(&token));
            }
        };
        let both = async { futures::join!(turn(sender), text).0 };
        match self.canceled.run_until_cancelled(both).await {
            None => {}
            Some(Ok(None)) => _ = self.end(TaskPhase::Completed, None),
            Some(Ok(Some(wait))) => _ = self.leave(TaskPhase::InputRequired, Some(wait.text), Some(wait.approval)),
            Some(Err(error)) => _ = self.end(TaskPhase::Failed, Some(error)),
        }
    }

    /// Cancels the turn; returns false when it has already ended.
    pub(super) fn cancel(&self) -> bool {
        let canceled = self.end(TaskPhase::Canceled, None);
        self.canceled.cancel();
        canceled
    }

    /// Returns a copy of the progress.
    pub(super) fn snapshot(&self) -> TaskProgress {
        self.progress.borrow().clone()
    }

    /// Replaces the progress by `later`; a task that has ended stays as it is.
    pub(super) fn follow(&self, later: &TaskProgress) {
        self.progress.send_if_modified(|progress| {
            let has_ended = !matches!(progress.phase, TaskPhase::Working | TaskPhase::InputRequired);
            let goes_on = !has_ended && progress != later;
            if goes_on {
                progress.clone_from(later);
            }
            goes_on
        });
    }

    /// Reports whether the task has a watcher.
    pub(super) fn is_watched(&self) -> bool {
        self.progress.receiver_count() > 0
    }

    /// Returns the state that its row should have.
    pub(super) fn expected_row_state(&self) -> RowState {
        if self.is_working() { RowState::Working } else { RowState::Ended }
    }

    /// Ends the task; returns false when it has already ended, because the first end wins.
    pub(super) fn end(&self, phase: TaskPhase, error: Option<String>) -> bool {
        self.leave(phase, error, None)
    }

    fn leave(&self, phase: TaskPhase, error: Option<String>, approval: Option<Value>) -> bool {
        self.progress.send_if_modified(|progress| {
            let works = progress.phase == TaskPhase::Working;
            if works {
                (progress.phase, progress.since) = (phase, Timestamp::now());
                (progress.error, progress.approval) = (error, approval);
            }
            works
        })
    }

    /// Returns the phase.
    pub(super) fn phase(&self) -> TaskPhase {
        self.progress.borrow().phase
    }

    /// Reports whether it has not ended.
    pub(super) fn is_working(&self) -> bool {
        self.phase() == TaskPhase::Working
    }

    fn bytes(&self) -> usize {
        self.size + self.progress.borrow().text.len()
    }
}

/// Drop guard that fails a task which has not ended.
struct EndGuard<'a>(&'a Task);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.end(TaskPhase::Failed, Some("the turn was cut off".into()));
    }
}

impl Tasks {
    /// Creates an empty store.
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, tasks: Mutex::default() }
    }

    /// Adds a task and evicts the oldest ended ones that are over the limits; `None` when there are too many running
    /// tasks.
    pub(super) fn insert(&self, task: Task) -> Option<Arc<Task>> {
        let task = Arc::new(task);
        let mut kept = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = task.bytes() + kept.iter().map(|task| task.bytes()).sum::<usize>();
        while kept.len() >= self.limits.count || bytes > self.limits.bytes {
            let Some(oldest) = kept.iter().position(|task| !task.is_working()) else { break };
            bytes -= kept.remove(oldest).map_or(0, |task| task.bytes());
        }
        if kept.len() >= self.limits.count {
            return None;
        }
        kept.push_back(task.clone());
        Some(task)
    }

    /// Returns the task of `user` with that id, if it is still stored.
    pub(super) fn get(&self, id: &str, user: &UserName) -> Option<Arc<Task>> {
        self.for_user(user).into_iter().find(|task| task.id == id)
    }

    /// Returns the tasks whose rows do not hold the final state yet.
    pub(super) fn unstored(&self) -> Vec<Arc<Task>> {
        let kept = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter(|task| *task.row_state.borrow() < RowState::Ended).cloned().collect()
    }

    /// Returns the stored tasks of `user`, the newest first.
    pub(super) fn for_user(&self, user: &UserName) -> Vec<Arc<Task>> {
        let kept = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().filter(|task| task.user == *user).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, bytes: usize) -> Task {
        let message = UserMessage { id: "m".into(), pieces: vec![MessagePart::Text("x".repeat(bytes))] };
        Task::new(id.into(), "c".into(), None, message)
    }

    #[test]
    fn the_oldest_finished_task_makes_room_and_a_running_one_stays() {
        let tasks = Tasks::new(Limits { count: 2, bytes: 100 });
        let a = tasks.insert(task("a", 1)).unwrap();
        let b = tasks.insert(task("b", 1)).unwrap();
        assert!(tasks.insert(task("c", 1)).is_none());
        assert!(b.cancel());
        assert!(tasks.insert(task("c", 1)).is_some());
        assert_eq!(["a", "b", "c"].map(|id| tasks.get(id, &None).is_some()), [true, false, true]);
        assert!(a.cancel());
        assert!(tasks.insert(task("d", 100)).is_some());
        assert_eq!(["a", "c", "d"].map(|id| tasks.get(id, &None).is_some()), [false, true, true]);
    }

    #[test]
    fn a_task_is_its_users_alone() {
        let tasks = Tasks::new(Limits { count: 2, bytes: 100 });
        let alice: UserName = Some("alice".into());
        tasks.insert(Task { user: alice.clone(), ..task("a", 1) }).unwrap();
        assert!(tasks.get("a", &alice).is_some() && tasks.for_user(&alice).len() == 1);
        for other in [None, Some("mallory".into())] {
            assert!(tasks.get("a", &other).is_none() && tasks.for_user(&other).is_empty());
        }
    }

    #[tokio::test]
    async fn a_task_ends_once() {
        let one = task("a", 1);
        one.run(async |tokens| {
            tokens.send("hello".into()).await.map_err(|error| error.to_string())?;
            Ok(None)
        })
        .await;
        let seen = one.watch().borrow().clone();
        assert_eq!((seen.phase, seen.text.as_str()), (TaskPhase::Completed, "hello"));
        assert!(!one.cancel());
        assert_eq!(one.watch().borrow().phase, TaskPhase::Completed);
    }

    #[tokio::test]
    async fn a_canceled_turn_is_dropped_and_keeps_what_it_said() {
        let one = task("a", 1);
        let mut watch = one.watch();
        let turn = async |tokens: mpsc::Sender<TurnEvent>| {
            let _ = tokens.send("half".into()).await;
            std::future::pending().await
        };
        let cancel = async {
            watch.wait_for(|progress| progress.text == "half").await.unwrap();
            assert!(one.cancel());
        };
        futures::join!(one.run(turn), cancel);
        let seen = one.watch().borrow().clone();
        assert_eq!((seen.phase, seen.text.as_str(), seen.error), (TaskPhase::Canceled, "half", None));
    }

    #[tokio::test]
    async fn a_turn_that_panics_fails_its_task() {
        let one = Arc::new(task("a", 1));
        let run = one.clone();
        let joined = tokio::spawn(async move { run.run(async |_| panic!("as the test wants")).await }).await;
        assert!(joined.is_err());
        assert_eq!(one.watch().borrow().phase, TaskPhase::Failed);
    }
}
