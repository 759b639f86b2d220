//! Tasks in PostgreSQL, one row each, visible to all replicas of an agent.
//!
//! Only the replica that runs a task writes its row, except for the `cancel` flag, which a replica sets for its client, and
//! [the end](settled) of a task that waited. The row's `updated_at` is the heartbeat of its replica: a row in phase `working`
//! whose heartbeat is older than [`LOST_AFTER`] belongs to a replica that is gone or cannot reach the database, and is reported as failed. That state
//! is derived on read and never written, so a replica that comes back continues its task.
//!
//! Rows are bounded in number, bytes and age. Ended tasks are deleted oldest first; each replica sweeps after it has
//! stored a twentieth of the maximum number.

mod settled;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use sqlx::{Row, postgres::PgRow};

use super::tasks::{Limits, RowState, Task, TaskPhase, TaskProgress};
use crate::{
    conversations::history::{UserName, owner_column},
    database::{DatabaseError, DatabaseScope},
};

/// Creates the table. `since` is in microseconds since 1970; `message` is JSON in a text column, because `jsonb`
/// rejects U+0000.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS recif_tasks (
    namespace text NOT NULL,
    agent text NOT NULL,
    id text NOT NULL,
    owner text NOT NULL,
    context text NOT NULL,
    message text NOT NULL,
    phase text NOT NULL,
    since bigint NOT NULL,
    text text NOT NULL,
    error text,
    cancel boolean NOT NULL DEFAULT false,
    bytes bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, agent, id)
);";

/// Query that reports whether the table exists.
const TABLE_EXISTS: &str = "SELECT to_regclass('recif_tasks') IS NOT NULL";

/// Age of the last heartbeat after which a working task counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// Error of a lost task.
const LOST_REASON: &str =
    "the replica that ran it has not been heard of for 60 s: it is gone, or cannot reach the database";

/// Columns of every query that reads tasks. `lost` marks an expired heartbeat; `heard` is the last heartbeat in
/// microseconds.
const COLUMNS: &str = "id, context, message, phase, since, text, error, \
     phase = 'working' AND updated_at < now() - make_interval(secs => $3) AS lost, \
     (extract(epoch FROM updated_at) * 1000000)::bigint AS heard";

/// Maximum age of a row in days.
const DAYS: i32 = 7;

/// Maximum bytes of an answer that are written while the task runs. The rest is written when it ends.
const MAX_PARTIAL_TEXT: usize = 64 << 10;

/// Maximum bytes of an answer that are stored.
const MAX_TEXT: usize = 1 << 20;

/// Text appended to a truncated answer.
const CUT: &str = "\n[the rest is not kept]";

/// Summary of a task for lists: phase and time, without message and answer.
#[derive(Debug, Clone)]
pub(super) struct TaskSummary {
    /// Id of the task.
    pub(super) id: String,
    /// Id of its conversation.
    pub(super) context: String,
    /// Phase of the task.
    pub(super) phase: TaskPhase,
    /// Time of its last change of phase.
    pub(super) since: Timestamp,
}

/// Result of a heartbeat for one task of this replica.
pub(super) struct Heartbeat {
    /// Id of the task.
    pub(super) id: String,
    /// Set when a client of another replica asked to cancel it.
    pub(super) cancel: bool,
}

/// Table of the tasks of one agent.
pub(super) struct TaskRows {
    scope: DatabaseScope,
    limits: Limits,
    /// Set once the table is known to exist; cleared when a query reports it missing.
    ready: AtomicBool,
    /// Tasks that this replica has stored since its last sweep.
    stored_since_sweep: AtomicUsize,
}

impl TaskRows {
    /// Creates the table access of the agent at `home`.
    pub(super) fn new(home: DatabaseScope, limits: Limits) -> Self {
        // The first stored task triggers a sweep.
        Self {
            scope: home,
            limits,
            ready: AtomicBool::new(false),
            stored_since_sweep: AtomicUsize::new(usize::MAX / 2),
        }
    }

