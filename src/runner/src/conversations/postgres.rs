//! Conversations in PostgreSQL.
//!
//! A turn is one row: a user's message and all messages that followed it, as JSON, numbered within its conversation.
//! The number comes from a counter in the conversation's own row, whose row lock a writer holds until its transaction
//! commits: two replicas that answer in one conversation write one after the other. A conversation over the limit loses
//! its oldest turns in the same transaction.
//!
//! Conversations that were not continued for some days are deleted after a turn, at most once an hour by each replica;
//! otherwise the rows of agents would grow without bound.
//!
//! The owner is the user who started a conversation, empty for one without a name. Rows of older versions have no
//! owner: the first user who continues such a conversation becomes its owner.
//!
//! The tables are created on first use by any replica. Their existence is checked first, so that a role which may only
//! read and write rows is enough once they exist.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::Row;

use super::history::{BYTES, ConversationId, History, StoredConversation, TurnStorage, UserName, owner_column};
use crate::{
    database::{DatabaseError, DatabaseScope, Dsn, PostgresPool},
    models::message::Message,
    parking::Claim,
};

/// Creates the tables. JSON is in text columns, because `jsonb` rejects U+0000.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS recif_conversations (
    namespace text NOT NULL,
    agent text NOT NULL,
    id text NOT NULL,
    title text,
    owner text,
    turns bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, agent, id)
);
CREATE TABLE IF NOT EXISTS recif_turns (
    namespace text NOT NULL,
    agent text NOT NULL,
    conversation text NOT NULL,
    turn bigint NOT NULL,
    messages text NOT NULL,
    bytes bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, agent, conversation, turn),
    FOREIGN KEY (namespace, agent, conversation) REFERENCES recif_conversations ON DELETE CASCADE
);
ALTER TABLE recif_conversations ADD COLUMN IF NOT EXISTS owner text;";

/// Query that reports whether all tables and columns exist.
const TABLES_EXIST: &str = "SELECT to_regclass('recif_turns') IS NOT NULL AND EXISTS ( \
     SELECT FROM pg_attribute WHERE attrelid = to_regclass('recif_conversations') AND attname = 'owner' \
     AND NOT attisdropped)";

/// Interval between deletions of old conversations.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3600);

/// Conversations of one agent.
pub(crate) struct PostgresConversations {
    database: PostgresPool,
    namespace: String,
    agent: String,
    /// Days after its last turn that a conversation is deleted; `None`: never.
    days: Option<i32>,
    /// Time of the last deletion of old conversations.
    last_sweep: Mutex<Option<Instant>>,
    /// Set once the tables are known to exist; cleared when a query reports one missing.
    ready: AtomicBool,
}

impl PostgresConversations {
    /// Opens the conversations of `agent` in `namespace`, without connecting.
    ///
    /// # Errors
    /// The problem with the URL.
    pub(super) fn open(dsn: &Dsn, namespace: &str, agent: &str, days: Option<i32>) -> Result<Self, String> {
        let (database, ready) = (PostgresPool::open(dsn)?, AtomicBool::new(false));
        let swept = Mutex::default();
        Ok(Self { database, namespace: namespace.into(), agent: agent.into(), days, last_sweep: swept, ready })
    }

    /// Returns the database and scope of the agent's rows.
    pub(super) fn database_scope(&self) -> DatabaseScope {
        let (database, namespace, agent) = (self.database.clone(), self.namespace.clone(), self.agent.clone());
        DatabaseScope { database, namespace, agent, days: self.days }
    }

    /// Implements [`super::Conversations::history`].
    pub(super) async fn history(&self, id: &ConversationId, user: &UserName) -> Result<History, DatabaseError> {
        match self.database.with_deadline(self.read(id, user)).await {
            Err(error) if self.lost_tables(&error) => self.database.with_deadline(self.read(id, user)).await,
            result => result,
        }
    }

