//! Tasks of the agent: those of this process, and where replicas share a database those of the others.
//!
//! What this process runs or has run is answered from memory, all else from its [row](super::rows). Rows are written beside
//! the turns: when a task begins, each second while it runs, and when it ends. A database that is away fails no turn; what
//! it does not know is written when it is back, as long as this process remembers it.

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
    rows::{Head, Rows},
    rpc::Fault,
    tasks::{Phase, Stored, Task, Tasks},
};
use crate::{
    conversations::history::{ConversationId, User},
    database::DatabaseError,
};

/// How often a task that runs is written, and one that another replica runs is looked at.
const BEAT: Duration = Duration::from_secs(1);

/// How long an answer waits until other replicas know what it says.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a client waits for another replica to cancel a task.
const CANCEL: Duration = Duration::from_secs(5);

/// How many looks at a task of another replica may find no row.
const MISSING: u32 = 5;

/// How many rows are written at a time: conversations use the same connections.
const AT_A_TIME: usize = 3;

/// Why a task is not found where replicas share nothing.
const HELD: &str = "held by another replica or gone: set storage to postgresql";

/// Why a task is not found else.
const GONE: &str = "not found or gone";

/// All tasks of the agent.
pub(super) struct Registry {
    own: Tasks,
    rows: Option<Rows>,
    /// Why a task is not found.
    missing: &'static str,
    /// Whether rows are being written.
    writing: Mutex<bool>,
    /// Something is to be written at once.
    due: Notify,
    /// Whether the database refused the last row.
    away: AtomicBool,
}

impl Registry {
    /// Those in memory, and those in `rows`, if replicas share them; `in_memory`: the agent was asked to keep them there.
    pub(super) fn new(own: Tasks, rows: Option<Rows>, in_memory: bool) -> Self {
        let missing = if in_memory { HELD } else { GONE };
        Self { own, rows, missing, writing: Mutex::new(false), due: Notify::new(), away: AtomicBool::new(false) }
    }

    /// Keeps a task that this process runs; none when too many run. See [`Tasks::keep`].
    pub(super) fn keep(self: &Arc<Self>, task: Task) -> Option<Arc<Task>> {
        let task = self.own.keep(task)?;
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.rows.is_some() && !*writing {
            *writing = true;
            tokio::spawn(self.clone().write());
        }
        Some(task)
    }

    /// The task of `user` with that id.
    ///
    /// # Errors
    /// It is not there, or the others' cannot be looked for.
    pub(super) async fn get(&self, id: &str, user: &User) -> Result<Arc<Task>, Fault> {
        let known = match self.own.get(id, user) {
            Some(task) => Some(task),
            None => self.elsewhere(id, user).await.map_err(away)?.map(Arc::new),
        };
        known.ok_or_else(|| Fault::NoTask { id: id.into(), why: self.missing })
    }

    async fn elsewhere(&self, id: &str, user: &User) -> Result<Option<Task>, DatabaseError> {
        // No other id is ever given to a task.
        let is_ours = ConversationId::parse(id).is_some_and(|id| id.is_ours());
        match &self.rows {
            Some(rows) if is_ours => Ok(rows.of(&[id.to_owned()], user).await?.pop()),
            _ => Ok(None),
        }
    }

    /// All tasks of `user`: those whose state changed last come first.
    ///
    /// # Errors
    /// The others' cannot be looked for.
    pub(super) async fn heads(&self, user: &User) -> Result<Vec<Head>, Fault> {
        let head = |task: &Arc<Task>| {
            let progress = task.watch();
            let progress = progress.borrow();
            let (id, context) = (task.id.clone(), task.context.clone());
            Head { id, context, phase: progress.phase, since: progress.since }
        };
        let mut heads: Vec<_> = self.own.of(user).iter().map(head).collect();
        if let Some(rows) = &self.rows {
            let known: HashSet<_> = heads.iter().map(|head| head.id.clone()).collect();
            let others = rows.heads(user).await.map_err(away)?;
            heads.extend(others.into_iter().filter(|head| !known.contains(&head.id)));
        }
        heads.sort_by_key(|head| std::cmp::Reverse(head.since));
        Ok(heads)
    }

    /// The tasks of `user` that these heads are of, in their order; those that went meanwhile are left out.
    ///
    /// # Errors
    /// The others' cannot be looked for.
    pub(super) async fn of(&self, heads: &[Head], user: &User) -> Result<Vec<Arc<Task>>, Fault> {
        let mut tasks: Vec<_> = heads.iter().filter_map(|head| self.own.get(&head.id, user)).collect();
        let own: HashSet<_> = tasks.iter().map(|task| task.id.clone()).collect();
        let others: Vec<_> = heads.iter().map(|head| head.id.clone()).filter(|id| !own.contains(id)).collect();
        if let (Some(rows), false) = (&self.rows, others.is_empty()) {
            tasks.extend(rows.of(&others, user).await.map_err(away)?.into_iter().map(Arc::new));
        }
        tasks.sort_by_key(|task| heads.iter().position(|head| head.id == task.id));
        Ok(tasks)
    }

    /// Whether `user` has a task of that conversation.
    ///
    /// # Errors
    /// The others' cannot be looked for.
    pub(super) async fn knows(&self, context: &str, user: &User) -> Result<bool, Fault> {
        if self.own.of(user).iter().any(|task| task.context == context) {
            return Ok(true);
        }
        match &self.rows {
            Some(rows) => rows.knows(context, user).await.map_err(away),
            None => Ok(false),
        }
    }

