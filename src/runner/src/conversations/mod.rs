//! What was said so far: in memory, or in PostgreSQL, where all replicas of an agent share it.
//!
//! A conversation belongs to the user who began it; to all others it is not there.

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
};
use crate::conversations::history::{ConversationId, History, UserName};

/// Where conversations live.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Storage {
    /// In this process, and with it they end.
    Memory,
    /// In a database, under a namespace, in which the agent's name is unique.
    Postgres {
        /// Where it is.
        dsn: Dsn,
        /// The agent's namespace.
        namespace: String,
        /// Days after its last turn that a conversation is deleted; `None`: it never is.
        days: Option<i32>,
    },
}

/// The conversations of an agent.
pub(super) enum Conversations {
    /// Of this process.
    Memory(Mutex<MemoryConversations>),
    /// Of all replicas.
    Postgres(PostgresConversations),
}

impl Conversations {
    /// Those of `agent`.
    ///
    /// # Errors
    /// Why they cannot be kept as asked; a database that is away is no reason.
    pub(super) fn open(storage: &Storage, agent: &str) -> Result<Self, String> {
        match storage {
            Storage::Memory => Ok(Self::memory()),
            Storage::Postgres { dsn, namespace, days } => {
                let opened = PostgresConversations::open(dsn, namespace, agent, *days);
                Ok(Self::Postgres(opened.map_err(|problem| format!("CORAIL_DATABASE_URL: {problem}"))?))
            }
        }
    }

    /// None yet, in this process.
    pub(super) fn memory() -> Self {
        Self::Memory(Mutex::new(MemoryConversations::new(Limits::default())))
    }

    /// Where the agent has its rows; none when they are of this process alone.
    pub(super) fn database_scope(&self) -> Option<DatabaseScope> {
        match self {
            Self::Memory(_) => None,
            Self::Postgres(postgres) => Some(postgres.database_scope()),
        }
    }

    /// The conversation, as `user` sees it.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub(super) async fn history(&self, id: &ConversationId, user: &UserName) -> Result<History, DatabaseError> {
        match self {
            Self::Memory(memory) => {
                Ok(memory.lock().unwrap_or_else(PoisonError::into_inner).history(id, user, Instant::now()))
            }
            Self::Postgres(postgres) => postgres.history(id, user).await,
        }
    }

    /// Adds a finished turn of `user`; false when the conversation is another's. Two turns that ran at the same time stand
    /// one after the other, whole. `title` names the conversation, if it has no name yet.
    ///
    /// # Errors
    /// The database did not take it; the conversation is as before.
    pub(super) async fn add(
        &self,
        id: &ConversationId,
        user: &UserName,
        messages: Vec<Arc<Message>>,
        title: Option<&str>,
    ) -> Result<bool, DatabaseError> {
        match self {
            Self::Memory(memory) => {
                Ok(memory.lock().unwrap_or_else(PoisonError::into_inner).add(id, user, messages, Instant::now()))
            }
            Self::Postgres(postgres) => postgres.add(id, user, &messages, title).await,
        }
    }

    /// Whether they can be read and written now.
    ///
    /// # Errors
    /// The database is away.
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