    /// Implements [`super::Conversations::add_after`], and with a claim [`super::Conversations::add_claimed`].
    pub(super) async fn add_after(
        &self,
        turns: Option<i64>,
        id: &ConversationId,
        user: &UserName,
        messages: &[Arc<Message>],
        title: Option<&str>,
        claim: Option<&Claim>,
    ) -> Result<TurnStorage, DatabaseError> {
        let bytes: usize = messages.iter().map(|message| message.bytes()).sum();
        let messages: Vec<&Message> = messages.iter().map(Arc::as_ref).collect();
        let turn = TurnRow {
            json: serde_json::to_string(&messages).map_err(|error| sqlx::Error::Encode(error.into()))?,
            bytes: size(bytes),
            // PostgreSQL's text type rejects U+0000.
            title: title.map(|title| title.replace('\0', "")),
            after: turns,
            claim: claim.cloned(),
        };
        let added = match self.database.with_deadline(self.write(id, user, &turn)).await {
            Err(error) if self.lost_tables(&error) => self.database.with_deadline(self.write(id, user, &turn)).await?,
            result => result?,
        };
        if let Some(days) = self.days.filter(|_| self.is_time_to_sweep()) {
            // The turn is stored; a failed deletion is retried in an hour.
            if let Err(error) = self.database.with_deadline(self.sweep(days)).await {
                tracing::warn!("old conversations were not deleted: {error}");
            }
        }
        Ok(added)
    }

    fn is_time_to_sweep(&self) -> bool {
        let mut swept = self.last_sweep.lock().unwrap_or_else(PoisonError::into_inner);
        let due = swept.is_none_or(|last| last.elapsed() >= SWEEP_INTERVAL);
        if due {
            *swept = Some(Instant::now());
        }
        due
    }

    async fn sweep(&self, days: i32) -> Result<(), sqlx::Error> {
        // A turn that waits goes on with what was said before it. Only what parks one makes the table.
        let parks = sqlx::query_scalar("SELECT to_regclass('recif_parked') IS NOT NULL");
        let parks: bool = parks.fetch_one(self.database.pool()).await?;
        let old = sqlx::query(match parks {
            true => {
                "DELETE FROM recif_conversations AS old \
                 WHERE namespace = $1 AND agent = $2 AND updated_at < now() - make_interval(days => $3) \
                     AND NOT EXISTS (SELECT FROM recif_parked AS parked WHERE parked.namespace = old.namespace \
                         AND parked.agent = old.agent AND parked.conversation = old.id)"
            }
            false => {
                "DELETE FROM recif_conversations \
                 WHERE namespace = $1 AND agent = $2 AND updated_at < now() - make_interval(days => $3)"
            }
        });
        let old = old.bind(&self.namespace).bind(&self.agent).bind(days);
        let gone = old.execute(self.database.pool()).await?.rows_affected();
        if gone > 0 {
            tracing::info!(conversations = gone, days, "deleted expired conversations");
        }
        Ok(())
    }

    /// Implements [`super::Conversations::check`].
    pub(super) async fn check(&self) -> Result<(), DatabaseError> {
        match self.database.with_deadline(self.probe_tables()).await {
            Err(error) if self.lost_tables(&error) => self.database.with_deadline(self.probe_tables()).await,
            result => result,
        }
    }

    async fn probe_tables(&self) -> Result<(), sqlx::Error> {
        self.make_tables().await?;
        sqlx::query("SELECT FROM recif_turns LIMIT 0").execute(self.database.pool()).await.map(drop)
    }

    /// Returns the owner of the conversation and the number of its turns, and claims one without owner for `user`; `None`
    /// when the conversation does not exist.
    async fn owner(&self, id: &ConversationId, user: &UserName) -> Result<Option<(String, i64)>, sqlx::Error> {
        let known =
            sqlx::query("SELECT owner, turns FROM recif_conversations WHERE namespace = $1 AND agent = $2 AND id = $3");
        let known = known.bind(&self.namespace).bind(&self.agent).bind(id.as_str());
        let Some(row) = known.fetch_optional(self.database.pool()).await? else { return Ok(None) };
        let turns: i64 = row.try_get("turns")?;
        if let Some(owner) = row.try_get::<Option<String>, _>("owner")? {
            return Ok(Some((owner, turns)));
        }
        let claimed = sqlx::query_scalar(
            "UPDATE recif_conversations SET owner = coalesce(owner, $4) \
             WHERE namespace = $1 AND agent = $2 AND id = $3 RETURNING owner",
        );
        let claimed = claimed.bind(&self.namespace).bind(&self.agent).bind(id.as_str()).bind(owner_column(user));
        let owner: Option<String> = claimed.fetch_optional(self.database.pool()).await?;
        Ok(owner.map(|owner| (owner, turns)))
    }

