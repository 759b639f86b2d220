//! Tasks: turns that a client can look at, follow and cancel while they run, and look at for some time after.
//!
//! They live in this process and are bounded; a finished one goes when its place is needed. What other replicas know of
//! them is in [`rows`](super::rows). A task runs on when the
//! client that started it goes away (specification, section 3.5.2). Whoever watches a task sees its text as far as it
//! has come and is woken when there is more, so that a slow watcher costs nothing and misses nothing.

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

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Tasks.
    pub(super) count: usize,
    /// Bytes of text in all of them; more only while they run.
    pub(super) bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { count: 1000, bytes: 32 << 20 }
    }
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskPhase {
    /// The model answers.
    Working,
    /// The answer is whole.
    Completed,
    /// There will be no answer.
    Failed,
    /// A client did not want it any more.
    Canceled,
}

/// What the row of a task says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowState {
    /// Nothing: there is none.
    Absent,
    /// That it works.
    Working,
    /// How it ended.
    Ended,
    /// Nothing, and never will: the database refuses it.
    Refused,
}

/// What changes while a task runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TaskProgress {
    /// How far it is.
    pub(super) phase: TaskPhase,
    /// Since when.
    pub(super) since: Timestamp,
    /// The answer as far as it has come.
    pub(super) text: String,
    /// Why it failed, for the client.
    pub(super) error: Option<String>,
}

/// A piece of a message.
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

/// What the client said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct UserMessage {
    /// The message's id, given by the client.
    pub(super) id: String,
    /// The message.
    pub(super) pieces: Vec<MessagePart>,
}

/// A turn that can be watched.
#[derive(Debug)]
pub(super) struct Task {
    /// Nobody who was not told it can guess it.
    pub(super) id: String,
    /// The conversation.
    pub(super) context: String,
    /// Who began it; to all others it is not there.
    pub(super) user: UserName,
    /// The message that it answers.
    pub(super) message: UserMessage,
    /// Bytes of the message.
    size: usize,
    progress: watch::Sender<TaskProgress>,
    canceled: CancellationToken,
    /// Whether another replica runs it: then this is what its row said.
    pub(super) is_remote: bool,
    /// What its row says.
    pub(super) row_state: watch::Sender<RowState>,
    /// Bytes of the answer that its row holds while it works.
    pub(super) written_bytes: AtomicUsize,
}

/// The tasks of this process.
pub(super) struct Tasks {
    limits: Limits,
    /// Oldest first.
    tasks: Mutex<VecDeque<Arc<Task>>>,
}

impl Task {
    /// A task that works.
    pub(super) fn new(id: String, context: String, user: UserName, said: UserMessage) -> Self {
        let progress =
            TaskProgress { phase: TaskPhase::Working, since: Timestamp::now(), text: String::new(), error: None };
        let size = said.pieces.iter().map(MessagePart::bytes).sum();
        Self {
            id,
            context,
            user,
            message: said,
            size,
            progress: watch::Sender::new(progress),
            canceled: CancellationToken::new(),
            is_remote: false,
            row_state: watch::Sender::new(RowState::Absent),
            written_bytes: AtomicUsize::new(0),
        }
    }

    /// A task of another replica, as its row has it.
    pub(super) fn remote(
        id: String,
        context: String,
        user: UserName,
        said: UserMessage,
        progress: TaskProgress,
    ) -> Self {
        let progress = watch::Sender::new(progress);
        Self { progress, is_remote: true, ..Self::new(id, context, user, said) }
    }

    /// Sees how far it is and is woken when that changes.
    pub(super) fn watch(&self) -> watch::Receiver<TaskProgress> {
        self.progress.subscribe()
    }

    /// Runs `turn`, which is given where its text goes, until it ends or the task is canceled.
    pub(super) async fn run<F>(&self, turn: impl FnOnce(mpsc::Sender<TurnEvent>) -> F)
    where
        F: Future<Output = Result<(), String>>,
    {
        // A turn that panics ends its task too.
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
            Some(Ok(())) => _ = self.end(TaskPhase::Completed, None),
            Some(Err(error)) => _ = self.end(TaskPhase::Failed, Some(error)),
        }
    }

    /// Stops the turn; false when it has ended already.
    pub(super) fn cancel(&self) -> bool {
        let canceled = self.end(TaskPhase::Canceled, None);
        self.canceled.cancel();
        canceled
    }

    /// How far it is now.
    pub(super) fn snapshot(&self) -> TaskProgress {
        self.progress.borrow().clone()
    }

    /// Goes on as `later` has it; a task that has ended stays as it is.
    pub(super) fn follow(&self, later: &TaskProgress) {
        self.progress.send_if_modified(|progress| {
            let goes_on = progress.phase == TaskPhase::Working && progress != later;
            if goes_on {
                progress.clone_from(later);
            }
            goes_on
        });
    }

    /// Whether it is watched.
    pub(super) fn is_watched(&self) -> bool {
        self.progress.receiver_count() > 0
    }

    /// What its row should say.
    pub(super) fn expected_row_state(&self) -> RowState {
        if self.is_working() { RowState::Working } else { RowState::Ended }
    }

    /// What ends first counts.
    pub(super) fn end(&self, phase: TaskPhase, error: Option<String>) -> bool {
        self.progress.send_if_modified(|progress| {
            let works = progress.phase == TaskPhase::Working;
            if works {
                (progress.phase, progress.since, progress.error) = (phase, Timestamp::now(), error);
            }
            works
        })
    }

    /// Whether it has not ended.
    pub(super) fn is_working(&self) -> bool {
        self.progress.borrow().phase == TaskPhase::Working
    }

    fn bytes(&self) -> usize {
        self.size + self.progress.borrow().text.len()
    }
}

/// Ends a task that nothing else has ended.
struct EndGuard<'a>(&'a Task);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.end(TaskPhase::Failed, Some("the turn was cut off".into()));
    }
}

impl Tasks {
    /// None yet.
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, tasks: Mutex::default() }
    }

    /// Keeps a task, in place of the oldest finished ones where it is too much; none when all of them still run.
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

    /// The task of `user` with that id, if it is still there.
    pub(super) fn get(&self, id: &str, user: &UserName) -> Option<Arc<Task>> {
        self.for_user(user).into_iter().find(|task| task.id == id)
    }

    /// Those whose rows do not say yet how they ended.
    pub(super) fn unstored(&self) -> Vec<Arc<Task>> {
        let kept = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().filter(|task| *task.row_state.borrow() < RowState::Ended).cloned().collect()
    }

    /// The tasks of `user` that are still there, the newest first.
    pub(super) fn for_user(&self, user: &UserName) -> Vec<Arc<Task>> {
        let kept = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().filter(|task| task.user == *user).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, bytes: usize) -> Task {
        let said = UserMessage { id: "m".into(), pieces: vec![MessagePart::Text("x".repeat(bytes))] };
        Task::new(id.into(), "c".into(), None, said)
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
            Ok(())
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
