//! Parked turns in PostgreSQL, one row each, beside the conversations. All times are the database's.
//!
//! Only what parks a turn makes the table: where it is missing, nothing waits.

use std::sync::atomic::{AtomicBool, Ordering};

use crds::pending_calls::PendingCalls;
use sqlx::{Row, postgres::PgRow};

use super::{
    columns::{calls_column, json, read_calls, read_json, seconds, time},
    rulings::Ruling,
    turn::{
        CALLER_WAIT, CLAIM, Claim, ClaimedTurn, FoundTurn, MOST, MOST_OF_USER, ParkResult, ParkedTurn, Progress,
        WaitingTurn,
    },
};
use crate::{
    conversations::history::{ConversationId, user_of_column},
    database::{DatabaseError, DatabaseScope},
};

/// Creates the table. JSON is in text columns, because `jsonb` rejects U+0000. `calls` and `conversation` are in `turn` too: what waits
/// is listed without reading whole turns.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS recif_parked (
    namespace text NOT NULL,
    agent text NOT NULL,
    task text NOT NULL,
    owner text NOT NULL,
    conversation text NOT NULL,
    calls text NOT NULL,
    turn text NOT NULL,
    needs_caller boolean NOT NULL,
    ruling text,
    progress text NOT NULL DEFAULT '{}',
    attempts bigint NOT NULL DEFAULT 0,
    claim text NOT NULL DEFAULT '',
    claimed_until timestamptz NOT NULL DEFAULT 'epoch',
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, agent, task)
);";

/// Query that reports whether the table exists.
const TABLE_EXISTS: &str = "SELECT to_regclass('recif_parked') IS NOT NULL";