    async fn read(&self, id: &ConversationId, user: &UserName) -> Result<History, sqlx::Error> {
        self.make_tables().await?;
        // Read before the messages: a turn that comes in between makes the number too low, and never too high.
        let turns = match self.owner(id, user).await? {
            None => return Ok(History::Unknown),
            Some((owner, _)) if owner != owner_column(user) => return Ok(History::Foreign),
            Some((_, turns)) => turns,
        };
        let rows = sqlx::query(
            "SELECT turn, messages FROM recif_turns WHERE namespace = $1 AND agent = $2 AND conversation = $3 \
             ORDER BY turn",
        )
        .bind(&self.namespace)
        .bind(&self.agent)
        .bind(id.as_str())
        .fetch_all(self.database.pool())
        .await?;
        let mut messages = Vec::new();
        for row in rows {
            match serde_json::from_str::<Vec<Message>>(row.try_get("messages")?) {
                Ok(turn) => messages.extend(turn.into_iter().map(Arc::new)),
                // The text of the error may quote the message, so it is not logged.
                Err(_) => tracing::warn!(
                    turn = row.try_get::<i64, _>("turn")?,
                    "a turn that another version of this runtime wrote cannot be read and is left out"
                ),
            }
        }
        Ok(History::Known(StoredConversation { messages, turns }))
    }

    async fn write(&self, id: &ConversationId, user: &UserName, turn: &TurnRow) -> Result<TurnStorage, sqlx::Error> {
        self.make_tables().await?;
        let mut transaction = self.database.pool().begin().await?;
        if let Some(Claim { task, token }) = &turn.claim {
            let parked = sqlx::query(
                "DELETE FROM recif_parked WHERE namespace = $1 AND agent = $2 AND task = $3 AND claim = $4",
            );
            let parked = parked.bind(&self.namespace).bind(&self.agent).bind(task).bind(token);
            if parked.execute(&mut *transaction).await?.rows_affected() == 0 {
                transaction.rollback().await?;
                return Ok(TurnStorage::Overtaken);
            }
        }
        let number: Option<i64> = sqlx::query_scalar(
            "INSERT INTO recif_conversations AS known (namespace, agent, id, title, owner, turns) \
             VALUES ($1, $2, $3, $4, $5, 1) ON CONFLICT (namespace, agent, id) DO UPDATE \
             SET turns = known.turns + 1, title = coalesce(known.title, excluded.title), owner = excluded.owner, \
                 updated_at = now() \
             WHERE coalesce(known.owner, excluded.owner) = excluded.owner \
                 AND ($6::bigint IS NULL OR known.turns = $6) RETURNING turns",
        )
        .bind(&self.namespace)
        .bind(&self.agent)
        .bind(id.as_str())
        .bind(&turn.title)
        .bind(owner_column(user))
        .bind(turn.after)
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(number) = number else {
            transaction.rollback().await?;
            let is_own = self.owner(id, user).await?.is_some_and(|(owner, _)| owner == owner_column(user));
            return Ok(if is_own { TurnStorage::Overtaken } else { TurnStorage::Foreign });
        };
        sqlx::query(
            "INSERT INTO recif_turns (namespace, agent, conversation, turn, messages, bytes) \
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(&self.namespace)
        .bind(&self.agent)
        .bind(id.as_str())
        .bind(number)
        .bind(&turn.json)
        .bind(turn.bytes)
        .execute(&mut *transaction)
        .await?;
        sqlx::query(
            "DELETE FROM recif_turns WHERE namespace = $1 AND agent = $2 AND conversation = $3 AND turn <= ( \
                 SELECT max(turn) FROM ( \
                     SELECT turn, sum(bytes) OVER (ORDER BY turn DESC) AS newer FROM recif_turns \
                     WHERE namespace = $1 AND agent = $2 AND conversation = $3 \
                 ) AS sums WHERE newer > $4)",
        )
        .bind(&self.namespace)
        .bind(&self.agent)
        .bind(id.as_str())
        .bind(size(BYTES))
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(TurnStorage::Stored)
    }

    /// Reports whether `error` means that the tables are missing; they are then created again.
    fn lost_tables(&self, error: &DatabaseError) -> bool {
        let lost = error.is_missing_table();
        if lost {
            self.ready.store(false, Ordering::Release);
        }
        lost
    }

    async fn make_tables(&self) -> Result<(), sqlx::Error> {
        if self.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        self.database.make_tables(TABLES_EXIST, TABLES).await?;
        self.ready.store(true, Ordering::Release);
        Ok(())
    }
}

/// Turn in the form in which it is stored.
struct TurnRow {
    json: String,
    bytes: i64,
    title: Option<String>,
    /// Number of turns that the conversation must have had, if it is known.
    after: Option<i64>,
    /// Claim on the parked turn that this is the end of.
    claim: Option<Claim>,
}

fn size(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
