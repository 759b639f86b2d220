//! Tasks in PostgreSQL, where all replicas of an agent see them: a row each.
//!
//! The replica that runs a task is the only one that writes its row, but for the wish of a client that asked another
//! replica to cancel it. A row that says `working` and has not been written for [`LOST`] is of a replica that is gone, or
//! that cannot reach the database: it counts as failed. Nothing writes that down, so a replica that comes back goes on.
//!
//! Rows are bounded in number, bytes and age. The oldest of those that have ended go, a replica looking for them after
//! each twentieth part of their number that it has stored.

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

/// Made if it is missing. `since` is in microseconds since 1970; `message` is JSON, as text for the type `jsonb` takes no
/// U+0000.
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

/// Whether it is there.
const TABLE_EXISTS: &str = "SELECT to_regclass('recif_tasks') IS NOT NULL";

/// A task that works is lost when its row has not been written for so long.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// What is said of it then.
const LOST_REASON: &str =
    "the replica that ran it has not been heard of for 60 s: it is gone, or cannot reach the database";

/// What every query that reads whole tasks reads. `heard` is when the row was written last, in microseconds.
const COLUMNS: &str = "id, context, message, phase, since, text, error, \
     phase = 'working' AND updated_at < now() - make_interval(secs => $3) AS lost, \
     (extract(epoch FROM updated_at) * 1000000)::bigint AS heard";

/// Days that a row is kept at most.
const DAYS: i32 = 7;

/// Bytes of an answer that are written while it comes. The rest comes with its end.
const MAX_PARTIAL_TEXT: usize = 64 << 10;

/// Bytes of an answer that are kept.
const MAX_TEXT: usize = 1 << 20;

/// What stands for the rest.
const CUT: &str = "\n[the rest is not kept]";

/// Where a task is among others, without what was said.
#[derive(Debug, Clone)]
pub(super) struct TaskSummary {
    /// The task.
    pub(super) id: String,
    /// Its conversation.
    pub(super) context: String,
    /// How far it is.
    pub(super) phase: TaskPhase,
    /// Since when.
    pub(super) since: Timestamp,
}

/// What a replica learns of a task that it runs.
pub(super) struct Heartbeat {
    /// The task.
    pub(super) id: String,
    /// Whether a client of another replica wants it canceled.
    pub(super) cancel: bool,
}

/// The tasks of one agent.
pub(super) struct TaskRows {
    scope: DatabaseScope,
    limits: Limits,
    /// Whether the table was there when it was last looked for.
    ready: AtomicBool,
    /// Tasks that this replica has stored since it last looked for those that are too many.
    stored_since_sweep: AtomicUsize,
}

impl TaskRows {
    /// Those of the agent at `home`.
    pub(super) fn new(home: DatabaseScope, limits: Limits) -> Self {
        // The first one that is stored looks for old ones.
        Self {
            scope: home,
            limits,
            ready: AtomicBool::new(false),
            stored_since_sweep: AtomicUsize::new(usize::MAX / 2),
        }
    }

    /// Writes how far `task` is: what the row says then. One that has ended stays ended.
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

    /// Writes the answer of a task that works, as far as it has come, if the row does not hold as much.
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
        let told = self.run_query(write).await;
        // What was refused would be refused again; the end brings the whole.
        if !matches!(told, Err(DatabaseError::Unreachable(_))) {
            task.written_bytes.store(length, Ordering::Relaxed);
        }
        told
    }

    /// Heartbeat of tasks that work. A task that is not among the answers has no row any more.
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

    /// The tasks of `user` with these ids, in no order. What cannot be read is left out.
    ///
    /// # Errors
    /// The database cannot be asked.
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

    /// All tasks of `user`, the newest first; as many as are kept.
    ///
    /// # Errors
    /// The database cannot be asked.
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

    /// Whether `user` has a task of the conversation `context`.
    ///
    /// # Errors
    /// The database cannot be asked.
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

    /// Has the replica that runs a task of `user` cancel it; false when nothing runs it.
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

    /// Deletes what is too old or too much, if enough was stored since that was last looked for.
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

    /// What `work` gives; the table is made before, and again when it is gone.
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

/// The task in a row; none when another version of this runtime wrote what cannot be read.
fn task(row: &PgRow, user: &UserName) -> Result<Option<Task>, sqlx::Error> {
    let id: String = row.try_get("id")?;
    // The text of the error may quote what was said.
    let (Ok(said), Some(progress)) = (serde_json::from_str(row.try_get("message")?), progress(row)?) else {
        tracing::warn!(task = id, "a task that another version of this runtime wrote cannot be read and is left out");
        return Ok(None);
    };
    Ok(Some(Task::remote(id, row.try_get("context")?, user.clone(), said, progress)))
}

fn progress(row: &PgRow) -> Result<Option<TaskProgress>, sqlx::Error> {
    let Some(phase) = parse_phase(row.try_get("phase")?) else { return Ok(None) };
    let time = |microseconds| Timestamp::from_microsecond(microseconds).unwrap_or_default();
    let (mut since, text) = (time(row.try_get("since")?), row.try_get("text")?);
    if row.try_get("lost")? {
        let heard = time(row.try_get("heard")?);
        since = heard.checked_add(LOST_AFTER).unwrap_or(heard);
        return Ok(Some(TaskProgress { phase: TaskPhase::Failed, since, text, error: Some(LOST_REASON.into()) }));
    }
    Ok(Some(TaskProgress { phase, since, text, error: row.try_get("error")? }))
}

fn phase_name(phase: TaskPhase) -> &'static str {
    match phase {
        TaskPhase::Working => "working",
        TaskPhase::Completed => "completed",
        TaskPhase::Failed => "failed",
        TaskPhase::Canceled => "canceled",
    }
}

fn parse_phase(word: &str) -> Option<TaskPhase> {
    [TaskPhase::Working, TaskPhase::Completed, TaskPhase::Failed, TaskPhase::Canceled]
        .into_iter()
        .find(|phase| self::phase_name(*phase) == word)
}

/// No text of PostgreSQL's holds U+0000.
fn clean(text: &str) -> String {
    text.replace('\0', "")
}

/// The first `most` bytes of a text, with a word about the rest where it is `whole`.
fn bounded(text: &str, most: usize, whole: bool) -> String {
    let mut kept = clean(&text[..text.floor_char_boundary(most)]);
    if whole && text.len() > most {
        kept.push_str(CUT);
    }
    kept
}

#[cfg(test)]
mod tests;