    /// Upserts the row of `task` and returns the row's state after that. A row whose task has ended is never
    /// overwritten.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn store(&self, task: &Task) -> Result<RowState, DatabaseError> {
        let progress = task.snapshot();
        let message = serde_json::to_string(&task.message).map_err(|error| sqlx::Error::Encode(error.into()))?;
        let (bound, stage) = match progress.phase {
            TaskPhase::Working => (MAX_PARTIAL_TEXT, RowState::Working),
            _ => (MAX_TEXT, RowState::Ended),
        };
        let text = bounded(&progress.text, bound, stage == RowState::Ended);
        let error = progress.error.as_deref().map(clean);
        let bytes = i64::try_from(message.len() + text.len()).unwrap_or(i64::MAX);
        let write = || async {
            let row = sqlx::query(
                "INSERT INTO recif_tasks AS known \
                     (namespace, agent, id, owner, context, message, phase, since, text, error, bytes) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (namespace, agent, id) DO UPDATE \
                 SET phase = excluded.phase, since = excluded.since, text = excluded.text, error = excluded.error, \
                     bytes = excluded.bytes, updated_at = now() \
                 WHERE known.phase = 'working' AND known.owner = excluded.owner",
            );
            let row =
                row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&task.id).bind(owner_column(&task.user));
            let row = row.bind(&task.context).bind(&message).bind(phase_name(progress.phase));
            let row = row.bind(progress.since.as_microsecond()).bind(&text).bind(&error).bind(bytes);
            row.execute(self.scope.database.pool()).await.map(drop)
        };
        self.run_query(write).await?;
        if stage == RowState::Ended {
            self.stored_since_sweep.fetch_add(1, Ordering::Relaxed);
        }
        Ok(stage)
    }

    /// Writes the answer of a working task so far, unless the row already holds as many bytes.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn store_text(&self, task: &Task) -> Result<(), DatabaseError> {
        let text = bounded(&task.snapshot().text, MAX_PARTIAL_TEXT, false);
        let length = text.len();
        if task.written_bytes.load(Ordering::Relaxed) == length {
            return Ok(());
        }
        let write = || async {
            let row = sqlx::query(
                "UPDATE recif_tasks SET text = $4 WHERE namespace = $1 AND agent = $2 AND id = $3 AND phase = 'working'",
            );
            let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&task.id).bind(&text);
            row.execute(self.scope.database.pool()).await.map(drop)
        };
        let written = self.run_query(write).await;
        // A text that was refused would be refused again; the final write brings the whole answer.
        if !matches!(written, Err(DatabaseError::Unreachable(_))) {
            task.written_bytes.store(length, Ordering::Relaxed);
        }
        written
    }

    /// Writes the heartbeat of working tasks and returns their `cancel` flags. A task missing from the result has no
    /// row any more.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn heartbeat(&self, tasks: &[Arc<Task>]) -> Result<Vec<Heartbeat>, DatabaseError> {
        let ids: Vec<String> = tasks.iter().map(|task| task.id.clone()).collect();
        let write = || async {
            let rows = sqlx::query(
                "UPDATE recif_tasks SET updated_at = now() \
                 WHERE namespace = $1 AND agent = $2 AND id = ANY($3) RETURNING id, cancel",
            );
            let rows = rows.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&ids);
            let rows = rows.fetch_all(self.scope.database.pool()).await?;
            rows.iter().map(|row| Ok(Heartbeat { id: row.try_get("id")?, cancel: row.try_get("cancel")? })).collect()
        };
        self.run_query(write).await
    }

    /// Loads the tasks of `user` with these ids, in no particular order. Unreadable rows are left out.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn load(&self, ids: &[String], user: &UserName) -> Result<Vec<Task>, DatabaseError> {
        let read = || async {
            let query = format!(
                "SELECT {COLUMNS} FROM recif_tasks WHERE namespace = $1 AND agent = $2 AND owner = $4 AND id = ANY($5)"
            );
            let rows = sqlx::query(sqlx::AssertSqlSafe(query)).bind(&self.scope.namespace).bind(&self.scope.agent);
            let rows = rows.bind(LOST_AFTER.as_secs_f64()).bind(owner_column(user)).bind(ids);
            rows.fetch_all(self.scope.database.pool()).await
        };
        let rows = self.run_query(read).await?;
        let tasks = rows.iter().map(|row| task(row, user)).collect::<Result<Vec<_>, _>>()?;
        Ok(tasks.into_iter().flatten().collect())
    }

    /// Returns summaries of all tasks of `user`, the newest first, at most [`Limits::count`].
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn summaries(&self, user: &UserName) -> Result<Vec<TaskSummary>, DatabaseError> {
        let read = || async {
            let query = format!(
                "SELECT {COLUMNS} FROM (SELECT id, context, '' AS message, phase, since, '' AS text, error, updated_at \
                     FROM recif_tasks WHERE namespace = $1 AND agent = $2 AND owner = $4) AS heads \
                 ORDER BY since DESC, id LIMIT $5"
            );
            let rows = sqlx::query(sqlx::AssertSqlSafe(query)).bind(&self.scope.namespace).bind(&self.scope.agent);
            let rows = rows.bind(LOST_AFTER.as_secs_f64()).bind(owner_column(user));
            let rows = rows.bind(i64::try_from(self.limits.count).unwrap_or(i64::MAX));
            rows.fetch_all(self.scope.database.pool()).await
        };
        let head = |row: &PgRow| {
            let Some(TaskProgress { phase, since, .. }) = progress(row)? else { return Ok(None) };
            Ok::<_, sqlx::Error>(Some(TaskSummary {
                id: row.try_get("id")?,
                context: row.try_get("context")?,
                phase,
                since,
            }))
        };
        let heads = self.run_query(read).await?.iter().map(head).collect::<Result<Vec<_>, _>>()?;
        Ok(heads.into_iter().flatten().collect())
    }

    /// Reports whether `user` has a task of the conversation `context`.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn has_context(&self, context: &str, user: &UserName) -> Result<bool, DatabaseError> {
        let read = || async {
            let known = sqlx::query_scalar(
                "SELECT EXISTS (SELECT FROM recif_tasks \
                 WHERE namespace = $1 AND agent = $2 AND context = $3 AND owner = $4)",
            );
            let known =
                known.bind(&self.scope.namespace).bind(&self.scope.agent).bind(context).bind(owner_column(user));
            known.fetch_one(self.scope.database.pool()).await
        };
        self.run_query(read).await
    }

    /// Asks the replica that runs a task of `user` to cancel it; returns false when no live replica runs it.
    ///
    /// # Errors
    /// The database did not take it.
    pub(super) async fn request_cancel(&self, id: &str, user: &UserName) -> Result<bool, DatabaseError> {
        let write = || async {
            let asked = sqlx::query(
                "UPDATE recif_tasks SET cancel = true WHERE namespace = $1 AND agent = $2 AND id = $4 AND owner = $5 \
                 AND phase = 'working' AND updated_at >= now() - make_interval(secs => $3)",
            );
            let asked = asked.bind(&self.scope.namespace).bind(&self.scope.agent).bind(LOST_AFTER.as_secs_f64());
            asked.bind(id).bind(owner_column(user)).execute(self.scope.database.pool()).await
        };
        Ok(self.run_query(write).await?.rows_affected() > 0)
    }

    /// Deletes rows over the limits of age, number and bytes, if enough were stored since the last sweep.
    ///
    /// # Errors
    /// The database refused.
    pub(super) async fn sweep(&self) -> Result<(), DatabaseError> {
        if self.stored_since_sweep.load(Ordering::Relaxed) < (self.limits.count / 20).max(1) {
            return Ok(());
        }
        self.stored_since_sweep.store(0, Ordering::Relaxed);
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let delete = || async {
            let old = sqlx::query(
                "DELETE FROM recif_tasks WHERE namespace = $1 AND agent = $2 \
                 AND (phase <> 'working' OR updated_at < now() - make_interval(secs => $3)) \
                 AND (updated_at < now() - make_interval(days => $4) OR id IN ( \
                     SELECT id FROM ( \
                         SELECT id, row_number() OVER newer AS place, sum(bytes) OVER newer AS so_far FROM recif_tasks \
                         WHERE namespace = $1 AND agent = $2 WINDOW newer AS (ORDER BY since DESC, id) \
                     ) AS sums WHERE place > $5 OR so_far > $6))",
            );
            let old = old.bind(&self.scope.namespace).bind(&self.scope.agent).bind(LOST_AFTER.as_secs_f64());
            let old = old.bind(self.scope.days.map_or(DAYS, |days| days.min(DAYS)));
            let old = old.bind(number(self.limits.count)).bind(number(self.limits.bytes));
            old.execute(self.scope.database.pool()).await.map(drop)
        };
        self.run_query(delete).await
    }

    /// Runs `work` with the table created first; creates it again and retries once when `work` reports it missing.
    async fn run_query<T, F>(&self, work: impl Fn() -> F) -> Result<T, DatabaseError>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        let attempt = || async {
            if !self.ready.load(Ordering::Acquire) {
                self.scope.database.make_tables(TABLE_EXISTS, TABLE).await?;
                self.ready.store(true, Ordering::Release);
            }
            work().await
        };
        match self.scope.database.with_deadline(attempt()).await {
            Err(error) if error.is_missing_table() => {
                self.ready.store(false, Ordering::Release);
                self.scope.database.with_deadline(attempt()).await
            }
            result => result,
        }
    }
}