/// Most rows of another version that one look for due turns passes over.
const MOST_UNREADABLE: usize = 8;

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

    /// Implements [`super::ParkedTurns::check`].
    pub(super) async fn check(&self) -> Result<(), DatabaseError> {
        if self.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        self.scope.database.with_deadline(self.scope.database.make_tables(TABLE_EXISTS, TABLE)).await?;
        self.ready.store(true, Ordering::Release);
        Ok(())
    }

    /// Implements [`super::ParkedTurns::park`].
    pub(super) async fn park(&self, task: &str, owner: &str, turn: &ParkedTurn) -> Result<ParkResult, DatabaseError> {
        let (calls, text) = (calls_column(turn)?, json(turn)?);
        let row = sqlx::query_scalar::<_, i64>(
            "INSERT INTO recif_parked (namespace, agent, task, owner, conversation, calls, turn, needs_caller, expires_at) \
             SELECT $1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text, $8::boolean, \
                 now() + make_interval(secs => $9) \
             WHERE (SELECT count(*) FROM recif_parked WHERE namespace = $1 AND agent = $2) < $10 \
                 AND (SELECT count(*) FROM recif_parked WHERE namespace = $1 AND agent = $2 AND owner = $4) < $11 \
             RETURNING (extract(epoch FROM expires_at) * 1000000)::bigint",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(task).bind(owner);
        let row = row.bind(turn.conversation.as_str()).bind(&calls).bind(&text).bind(turn.needs_caller);
        let row = row.bind(seconds(turn)).bind(MOST).bind(MOST_OF_USER);
        self.check().await?;
        let expires = self.run(row.fetch_optional(self.scope.database.pool())).await?;
        Ok(expires.map_or(ParkResult::Full, |expires| ParkResult::Parked(time(expires))))
    }

    /// Implements [`super::ParkedTurns::pending`].
    pub(super) async fn pending(&self) -> Result<PendingCalls, DatabaseError> {
        if !self.is_there().await? {
            // The clock of this process may be ahead of the database's, and hide the count after the first call.
            let now = sqlx::query_scalar::<_, i64>("SELECT (extract(epoch FROM now()) * 1000)::bigint");
            let at = self.run(now.fetch_one(self.scope.database.pool())).await?;
            return Ok(PendingCalls { at, ..PendingCalls::default() });
        }
        let row = sqlx::query(
            "SELECT (extract(epoch FROM now()) * 1000)::bigint AS counted, \
                 coalesce(sum(json_array_length(calls::json)), 0)::bigint AS calls, \
                 coalesce(floor(extract(epoch FROM min(created_at))), 0)::bigint AS since, \
                 coalesce(ceil(extract(epoch FROM max(expires_at))), 0)::bigint AS until FROM recif_parked \
             WHERE namespace = $1 AND agent = $2 AND ruling IS NULL AND expires_at > now()",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent);
        let row = self.run(row.fetch_one(self.scope.database.pool())).await?;
        let (at, calls): (i64, i64) = (row.try_get("counted")?, row.try_get("calls")?);
        Ok(PendingCalls { at, calls: calls.unsigned_abs(), since: row.try_get("since")?, until: row.try_get("until")? })
    }

    /// Implements [`super::ParkedTurns::waiting`] for the turns whose ids begin so, of this owner or of all.
    pub(super) async fn waiting(&self, owner: Option<&str>, begin: &str) -> Result<Vec<WaitingTurn>, DatabaseError> {
        let rows = sqlx::query(
            "SELECT task, owner, conversation, calls, ruling IS NOT NULL AS decided, \
                 (extract(epoch FROM expires_at) * 1000000)::bigint AS expires FROM recif_parked \
             WHERE namespace = $1 AND agent = $2 AND ($3::text IS NULL OR owner = $3) \
                 AND (ruling IS NOT NULL OR expires_at > now()) AND starts_with(task, $4) \
             ORDER BY $3::text IS NULL AND ruling IS NOT NULL, expires_at, task LIMIT $5",
        );
        let rows = rows.bind(&self.scope.namespace).bind(&self.scope.agent).bind(owner).bind(begin).bind(MOST_OF_USER);
        if !self.is_there().await? {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for row in self.run(rows.fetch_all(self.scope.database.pool())).await? {
            let conversation = ConversationId::parse(row.try_get("conversation")?);
            if let (Some((by, calls)), Some(conversation)) = (read_calls(&row)?, conversation) {
                let (task, owner) = (row.try_get("task")?, row.try_get("owner")?);
                let (decided, expires) = (row.try_get("decided")?, time(row.try_get("expires")?));
                found.push(WaitingTurn::new(task, owner, conversation, decided, &calls, by, expires));
            }
        }
        Ok(found)
    }

    /// Implements [`super::ParkedTurns::is_open`].
    pub(super) async fn is_open(&self, conversation: &ConversationId, owner: &str) -> Result<bool, DatabaseError> {
        let row = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM recif_parked \
             WHERE namespace = $1 AND agent = $2 AND owner = $3 AND conversation = $4)",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(owner).bind(conversation.as_str());
        Ok(self.is_there().await? && self.run(row.fetch_one(self.scope.database.pool())).await?)
    }

    /// Implements [`super::ParkedTurns::is_open_for`].
    pub(super) async fn is_open_for(&self, a2a_task: &str, owner: &str) -> Result<bool, DatabaseError> {
        let row = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM recif_parked \
             WHERE namespace = $1 AND agent = $2 AND owner = $3 AND starts_with(task, $4))",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(owner).bind(format!("{a2a_task}."));
        Ok(self.is_there().await? && self.run(row.fetch_one(self.scope.database.pool())).await?)
    }

    /// Implements [`super::ParkedTurns::withdraw`].
    pub(super) async fn withdraw(&self, a2a_task: &str, owner: &str) -> Result<bool, DatabaseError> {
        let row = sqlx::query(
            "DELETE FROM recif_parked WHERE namespace = $1 AND agent = $2 AND owner = $3 AND starts_with(task, $4) \
             AND ruling IS NULL AND claimed_until < now()",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(owner).bind(format!("{a2a_task}."));
        Ok(self.is_there().await? && self.run(row.execute(self.scope.database.pool())).await?.rows_affected() > 0)
    }

    /// Returns what is known of a turn of any owner.
    pub(super) async fn find(&self, task: &str) -> Result<Option<FoundTurn>, DatabaseError> {
        let row = sqlx::query(
            "SELECT owner, conversation, calls, turn, ruling, expires_at <= now() AS expired, \
                 (extract(epoch FROM expires_at) * 1000000)::bigint AS expires FROM recif_parked \
             WHERE namespace = $1 AND agent = $2 AND task = $3",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(task);
        if !self.is_there().await? {
            return Ok(None);
        }
        let Some(row) = self.run(row.fetch_optional(self.scope.database.pool())).await? else { return Ok(None) };
        let (calls, conversation) = (read_calls(&row)?, ConversationId::parse(row.try_get("conversation")?));
        let (Some((by, calls)), Some(conversation)) = (calls, conversation) else { return Ok(None) };
        let ruling: Option<Ruling> = read_json(&row, "ruling")?;
        let is_readable = ruling.is_some() || row.try_get::<Option<&str>, _>("ruling")?.is_none();
        let turn: Option<ParkedTurn> = read_json(&row, "turn")?;
        Ok(Some(FoundTurn {
            owner: row.try_get("owner")?,
            conversation,
            calls,
            by,
            needs_caller: turn.as_ref().is_some_and(|turn| turn.needs_caller),
            round: turn.as_ref().map_or(0, |turn| turn.round),
            forwarded: turn.filter(|_| is_readable).map(|turn| turn.forwarded),
            ruling,
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
        let row = sqlx::query(
            "UPDATE recif_parked SET ruling = $5, claim = $6, claimed_until = now() + make_interval(secs => $7), \
                 attempts = attempts + 1 \
             WHERE namespace = $1 AND agent = $2 AND task = $3 AND owner = $4 \
                 AND (ruling IS NULL AND expires_at > now() OR ruling = $5 AND claimed_until < now()) \
             RETURNING task, owner, turn, ruling, progress, attempts",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&claim.task).bind(owner);
        let row = row.bind(&text).bind(&claim.token).bind(CLAIM.as_secs_f64());
        let Some(row) = self.run(row.fetch_optional(self.scope.database.pool())).await? else { return Ok(None) };
        let claimed = claimed(&row, &claim.token, false)?;
        if claimed.is_none() {
            self.release(claim).await?;
        }
        Ok(claimed)
    }

    /// Rules on a turn that waits, without a claim on it; false where it does not wait any more.
    pub(super) async fn keep_ruling(&self, task: &str, ruling: &Ruling) -> Result<bool, DatabaseError> {
        let text = json(ruling)?;
        let row = sqlx::query(
            "UPDATE recif_parked SET ruling = $4 WHERE namespace = $1 AND agent = $2 AND task = $3 \
             AND ruling IS NULL AND expires_at > now()",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(task).bind(&text);
        Ok(self.run(row.execute(self.scope.database.pool())).await?.rows_affected() > 0)
    }

    /// Implements [`super::ParkedTurns::claim_due`]. A row that cannot be read is given back to a process that can.
    pub(super) async fn claim_due(&self, token: &str) -> Result<Option<ClaimedTurn>, DatabaseError> {
        if !self.is_there().await? {
            return Ok(None);
        }
        for _ in 0..MOST_UNREADABLE {
            let row = sqlx::query(
                "UPDATE recif_parked SET claim = $3, claimed_until = now() + make_interval(secs => $4), \
                     attempts = attempts + 1 \
                 WHERE namespace = $1 AND agent = $2 AND task = ( \
                     SELECT task FROM recif_parked WHERE namespace = $1 AND agent = $2 AND claimed_until < now() \
                     AND (ruling IS NULL AND expires_at <= now() OR ruling IS NOT NULL AND ( \
                         NOT needs_caller OR expires_at <= now() - make_interval(secs => $5))) \
                     ORDER BY claimed_until, expires_at LIMIT 1 FOR UPDATE SKIP LOCKED) \
                 RETURNING task, owner, turn, ruling, progress, attempts",
            );
            let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(token);
            let row = row.bind(CLAIM.as_secs_f64()).bind(CALLER_WAIT.as_secs_f64());
            let Some(row) = self.run(row.fetch_optional(self.scope.database.pool())).await? else { return Ok(None) };
            if let Some(claimed) = claimed(&row, token, true)? {
                return Ok(Some(claimed));
            }
            self.release(&Claim { task: row.try_get("task")?, token: token.to_owned() }).await?;
        }
        Ok(None)
    }

    /// Implements [`super::ParkedTurns::forget_old`].
    pub(super) async fn forget_old(&self) -> Result<(), DatabaseError> {
        let Some(days) = self.scope.days else { return Ok(()) };
        if !self.is_there().await? {
            return Ok(());
        }
        let old = sqlx::query(
            "DELETE FROM recif_parked WHERE namespace = $1 AND agent = $2 AND claimed_until < now() \
             AND expires_at < now() - make_interval(days => $3)",
        );
        let old = old.bind(&self.scope.namespace).bind(&self.scope.agent).bind(days);
        let gone = self.run(old.execute(self.scope.database.pool())).await?.rows_affected();
        if gone > 0 {
            tracing::info!(turns = gone, days, "deleted turns that expired and could not be ended");
        }
        Ok(())
    }

    /// Implements [`super::ParkedTurns::renew`].
    pub(super) async fn renew(&self, claim: &Claim) -> Result<bool, DatabaseError> {
        let row = sqlx::query(
            "UPDATE recif_parked SET claimed_until = now() + make_interval(secs => $5) \
             WHERE namespace = $1 AND agent = $2 AND task = $3 AND claim = $4",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&claim.task).bind(&claim.token);
        let row = row.bind(CLAIM.as_secs_f64());
        Ok(self.run(row.execute(self.scope.database.pool())).await?.rows_affected() > 0)
    }

    /// Implements [`super::ParkedTurns::record`].
    pub(super) async fn record(&self, claim: &Claim, progress: &Progress) -> Result<bool, DatabaseError> {
        let text = json(progress)?;
        let row = sqlx::query(
            "UPDATE recif_parked SET progress = $5 WHERE namespace = $1 AND agent = $2 AND task = $3 AND claim = $4",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&claim.task).bind(&claim.token);
        let row = row.bind(&text);
        Ok(self.run(row.execute(self.scope.database.pool())).await?.rows_affected() > 0)
    }

    /// Implements [`super::ParkedTurns::release`].
    pub(super) async fn release(&self, claim: &Claim) -> Result<(), DatabaseError> {
        let row = sqlx::query(
            "UPDATE recif_parked SET claim = '', claimed_until = now(), attempts = attempts - 1 \
             WHERE namespace = $1 AND agent = $2 AND task = $3 AND claim = $4",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&claim.task).bind(&claim.token);
        self.run(row.execute(self.scope.database.pool())).await.map(drop)
    }

    /// Implements [`super::ParkedTurns::forget`].
    pub(super) async fn forget(&self, claim: &Claim) -> Result<bool, DatabaseError> {
        let row =
            sqlx::query("DELETE FROM recif_parked WHERE namespace = $1 AND agent = $2 AND task = $3 AND claim = $4");
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&claim.task).bind(&claim.token);
        Ok(self.run(row.execute(self.scope.database.pool())).await?.rows_affected() > 0)
    }

    /// Implements [`super::ParkedTurns::park_again`].
    pub(super) async fn park_again(
        &self,
        claim: &Claim,
        task: &str,
        turn: &ParkedTurn,
    ) -> Result<ParkResult, DatabaseError> {
        let (calls, text) = (calls_column(turn)?, json(turn)?);
        let row = sqlx::query_scalar::<_, i64>(
            "UPDATE recif_parked SET task = $5, calls = $6, turn = $7, needs_caller = $8, \
                 created_at = now(), expires_at = now() + make_interval(secs => $9), \
                 ruling = NULL, progress = '{}', attempts = 0, claim = '', claimed_until = 'epoch' \
             WHERE namespace = $1 AND agent = $2 AND task = $3 AND claim = $4 \
             RETURNING (extract(epoch FROM expires_at) * 1000000)::bigint",
        );
        let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(&claim.task).bind(&claim.token);
        let row = row.bind(task).bind(&calls).bind(&text).bind(turn.needs_caller).bind(seconds(turn));
        let expires = self.run(row.fetch_optional(self.scope.database.pool())).await?;
        Ok(expires.map_or(ParkResult::ClaimLost, |expires| ParkResult::Parked(time(expires))))
    }

    /// Reports whether the table exists.
    async fn is_there(&self) -> Result<bool, DatabaseError> {
        if self.ready.load(Ordering::Acquire) {
            return Ok(true);
        }
        let found = self.run(sqlx::query_scalar(TABLE_EXISTS).fetch_one(self.scope.database.pool())).await?;
        self.ready.store(found, Ordering::Release);
        Ok(found)
    }

    /// Awaits a query under the deadline, and notes where the table is missing.
    async fn run<T>(&self, query: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, DatabaseError> {
        let result = self.scope.database.with_deadline(query).await;
        if result.as_ref().is_err_and(DatabaseError::is_missing_table) {
            self.ready.store(false, Ordering::Release);
        }
        result
    }
}

/// Decodes a row that was claimed; `None` when another version of this runtime wrote something that cannot be read.
fn claimed(row: &PgRow, token: &str, is_swept: bool) -> Result<Option<ClaimedTurn>, sqlx::Error> {
    let claim = Claim { task: row.try_get("task")?, token: token.to_owned() };
    let (turn, progress) = (read_json(row, "turn")?, read_json(row, "progress")?);
    let (Some(turn), Some(progress)) = (turn, progress) else { return Ok(None) };
    let ruling = read_json(row, "ruling")?;
    if ruling.is_none() && row.try_get::<Option<&str>, _>("ruling")?.is_some() {
        return Ok(None);
    }
    let (owner, attempts) = (user_of_column(row.try_get("owner")?), row.try_get("attempts")?);
    Ok(Some(ClaimedTurn { claim, owner, turn, ruling, progress, attempts, is_swept }))
}
