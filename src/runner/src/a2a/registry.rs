//! Task registry of the agent: the tasks of this process and, where replicas share a database, those of the other
//! replicas.
//!
//! A task that this process runs or has run is answered from memory, any other from its [row](super::rows), as is one that
//! [waited](super::waiting), whose end any replica may have written. Rows are written behind the turns (write-behind): when a task
//! starts, every second while it runs, and when it ends. A database that is unreachable fails no turn; the missing rows are written
//! once it is back, as long as this process still holds the tasks.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    rows::{TaskRows, TaskSummary},
    rpc::RpcError,
    tasks::{RowState, Task, TaskPhase, TaskProgress, Tasks},
};
use crate::{
    conversations::history::{ConversationId, UserName},
    database::DatabaseError,
};

/// Interval at which the rows of running tasks are refreshed and a followed task of another replica is polled.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Longest wait of a response for its task's row to be written, so that other replicas can see it.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait for another replica to cancel a task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Consecutive polls of a followed task that may find no row before it counts as gone.
const MAX_MISSING_READS: u32 = 5;

/// Rows that are written concurrently; conversations use the same connection pool.
const WRITE_BATCH: usize = 3;

/// Reason given for an unknown task where replicas share nothing.
const HELD_ELSEWHERE: &str = "held by another replica or gone: set storage to postgresql";

/// Reason given for an unknown task otherwise.
const NOT_FOUND: &str = "not found or gone";

/// All tasks of the agent. Invariant: while a local task has a row to write, [`Self::write_loop`] runs, exactly one at
/// a time; `writing` says so.
pub(super) struct TaskRegistry {
    local: Tasks,
    rows: Option<TaskRows>,
    /// Reason given for an unknown task.
    not_found_reason: &'static str,
    /// Set while the write loop runs.
    writing: Mutex<bool>,
    /// Wakes the write loop before its next heartbeat.
    due: Notify,
    /// Set when the last write failed: responses then do not wait for rows.
    is_degraded: AtomicBool,
}

impl TaskRegistry {
    /// Creates a registry of the local tasks and, if replicas share them, those in `rows`. `in_memory`: storage is
    /// configured as memory, so other replicas may hold tasks that this one cannot see.
    pub(super) fn new(own: Tasks, rows: Option<TaskRows>, in_memory: bool) -> Self {
        let missing = if in_memory { HELD_ELSEWHERE } else { NOT_FOUND };
        Self {
            local: own,
            rows,
            not_found_reason: missing,
            writing: Mutex::new(false),
            due: Notify::new(),
            is_degraded: AtomicBool::new(false),
        }
    }

    /// Adds a task that this process runs and starts the write loop; `None` when too many tasks run. See
    /// [`Tasks::insert`].
    pub(super) fn insert(self: &Arc<Self>, task: Task) -> Option<Arc<Task>> {
        let task = self.local.insert(task)?;
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.rows.is_some() && !*writing {
            *writing = true;
            tokio::spawn(self.clone().write_loop());
        }
        Some(task)
    }

    /// Returns the task of `user` with that id.
    ///
    /// # Errors
    /// It does not exist, or the tasks of other replicas cannot be queried.
    pub(super) async fn get(&self, id: &str, user: &UserName) -> Result<Arc<Task>, RpcError> {
        let known = match self.local.get(id, user) {
            Some(task) if !self.is_told_by_row(&task) => Some(task),
            local => self.find_remote(id, user).await.map_err(unavailable)?.map(Arc::new).or(local),
        };
        known.ok_or_else(|| RpcError::NoTask { id: id.into(), why: self.not_found_reason })
    }

    /// Reports whether the row of a local task knows more: one that waited, whose end any replica may have written.
    fn is_told_by_row(&self, task: &Task) -> bool {
        self.rows.is_some() && task.phase() == TaskPhase::InputRequired
    }

    async fn find_remote(&self, id: &str, user: &UserName) -> Result<Option<Task>, DatabaseError> {
        // Tasks have only generated ids, so no other id needs a query.
        let is_ours = ConversationId::parse(id).is_some_and(|id| id.is_generated());
        match &self.rows {
            Some(rows) if is_ours => Ok(rows.load(&[id.to_owned()], user).await?.pop()),
            _ => Ok(None),
        }
    }