/// Decodes the task in a row; `None` when another version of this runtime wrote something that cannot be read.
fn task(row: &PgRow, user: &UserName) -> Result<Option<Task>, sqlx::Error> {
    let id: String = row.try_get("id")?;
    // The text of the error may quote the message, so it is not logged.
    let (Ok(message), Some(progress)) = (serde_json::from_str(row.try_get("message")?), progress(row)?) else {
        tracing::warn!(task = id, "a task that another version of this runtime wrote cannot be read and is left out");
        return Ok(None);
    };
    Ok(Some(Task::remote(id, row.try_get("context")?, user.clone(), message, progress)))
}

fn progress(row: &PgRow) -> Result<Option<TaskProgress>, sqlx::Error> {
    let Some(phase) = parse_phase(row.try_get("phase")?) else { return Ok(None) };
    let time = |microseconds| Timestamp::from_microsecond(microseconds).unwrap_or_default();
    let (mut since, text) = (time(row.try_get("since")?), row.try_get("text")?);
    if row.try_get("lost")? {
        let heard = time(row.try_get("heard")?);
        since = heard.checked_add(LOST_AFTER).unwrap_or(heard);
        let error = Some(LOST_REASON.into());
        return Ok(Some(TaskProgress { phase: TaskPhase::Failed, since, text, error, approval: None }));
    }
    Ok(Some(TaskProgress { phase, since, text, error: row.try_get("error")?, approval: None }))
}

fn phase_name(phase: TaskPhase) -> &'static str {
    match phase {
        TaskPhase::Working => "working",
        TaskPhase::InputRequired => "input-required",
        TaskPhase::Completed => "completed",
        TaskPhase::Failed => "failed",
        TaskPhase::Canceled => "canceled",
    }
}

fn parse_phase(word: &str) -> Option<TaskPhase> {
    const PHASES: [TaskPhase; 5] =
        [TaskPhase::Working, TaskPhase::InputRequired, TaskPhase::Completed, TaskPhase::Failed, TaskPhase::Canceled];
    PHASES.into_iter().find(|phase| phase_name(*phase) == word)
}

/// Removes U+0000, which PostgreSQL's text type rejects.
fn clean(text: &str) -> String {
    text.replace('\0', "")
}

/// Returns the first `most` bytes of a text, cut at a character boundary; appends [`CUT`] to a truncated one if
/// `whole`.
fn bounded(text: &str, most: usize, whole: bool) -> String {
    let mut kept = clean(&text[..text.floor_char_boundary(most)]);
    if whole && text.len() > most {
        kept.push_str(CUT);
    }
    kept
}

#[cfg(test)]
mod tests;