    /// Stops a task: as it is then. One that another replica runs may still work, if that replica has not answered in time.
    ///
    /// # Errors
    /// It has ended already, or its replica cannot be asked.
    pub(super) async fn cancel(&self, task: Arc<Task>) -> Result<Arc<Task>, Fault> {
        let ended = || Fault::NotCancelable(task.id.clone());
        let (Some(rows), true) = (&self.rows, task.elsewhere) else {
            let canceled = task.cancel();
            self.stored(&task, Stored::Ended).await;
            return if canceled { Ok(task) } else { Err(ended()) };
        };
        if !rows.ask_to_cancel(&task.id, &task.user).await.map_err(away)? {
            return Err(ended());
        }
        let until = Instant::now() + CANCEL;
        loop {
            let later = self.get(&task.id, &task.user).await?;
            match later.now().phase {
                Phase::Canceled => return Ok(later),
                Phase::Working if Instant::now() >= until => return Ok(later),
                Phase::Working => sleep(BEAT / 4).await,
                Phase::Completed | Phase::Failed => return Err(ended()),
            }
        }
    }

    /// Has a task that another replica runs go on here as it does there, as long as it is watched.
    pub(super) fn follow(self: &Arc<Self>, task: Arc<Task>) {
        if !task.elsewhere {
            return;
        }
        let registry = self.clone();
        tokio::spawn(async move {
            let mut missing = 0;
            while task.is_working() && task.is_watched() {
                sleep(BEAT).await;
                match registry.elsewhere(&task.id, &task.user).await {
                    Ok(Some(later)) => {
                        missing = 0;
                        task.follow(&later.now());
                    }
                    // Its replica writes a row that went anew.
                    Ok(None) if missing < MISSING => missing += 1,
                    Ok(None) => _ = task.end(Phase::Failed, Some("the task is gone".into())),
                    // It may go on where it runs.
                    Err(error) => tracing::debug!("a task of another replica cannot be followed now: {error}"),
                }
            }
        });
    }

    /// Waits until other replicas know as much of a task of this process, but not for long.
    pub(super) async fn stored(&self, task: &Task, stage: Stored) {
        if self.rows.is_none() || self.away.load(Ordering::Relaxed) {
            return;
        }
        self.due.notify_one();
        let mut stored = task.stored.subscribe();
        let _ = timeout(PATIENCE, stored.wait_for(|stored| *stored >= stage)).await;
    }

    /// Writes rows until those of all tasks of this process say how they ended.
    async fn write(self: Arc<Self>) {
        let Some(rows) = &self.rows else { return };
        let mut beat = Instant::now() + BEAT;
        loop {
            let tasks = {
                let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
                let tasks = self.own.unstored();
                *writing = !tasks.is_empty();
                tasks
            };
            if tasks.is_empty() {
                return;
            }
            let is_time = Instant::now() >= beat;
            let written = write_all(rows, &tasks, is_time).await;
            if is_time {
                beat = Instant::now() + BEAT;
            }
            match (&written, self.away.swap(written.is_err(), Ordering::Relaxed)) {
                (Err(error), false) => tracing::warn!(
                    "A2A tasks cannot be stored now: their turns go on, this replica answers for them from memory, and \
                     others do not see them: {error}"
                ),
                (Ok(()), true) => tracing::info!("A2A tasks are stored again"),
                _ => {}
            }
            match written {
                Ok(()) => tokio::select! { () = sleep_until(beat) => {}, () = self.due.notified() => {} },
                Err(_) => sleep(BEAT).await,
            }
        }
    }
}

/// Writes what the rows of `tasks` do not say yet, and with `beat` that those that run still do.
async fn write_all(rows: &Rows, tasks: &[Arc<Task>], beat: bool) -> Result<(), DatabaseError> {
    let due: Vec<_> = tasks.iter().filter(|task| *task.stored.borrow() < task.stage()).collect();
    let mut refused = Ok(());
    for few in due.chunks(AT_A_TIME) {
        for (task, stored) in few.iter().zip(futures::future::join_all(few.iter().map(|task| rows.store(task))).await) {
            match stored {
                Ok(stage) => _ = task.stored.send_replace(stage),
                // It would be waited for again with each of the others.
                Err(error @ DatabaseError::Away(_)) => return Err(error),
                // A row that is refused once is refused again: the others do not wait for it.
                Err(error) => {
                    task.stored.send_replace(Stored::Refused);
                    refused = Err(error);
                }
            }
        }
    }
    let working: Vec<_> = tasks.iter().filter(|task| *task.stored.borrow() == Stored::Begun).cloned().collect();
    if beat && !working.is_empty() {
        let beats = rows.beat(&working).await?;
        for task in &working {
            match beats.iter().find(|beat| beat.id == task.id) {
                Some(beat) if beat.cancel => _ = task.cancel(),
                Some(_) => {}
                // It was taken for lost and deleted, or the table is new: it is written anew.
                None => _ = task.stored.send_replace(Stored::Not),
            }
        }
        for few in working.chunks(AT_A_TIME) {
            for told in futures::future::join_all(few.iter().map(|task| rows.tell(task))).await {
                match told {
                    Err(error @ DatabaseError::Away(_)) => return Err(error),
                    told => refused = refused.and(told),
                }
            }
        }
    }
    refused?;
    rows.sweep().await
}

fn away(error: DatabaseError) -> Fault {
    Fault::Unavailable(format!("the tasks of other replicas cannot be looked for now, try again: {error}"))
}