    /// Returns all tasks of `user`, the most recently changed first.
    ///
    /// # Errors
    /// The tasks of other replicas cannot be queried.
    pub(super) async fn summaries(&self, user: &UserName) -> Result<Vec<TaskSummary>, RpcError> {
        let head = |task: &Arc<Task>| {
            let progress = task.watch();
            let progress = progress.borrow();
            let (id, context) = (task.id.clone(), task.context.clone());
            TaskSummary { id, context, phase: progress.phase, since: progress.since }
        };
        let mut heads: Vec<_> = self.local.for_user(user).iter().map(head).collect();
        if let Some(rows) = &self.rows {
            let others = rows.summaries(user).await.map_err(unavailable)?;
            let is_told = |head: &TaskSummary| {
                head.phase == TaskPhase::InputRequired && others.iter().any(|other| other.id == head.id)
            };
            heads.retain(|head| !is_told(head));
            let known: HashSet<_> = heads.iter().map(|head| head.id.clone()).collect();
            heads.extend(others.into_iter().filter(|head| !known.contains(&head.id)));
        }
        heads.sort_by_key(|head| std::cmp::Reverse(head.since));
        Ok(heads)
    }

    /// Loads the tasks of `user` named by `heads`, in that order; tasks deleted meanwhile are left out.
    ///
    /// # Errors
    /// The tasks of other replicas cannot be queried.
    pub(super) async fn load(&self, heads: &[TaskSummary], user: &UserName) -> Result<Vec<Arc<Task>>, RpcError> {
        let local = heads.iter().filter_map(|head| self.local.get(&head.id, user));
        let (waited, mut tasks): (Vec<_>, Vec<_>) = local.partition(|task| self.is_told_by_row(task));
        let own: HashSet<_> = tasks.iter().map(|task| task.id.clone()).collect();
        let others: Vec<_> = heads.iter().map(|head| head.id.clone()).filter(|id| !own.contains(id)).collect();
        if let (Some(rows), false) = (&self.rows, others.is_empty()) {
            tasks.extend(rows.load(&others, user).await.map_err(unavailable)?.into_iter().map(Arc::new));
        }
        for task in waited {
            // Its row may not be written yet.
            if tasks.iter().all(|known| known.id != task.id) {
                tasks.push(task);
            }
        }
        tasks.sort_by_key(|task| heads.iter().position(|head| head.id == task.id));
        Ok(tasks)
    }

    /// Returns the tasks of `user` in that conversation that waited, and whose end is not known yet.
    ///
    /// # Errors
    /// The tasks of other replicas cannot be queried.
    pub(super) async fn waited(&self, context: &str, user: &UserName) -> Result<Vec<Arc<Task>>, RpcError> {
        let mut heads = self.summaries(user).await?;
        heads.retain(|head| head.phase == TaskPhase::InputRequired && head.context == context);
        self.load(&heads, user).await
    }

    /// Stores the end of a task that waited; the first end wins.
    pub(super) async fn settle(&self, task: &Task, end: &TaskProgress) {
        task.follow(end);
        if let Some(rows) = &self.rows
            && let Err(error) = rows.settle(&task.id, &task.user, end).await
        {
            tracing::debug!("the end of a task that waited is not stored: the next look finds it again: {error}");
        }
    }

    /// Reports whether `user` has a task of that conversation.
    ///
    /// # Errors
    /// The tasks of other replicas cannot be queried.
    pub(super) async fn has_context(&self, context: &str, user: &UserName) -> Result<bool, RpcError> {
        if self.local.for_user(user).iter().any(|task| task.context == context) {
            return Ok(true);
        }
        match &self.rows {
            Some(rows) => rows.has_context(context, user).await.map_err(unavailable),
            None => Ok(false),
        }
    }

    /// Cancels a task and returns its state after that. A task of another replica may still be working if that replica
    /// has not reacted within [`CANCEL_TIMEOUT`].
    ///
    /// # Errors
    /// It has ended already, or its replica cannot be reached through the database.
    pub(super) async fn cancel(&self, task: Arc<Task>) -> Result<Arc<Task>, RpcError> {
        let ended = || RpcError::NotCancelable(task.id.clone());
        let (Some(rows), true) = (&self.rows, task.is_remote) else {
            let canceled = task.cancel();
            self.wait_stored(&task, RowState::Ended).await;
            return if canceled { Ok(task) } else { Err(ended()) };
        };
        if !rows.request_cancel(&task.id, &task.user).await.map_err(unavailable)? {
            return Err(ended());
        }
        let until = Instant::now() + CANCEL_TIMEOUT;
        loop {
            let later = self.get(&task.id, &task.user).await?;
            match later.snapshot().phase {
                TaskPhase::Canceled => return Ok(later),
                TaskPhase::Working if Instant::now() >= until => return Ok(later),
                TaskPhase::Working => sleep(HEARTBEAT / 4).await,
                TaskPhase::InputRequired | TaskPhase::Completed | TaskPhase::Failed => return Err(ended()),
            }
        }
    }

