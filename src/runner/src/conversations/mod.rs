//! What was said so far: in memory, or in PostgreSQL, where all replicas of an agent share it.
//!
//! A conversation belongs to the user who began it; to all others it is not there.

mod memory;
mod postgres;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::database::{DatabaseError, Dsn, Home};
use super::models::Message;
use memory::{Limits, Memory};
use postgres::Postgres;

/// Most bytes of text in one conversation; older turns are dropped.
const BYTES: usize = 4 << 20;

/// Names a conversation: 1 to 128 letters, digits, `.`, `_`, `:` or `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ConversationId(String);

impl ConversationId {
    /// 128 random bits, in hexadecimal: who does not know it cannot guess it.
    ///
    /// # Errors
    /// The operating system has no random source.
    pub(super) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bytes))))
    }

    /// Whether it has the form of those that are made here.
    pub(super) fn is_ours(&self) -> bool {
        self.0.len() == 32 && self.0.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// The id a client gave, when it is one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        ((1..=128).contains(&text.len()) && text.bytes().all(allowed)).then(|| Self(text.into()))
    }
}

impl ConversationId {
    /// Its text.
    fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The user who began something, as the sidecar tells; `None`: one without a name.
pub(super) type User = Option<Arc<str>>;

/// A user as a column `owner` has it: empty for one without a name.
pub(super) fn column(user: &User) -> String {
    // No text of PostgreSQL's holds U+0000.
    user.as_deref().unwrap_or_default().replace('\0', "")
}

/// What is known under the id of a conversation.
#[derive(Debug, PartialEq)]
pub(super) enum History {
    /// Nothing.
    Unknown,
    /// What another user began.
    Foreign,
    /// What was said, oldest first.
    Known(Vec<Arc<Message>>),
}

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
    Memory(Mutex<Memory>),
    /// Of all replicas.
    Postgres(Postgres),
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
                let opened = Postgres::open(dsn, namespace, agent, *days);
                Ok(Self::Postgres(opened.map_err(|problem| format!("CORAIL_DATABASE_URL: {problem}"))?))
            }
        }
    }

    /// None yet, in this process.
    pub(super) fn memory() -> Self {
        Self::Memory(Mutex::new(Memory::new(Limits::default())))
    }

    /// Where the agent has its rows; none when they are of this process alone.
    pub(super) fn home(&self) -> Option<Home> {
        match self {
            Self::Memory(_) => None,
            Self::Postgres(postgres) => Some(postgres.home()),
        }
    }

    /// The conversation, as `user` sees it.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub(super) async fn history(&self, id: &ConversationId, user: &User) -> Result<History, DatabaseError> {
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
        user: &User,
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
        assert!(one.is_ours() && !ConversationId::parse("c1").unwrap().is_ours());
        for (text, accepted) in [("a-1", true), ("", false), ("a b", false), ("é", false), (&*"x".repeat(129), false)]
        {
            assert_eq!(ConversationId::parse(text).is_some(), accepted, "{text:?}");
        }
    }
}
