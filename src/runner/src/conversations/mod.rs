//! Store of conversations: in memory, or in PostgreSQL, where all replicas of an agent share it.
//!
//! A conversation belongs to the user who started it: to other users it does not exist.

pub(crate) mod history;
mod memory;
mod postgres;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use memory::{Limits, MemoryConversations};
use postgres::PostgresConversations;

use super::{
    database::{DatabaseError, DatabaseScope, Dsn},
    models::Message,
    parking::Claim,
};
use crate::conversations::history::{ConversationId, History, TurnStorage, UserName};

/// Configured storage of conversations.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Storage {
    /// In this process; lost when it ends.
    Memory,
    /// In a database, under a namespace, in which the agent's name is unique.
    Postgres {
        /// URL of the database.
        dsn: Dsn,
        /// Namespace of the agent.
        namespace: String,
        /// Days after its last turn that a conversation is deleted; `None`: never.
        days: Option<i32>,
    },
}

/// Conversations of an agent.
pub(super) enum Conversations {
    /// In this process.
    Memory(Mutex<MemoryConversations>),
    /// In the database that all replicas share.
    Postgres(PostgresConversations),
}

impl Conversations {
    /// Opens the conversations of `agent`.
    ///
    /// # Errors
    /// The reason why they cannot be stored as configured; an unreachable database is none, because no connection is
    /// opened.
    pub(super) fn open(storage: &Storage, agent: &str) -> Result<Self, String> {
        match storage {
            Storage::Memory => Ok(Self::memory()),
            Storage::Postgres { dsn, namespace, days } => {
                let opened = PostgresConversations::open(dsn, namespace, agent, *days);
                Ok(Self::Postgres(opened.map_err(|problem| format!("CORAIL_DATABASE_URL: {problem}"))?))
            }
        }
    }

    /// Creates an empty store in memory.
    pub(super) fn memory() -> Self {
        Self::Memory(Mutex::new(MemoryConversations::new(Limits::default())))
    }

    /// Returns the database and scope of the agent's rows; `None` when they are in memory.
    pub(super) fn database_scope(&self) -> Option<DatabaseScope> {
        match self {
            Self::Memory(_) => None,
            Self::Postgres(postgres) => Some(postgres.database_scope()),
        }
    }

    /// Returns the conversation, as `user` may see it.
    ///
    /// # Errors
    /// The database cannot be queried.
    pub(super) async fn history(&self, id: &ConversationId, user: &UserName) -> Result<History, DatabaseError> {
        match self {
            Self::Memory(memory) => {
                Ok(memory.lock().unwrap_or_else(PoisonError::into_inner).history(id, user, Instant::now()))
            }
            Self::Postgres(postgres) => postgres.history(id, user).await,
        }
    }

    /// Adds a finished turn of `user`; returns false when the conversation is another user's. Two concurrent turns are
    /// stored one after the other, each whole. `title` names the conversation if it has no title yet.
    ///
    /// # Errors
    /// The database did not take it; the conversation is unchanged.
    pub(super) async fn add(
        &self,
        id: &ConversationId,
        user: &UserName,
        messages: Vec<Arc<Message>>,
        title: Option<&str>,
    ) -> Result<bool, DatabaseError> {
        Ok(self.add_after(None, id, user, messages, title).await? == TurnStorage::Stored)
    }

    /// Adds a finished turn of `user`; with `turns` only if the conversation has had that many turns, or is forgotten. Of
    /// two concurrent turns after the same one, the second is refused.
    ///
    /// # Errors
    /// The database did not take it; the conversation is unchanged.
    pub(super) async fn add_after(
        &self,
        turns: Option<i64>,
        id: &ConversationId,
        user: &UserName,
        messages: Vec<Arc<Message>>,
        title: Option<&str>,
    ) -> Result<TurnStorage, DatabaseError> {
        match self {
            Self::Memory(memory) => {
                let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(memory.add_after(turns, id, user, messages, Instant::now()))
            }
            Self::Postgres(postgres) => postgres.add_after(turns, id, user, &messages, title, None).await,
        }
    }

    /// Adds a turn that was parked. In a database its row goes in the same transaction, and without the claim on it nothing is added.
    ///
    /// # Errors
    /// The database did not take it; the conversation and the row are unchanged.
    pub(super) async fn add_claimed(
        &self,
        claim: &Claim,
        id: &ConversationId,
        user: &UserName,
        messages: Vec<Arc<Message>>,
        title: Option<&str>,
    ) -> Result<TurnStorage, DatabaseError> {
        match self {
            Self::Memory(_) => self.add_after(None, id, user, messages, title).await,
            Self::Postgres(postgres) => postgres.add_after(None, id, user, &messages, title, Some(claim)).await,
        }
    }

    /// Checks that conversations can be read and written.
    ///
    /// # Errors
    /// The database is unreachable.
    pub(super) async fn check(&self) -> Result<(), DatabaseError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Postgres(postgres) => postgres.check().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_random_and_ids_of_clients_are_checked() {
        let one = ConversationId::random().unwrap();
        assert_eq!(one.to_string().len(), 32);
        assert_ne!(one, ConversationId::random().unwrap());
        assert!(one.is_generated() && !ConversationId::parse("c1").unwrap().is_generated());
        for (text, accepted) in [("a-1", true), ("", false), ("a b", false), ("é", false), (&*"x".repeat(129), false)]
        {
            assert_eq!(ConversationId::parse(text).is_some(), accepted, "{text:?}");
        }
    }
}