    /// Follows a task of another replica: polls its row and copies the progress, until it ends or has no watcher.
    pub(super) fn follow(self: &Arc<Self>, task: Arc<Task>) {
        if !task.is_remote {
            return;
        }
        let registry = self.clone();
        tokio::spawn(async move {
            let mut missing = 0;
            while task.is_working() && task.is_watched() {
                sleep(HEARTBEAT).await;
                match registry.find_remote(&task.id, &task.user).await {
                    Ok(Some(later)) => {
                        missing = 0;
                        task.follow(&later.snapshot());
                    }
                    // Its replica writes a deleted row again at its next heartbeat.
                    Ok(None) if missing < MAX_MISSING_READS => missing += 1,
                    Ok(None) => _ = task.end(TaskPhase::Failed, Some("the task is gone".into())),
                    // The task may still run on its replica.
                    Err(error) => tracing::debug!("a task of another replica cannot be followed now: {error}"),
                }
            }
        });
    }

    /// Waits until the task's row has reached `stage`, so that other replicas see it; at most [`STORE_TIMEOUT`].
    pub(super) async fn wait_stored(&self, task: &Task, stage: RowState) {
        if self.rows.is_none() || self.is_degraded.load(Ordering::Relaxed) {
            return;
        }
        self.due.notify_one();
        let mut stored = task.row_state.subscribe();
        let _ = timeout(STORE_TIMEOUT, stored.wait_for(|stored| *stored >= stage)).await;
    }

    /// Writes rows until those of all local tasks hold their final state.
    async fn write_loop(self: Arc<Self>) {
        let Some(rows) = &self.rows else { return };
        let mut beat = Instant::now() + HEARTBEAT;
        loop {
            let tasks = {
                let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
                let tasks = self.local.unstored();
                *writing = !tasks.is_empty();
                tasks
            };
            if tasks.is_empty() {
                return;
            }
            let is_time = Instant::now() >= beat;
            let written = write_all(rows, &tasks, is_time).await;
            if is_time {
                beat = Instant::now() + HEARTBEAT;
            }
            match (&written, self.is_degraded.swap(written.is_err(), Ordering::Relaxed)) {
                (Err(error), false) => tracing::warn!(
                    "A2A tasks cannot be stored now: their turns continue, this replica answers for them from memory, and \
                     others do not see them: {error}"
                ),
                (Ok(()), true) => tracing::info!("A2A tasks are stored again"),
                _ => {}
            }
            match written {
                Ok(()) => tokio::select! { () = sleep_until(beat) => {}, () = self.due.notified() => {} },
                Err(_) => sleep(HEARTBEAT).await,
            }
        }
    }
}

/// Writes the rows of `tasks` that lag behind; with `beat` also the heartbeat and the text of the running ones.
async fn write_all(rows: &TaskRows, tasks: &[Arc<Task>], beat: bool) -> Result<(), DatabaseError> {
    let due: Vec<_> = tasks.iter().filter(|task| *task.row_state.borrow() < task.expected_row_state()).collect();
    let mut refused = Ok(());
    for few in due.chunks(WRITE_BATCH) {
        for (task, stored) in few.iter().zip(futures::future::join_all(few.iter().map(|task| rows.store(task))).await) {
            match stored {
                Ok(stage) => _ = task.row_state.send_replace(stage),
                // Each of the other rows would wait for the same timeout.
                Err(error @ DatabaseError::Unreachable(_)) => return Err(error),
                // A row that is refused once is refused again: the others are written without it.
                Err(error) => {
                    task.row_state.send_replace(RowState::Refused);
                    refused = Err(error);
                }
            }
        }
    }
    let working: Vec<_> = tasks.iter().filter(|task| *task.row_state.borrow() == RowState::Working).cloned().collect();
    if beat && !working.is_empty() {
        let beats = rows.heartbeat(&working).await?;
        for task in &working {
            match beats.iter().find(|beat| beat.id == task.id) {
                Some(beat) if beat.cancel => _ = task.cancel(),
                Some(_) => {}
                // The row was deleted as lost, or the table was recreated: it is inserted again.
                None => _ = task.row_state.send_replace(RowState::Absent),
            }
        }
        for few in working.chunks(WRITE_BATCH) {
            for stored in futures::future::join_all(few.iter().map(|task| rows.store_text(task))).await {
                match stored {
                    Err(error @ DatabaseError::Unreachable(_)) => return Err(error),
                    stored => refused = refused.and(stored),
                }
            }
        }
    }
    refused?;
    rows.sweep().await
}

fn unavailable(error: DatabaseError) -> RpcError {
    RpcError::Unavailable(format!("the tasks of other replicas cannot be looked for now, try again: {error}"))
}
