//! Names a conversation and its user, and holds what was said in it.

use std::{fmt, sync::Arc};

use crate::models::Message;

/// Most bytes of text in one conversation; older turns are dropped.
pub(crate) const BYTES: usize = 4 << 20;

/// Names a conversation: 1 to 128 letters, digits, `.`, `_`, `:` or `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ConversationId(String);

impl ConversationId {
    /// 128 random bits, in hexadecimal: who does not know it cannot guess it.
    ///
    /// # Errors
    /// The operating system has no random source.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bytes))))
    }

    /// Whether it has the form of those that are made here.
    pub(crate) fn is_generated(&self) -> bool {
        self.0.len() == 32 && self.0.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// The id a client gave, when it is one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        ((1..=128).contains(&text.len()) && text.bytes().all(allowed)).then(|| Self(text.into()))
    }
}

impl ConversationId {
    /// Its text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The user who began something, as the sidecar tells; `None`: one without a name.
pub(crate) type UserName = Option<Arc<str>>;

/// A user as a column `owner` has it: empty for one without a name.
pub(crate) fn owner_column(user: &UserName) -> String {
    // No text of PostgreSQL's holds U+0000.
    user.as_deref().unwrap_or_default().replace('\0', "")
}

/// What is known under the id of a conversation.
#[derive(Debug, PartialEq)]
pub(crate) enum History {
    /// Nothing.
    Unknown,
    /// What another user began.
    Foreign,
    /// What was said, oldest first.
    Known(Vec<Arc<Message>>),
}
