//! Errors of a database, without secrets in their texts.

use std::path::PathBuf;

/// Error of a database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Its URL cannot be used; the text explains the expected form, and contains no part of the URL.
    #[error("{0}")]
    Url(String),
    /// The folder of the file cannot be made.
    #[error("folder {} cannot be made: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It cannot be reached, or does not respond in time.
    #[error("the database does not answer: {0}")]
    Unavailable(String),
    /// It responded with an error.
    #[error("the database refused: {message} (code {code})")]
    Refused {
        /// The database's own code: five characters of PostgreSQL's appendix A, or SQLite's extended result code.
        code: String,
        /// The database's message.
        message: String,
    },
    /// Its tables were made by a newer program.
    #[error(
        "the tables in the database are of version {found}, and this program knows versions up to {known}: run the newer \
         program, or give this one a database of its own"
    )]
    Newer {
        /// Version of the tables.
        found: i64,
        /// Newest version that this program knows.
        known: i64,
    },
}

impl StoreError {
    /// Reports whether this is SQLITE_BUSY (5, the low byte of its extended codes). `busy_timeout` does not cover all of its
    /// causes: a change to WAL needs the file exclusively, and SQLite does not wait where two processes could deadlock.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code.parse::<u32>().is_ok_and(|code| code & 0xff == 5))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => Self::Refused {
                code: error.code().map(|code| code.into_owned()).unwrap_or_default(),
                message: error.message().to_owned(),
            },
            // Its text may quote the URL.
            sqlx::Error::Configuration(_) => Self::Url("the URL of the database cannot be used".into()),
            sqlx::Error::PoolTimedOut => Self::Unavailable("all connections are in use".into()),
            other => Self::Unavailable(other.to_string()),
        }
    }
}
