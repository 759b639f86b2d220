//! Parked turns in PostgreSQL, one row each, beside the conversations. All times are the database's.

use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use sqlx::{Row, postgres::PgRow};

use super::{
    rulings::Ruling,
    turn::{CLAIM, Claim, ClaimedTurn, FoundTurn, MOST, MOST_OF_USER, ParkedTurn, Progress, WaitingTurn},
};
use crate::{
    conversations::history::user_of_column,
    database::{DatabaseError, DatabaseScope},
};

/// Creates the table. JSON is in text columns, because `jsonb` rejects U+0000.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS recif_parked (
    namespace text NOT NULL,
    agent text NOT NULL,
    task text NOT NULL,
    owner text NOT NULL,
    turn text NOT NULL,
    needs_caller boolean NOT NULL,
    ruling text,
    progress text NOT NULL DEFAULT '{}',
    claim text NOT NULL DEFAULT '',
    claimed_until timestamptz NOT NULL DEFAULT 'epoch',
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, agent, task)
);";

/// Query that reports whether the table exists.
const TABLE_EXISTS: &str = "SELECT to_regclass('recif_parked') IS NOT NULL";

/// Table of the parked turns of one agent.
pub(crate) struct ParkedRows {
    scope: DatabaseScope,
    /// Set once the table is known to exist; cleared when a query reports it missing.
    ready: AtomicBool,
}

impl ParkedRows {
    /// Creates the table access of the agent at `scope`.
    pub(super) fn new(scope: DatabaseScope) -> Self {
        Self { scope, ready: AtomicBool::new(false) }
    }

    /// Implements [`super::ParkedTurns::park`].
    pub(super) async fn park(
        &self,
        task: &str,
        owner: &str,
        turn: &ParkedTurn,
    ) -> Result<Option<Timestamp>, DatabaseError> {
        let text = json(turn)?;
        let write = || async {
            let row = sqlx::query_scalar::<_, i64>(
                "INSERT INTO recif_parked (namespace, agent, task, owner, turn, needs_caller, expires_at) \
                 SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::boolean, now() + make_interval(secs => $7) \
                 WHERE (SELECT count(*) FROM recif_parked WHERE namespace = $1 AND agent = $2) < $8 \
                     AND (SELECT count(*) FROM recif_parked WHERE namespace = $1 AND agent = $2 AND owner = $4) < $9 \
                 RETURNING (extract(epoch FROM expires_at) * 1000000)::bigint",
            );
            let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(task).bind(owner);
            let row = row.bind(&text).bind(turn.needs_caller).bind(seconds(turn)).bind(MOST).bind(MOST_OF_USER);
            row.fetch_optional(self.scope.database.pool()).await
        };
        Ok(self.run_query(write).await?.map(time))
    }

    /// Implements [`super::ParkedTurns::waiting`].
    pub(super) async fn waiting(&self, owner: &str) -> Result<Vec<WaitingTurn>, DatabaseError> {
        let read = || async {
            let rows = sqlx::query(
                "SELECT task, turn, (extract(epoch FROM expires_at) * 1000000)::bigint AS expires FROM recif_parked \
                 WHERE namespace = $1 AND agent = $2 AND owner = $3 AND ruling IS NULL AND expires_at > now() \
                 ORDER BY expires_at, task",
            );
            let rows = rows.bind(&self.scope.namespace).bind(&self.scope.agent).bind(owner);
            rows.fetch_all(self.scope.database.pool()).await
        };
        let mut found = Vec::new();
        for row in self.run_query(read).await? {
            if let Some(turn) = read_json::<ParkedTurn>(&row, "turn")? {
                found.push(WaitingTurn::new(row.try_get("task")?, &turn, time(row.try_get("expires")?)));
            }
        }
        Ok(found)
    }

    /// Returns a turn of this owner.
    pub(super) async fn find(&self, task: &str, owner: &str) -> Result<Option<FoundTurn>, DatabaseError> {
        let read = || async {
            let row = sqlx::query(
                "SELECT turn, ruling, expires_at <= now() AS expired, \
                     (extract(epoch FROM expires_at) * 1000000)::bigint AS expires FROM recif_parked \
                 WHERE namespace = $1 AND agent = $2 AND task = $3 AND owner = $4",
            );
            let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(task).bind(owner);
            row.fetch_optional(self.scope.database.pool()).await
        };
        let Some(row) = self.run_query(read).await? else { return Ok(None) };
        let Some(turn) = read_json(&row, "turn")? else { return Ok(None) };
        Ok(Some(FoundTurn {
            turn,
            ruling: read_json(&row, "ruling")?,
            is_expired: row.try_get("expired")?,
            expires: time(row.try_get("expires")?),
        }))
    }

