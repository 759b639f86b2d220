//! Ids, owners and messages of conversations.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::models::Message;

/// Maximum bytes of text in one conversation; older turns are dropped.
pub(crate) const BYTES: usize = 4 << 20;

/// Id of a conversation: 1 to 128 letters, digits, `.`, `_`, `:` or `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ConversationId(String);

impl ConversationId {
    /// Generates an id of 128 random bits, in hexadecimal, so that it cannot be guessed.
    ///
    /// # Errors
    /// The operating system has no random source.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bytes))))
    }

    /// Reports whether it has the form of [`Self::random`].
    pub(crate) fn is_generated(&self) -> bool {
        self.0.len() == 32 && self.0.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// Parses the id that a client gave; `None` when it is not valid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        ((1..=128).contains(&text.len()) && text.bytes().all(allowed)).then(|| Self(text.into()))
    }
}

impl ConversationId {
    /// Returns its text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// User who started a conversation or task, from the sidecar's header; `None`: without a name.
pub(crate) type UserName = Option<Arc<str>>;

/// Returns the value of a column `owner`: empty for a user without a name.
pub(crate) fn owner_column(user: &UserName) -> String {
    // PostgreSQL's text type rejects U+0000.
    user.as_deref().unwrap_or_default().replace('\0', "")
}

/// Returns the user of a column `owner`.
pub(crate) fn user_of_column(owner: &str) -> UserName {
    (!owner.is_empty()).then(|| owner.into())
}

/// Result of a conversation lookup.
#[derive(Debug, PartialEq)]
pub(crate) enum History {
    /// Does not exist.
    Unknown,
    /// Belongs to another user.
    Foreign,
    /// The user's own.
    Known(StoredConversation),
}

/// Conversation as it is stored.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct StoredConversation {
    /// Messages, oldest first.
    pub(crate) messages: Vec<Arc<Message>>,
    /// Number of turns that were ever added, with those that were dropped.
    pub(crate) turns: i64,
}

/// Result of adding a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnStorage {
    /// The turn is stored.
    Stored,
    /// The conversation belongs to another user.
    Foreign,
    /// The conversation has other turns than the one that the turn continues.
    Overtaken,
}