    /// Rules on a turn that waits, or that this ruling is known of, and claims it.
    pub(super) async fn rule(
        &self,
        claim: &Claim,
        owner: &str,
        ruling: &Ruling,
    ) -> Result<Option<ClaimedTurn>, DatabaseError> {
        let text = json(ruling)?;
        let write = || async {
            let row = sqlx::query(
                "UPDATE recif_parked SET ruling = $5, claim = $6, claimed_until = now() + make_interval(secs => $7) \
                 WHERE namespace = $1 AND agent = $2 AND task = $3 AND owner = $4 \
                     AND (ruling IS NULL AND expires_at > now() OR ruling = $5 AND claimed_until < now()) \
                 RETURNING task, owner, turn, ruling, progress",
            );
            let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&claim.task).bind(owner);
            let row = row.bind(&text).bind(&claim.token).bind(CLAIM.as_secs_f64());
            row.fetch_optional(self.scope.database.pool()).await
        };
        match self.run_query(write).await? {
            Some(row) => Ok(claimed(&row, &claim.token)?),
            None => Ok(None),
        }
    }

    /// Implements [`super::ParkedTurns::claim_due`].
    pub(super) async fn claim_due(&self, token: &str) -> Result<Option<ClaimedTurn>, DatabaseError> {
        let write = || async {
            let lost = sqlx::query(
                "DELETE FROM recif_parked WHERE namespace = $1 AND agent = $2 AND needs_caller \
                 AND claimed_until < now() AND expires_at <= now()",
            );
            lost.bind(&self.scope.namespace).bind(&self.scope.agent).execute(self.scope.database.pool()).await?;
            let row = sqlx::query(
                "UPDATE recif_parked SET claim = $3, claimed_until = now() + make_interval(secs => $4) \
                 WHERE namespace = $1 AND agent = $2 AND task = ( \
                     SELECT task FROM recif_parked WHERE namespace = $1 AND agent = $2 AND NOT needs_caller \
                     AND claimed_until < now() AND (ruling IS NOT NULL OR expires_at <= now()) \
                     ORDER BY expires_at LIMIT 1 FOR UPDATE SKIP LOCKED) \
                 RETURNING task, owner, turn, ruling, progress",
            );
            let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(token).bind(CLAIM.as_secs_f64());
            row.fetch_optional(self.scope.database.pool()).await
        };
        match self.run_query(write).await? {
            Some(row) => Ok(claimed(&row, token)?),
            None => Ok(None),
        }
    }

    /// Implements [`super::ParkedTurns::renew`].
    pub(super) async fn renew(&self, claim: &Claim) -> Result<bool, DatabaseError> {
        let write = || async {
            let row = sqlx::query(
                "UPDATE recif_parked SET claimed_until = now() + make_interval(secs => $5) \
                 WHERE namespace = $1 AND agent = $2 AND task = $3 AND claim = $4",
            );
            let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&claim.task).bind(&claim.token);
            row.bind(CLAIM.as_secs_f64()).execute(self.scope.database.pool()).await
        };
        Ok(self.run_query(write).await?.rows_affected() > 0)
    }

    /// Implements [`super::ParkedTurns::record`].
    pub(super) async fn record(&self, claim: &Claim, progress: &Progress) -> Result<bool, DatabaseError> {
        let text = json(progress)?;
        let write = || async {
            let row = sqlx::query(
                "UPDATE recif_parked SET progress = $5 \
                 WHERE namespace = $1 AND agent = $2 AND task = $3 AND claim = $4",
            );
            let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&claim.task).bind(&claim.token);
            row.bind(&text).execute(self.scope.database.pool()).await
        };
        Ok(self.run_query(write).await?.rows_affected() > 0)
    }

    /// Implements [`super::ParkedTurns::park_again`].
    pub(super) async fn park_again(
        &self,
        claim: &Claim,
        task: &str,
        turn: &ParkedTurn,
    ) -> Result<Option<Timestamp>, DatabaseError> {
        let text = json(turn)?;
        let write = || async {
            let row = sqlx::query_scalar::<_, i64>(
                "UPDATE recif_parked SET task = $8, turn = $5, needs_caller = $6, \
                     expires_at = now() + make_interval(secs => $7), \
                     ruling = NULL, progress = '{}', claim = '', claimed_until = 'epoch' \
                 WHERE namespace = $1 AND agent = $2 AND task = $3 AND claim = $4 \
                 RETURNING (extract(epoch FROM expires_at) * 1000000)::bigint",
            );
            let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&claim.task).bind(&claim.token);
            let row = row.bind(&text).bind(turn.needs_caller).bind(seconds(turn)).bind(task);
            row.fetch_optional(self.scope.database.pool()).await
        };
        Ok(self.run_query(write).await?.map(time))
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

/// Decodes a row that was claimed; `None` when another version of this runtime wrote something that cannot be read.
fn claimed(row: &PgRow, token: &str) -> Result<Option<ClaimedTurn>, sqlx::Error> {
    let claim = Claim { task: row.try_get("task")?, token: token.to_owned() };
    let (turn, progress) = (read_json(row, "turn")?, read_json(row, "progress")?);
    let (Some(turn), Some(progress)) = (turn, progress) else { return Ok(None) };
    let owner = user_of_column(row.try_get("owner")?);
    Ok(Some(ClaimedTurn { claim, owner, turn, ruling: read_json(row, "ruling")?, progress }))
}

/// Parses the JSON in a column; `None` without a text, and for one that another version of this runtime wrote and cannot be read.
fn read_json<T: serde::de::DeserializeOwned>(row: &PgRow, column: &str) -> Result<Option<T>, sqlx::Error> {
    let Some(text) = row.try_get::<Option<&str>, _>(column)? else { return Ok(None) };
    let read = serde_json::from_str(text);
    if read.is_err() {
        // The text of the error may quote the turn, so it is not logged.
        tracing::warn!(column, "a parked turn that another version of this runtime wrote cannot be read");
    }
    Ok(read.ok())
}

fn json(value: &impl serde::Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

fn seconds(turn: &ParkedTurn) -> f64 {
    std::time::Duration::from_secs(turn.patience).as_secs_f64()
}

fn time(microseconds: i64) -> Timestamp {
    Timestamp::from_microsecond(microseconds).unwrap_or_default()
}
