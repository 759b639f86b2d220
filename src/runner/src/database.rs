//! PostgreSQL access: URL, a small connection pool, and errors that contain no secret.
//!
//! Opening a pool does not connect, so an unreachable database does not prevent the process from starting; the first
//! query fails instead. Every use of the database has a deadline.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crds::postgres_url::{PostgresUrl, PostgresUrlError, is_postgres};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

/// Maximum connections of a pool.
const CONNECTIONS: u32 = 5;
/// Timeout for acquiring a connection, including the time to open a new one.
const CONNECT: Duration = Duration::from_secs(3);
/// Deadline for all statements of one use of the database, including the connection.
const DEADLINE: Duration = Duration::from_secs(8);
/// Key of the PostgreSQL advisory lock that serializes table creation: concurrent `CREATE … IF NOT EXISTS` statements
/// can fail.
const LOCK: i64 = 0x0052_6563_6966;

/// URL of a database. It may hold a password, so it is never printed.
#[derive(Clone, PartialEq)]
pub(super) struct Dsn(String);

impl Dsn {
    /// Wraps the URL unchanged: `postgres://`, `postgresql://`, or with a driver's suffix as in
    /// `postgresql+asyncpg://`; `None` for any other scheme.
    pub(super) fn parse(url: &str) -> Option<Self> {
        is_postgres(url).then(|| Self(url.into()))
    }

    /// Returns the connection options; an error names the problem without the URL.
    fn options(&self) -> Result<PgConnectOptions, String> {
        let unusable = |problem: PostgresUrlError| format!("its URL {problem}");
        let PostgresUrl { url, .. } = PostgresUrl::read(&self.0).map_err(unusable)?;
        let options = PgConnectOptions::from_str(url.as_str()).map_err(|_| unusable(PostgresUrlError::Malformed))?;
        Ok(options.disable_statement_logging())
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Failure of a database operation.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseError {
    /// It cannot be reached, or does not answer in time.
    #[error("the database does not answer: {0}")]
    Unreachable(String),
    /// It responded with an error.
    #[error("the database refused: {message} (SQLSTATE {code})")]
    Refused {
        /// SQLSTATE: five characters, PostgreSQL's appendix A.
        code: String,
        /// Message of the server.
        message: String,
    },
}

impl DatabaseError {
    /// Reports whether a table is missing (`undefined_table`).
    pub(super) fn is_missing_table(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "42P01")
    }
}

impl From<sqlx::Error> for DatabaseError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => Self::Refused {
                code: error.code().map(|code| code.into_owned()).unwrap_or_default(),
                message: error.message().to_owned(),
            },
            sqlx::Error::PoolTimedOut => Self::Unreachable(format!("no connection within {} s", CONNECT.as_secs())),
            other => Self::Unreachable(other.to_string()),
        }
    }
}

/// Connection pool of one database; clones share it.
#[derive(Debug, Clone)]
pub(super) struct PostgresPool(PgPool);

impl PostgresPool {
    /// Opens a pool for `dsn` without connecting.
    ///
    /// # Errors
    /// The problem with the URL, without quoting any part of it.
    pub(super) fn open(dsn: &Dsn) -> Result<Self, String> {
        let options = dsn.options()?.application_name("recif-runner");
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT)
            .idle_timeout(Duration::from_secs(300))
            .connect_lazy_with(options);
        Ok(Self(pool))
    }

    /// Returns the pool for queries.
    pub(super) fn pool(&self) -> &PgPool {
        &self.0
    }

    /// Runs the statements `tables` under an advisory lock, unless the query `there` reports that all of them exist.
    pub(super) async fn make_tables(&self, there: &'static str, tables: &'static str) -> Result<(), sqlx::Error> {
        if sqlx::query_scalar(there).fetch_one(&self.0).await? {
            return Ok(());
        }
        let mut transaction = self.0.begin().await?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *transaction).await?;
        sqlx::raw_sql(tables).execute(&mut *transaction).await?;
        transaction.commit().await
    }

    /// Awaits `work` under the deadline.
    ///
    /// # Errors
    /// The database is unreachable, slow, or refuses.
    pub(super) async fn with_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, DatabaseError> {
        match tokio::time::timeout(DEADLINE, work).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(DatabaseError::Unreachable(format!("no answer within {} s", DEADLINE.as_secs()))),
        }
    }
}

/// Database and key columns of one agent's rows.
#[derive(Debug, Clone)]
pub(super) struct DatabaseScope {
    /// The database.
    pub(super) database: PostgresPool,
    /// Namespace of the agent, in which its name is unique.
    pub(super) namespace: String,
    /// Name of the agent.
    pub(super) agent: String,
    /// Days without a change after which rows are deleted; `None`: never.
    pub(super) days: Option<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_url_is_read() {
        for (url, host, port, user, database) in [
            ("postgres://u:p@h/d", "h", 5432, "u", Some("d")),
            ("postgresql+asyncpg://u:p%40@h.x:6432/d?ssl=require&server_settings=x", "h.x", 6432, "u", Some("d")),
            ("postgresql://[::1]:1/d", "[::1]", 1, "", Some("d")),
            ("postgresql:///d?host=h&user=u", "h", 5432, "u", Some("d")),
        ] {
            let options = Dsn::parse(url).unwrap().options().unwrap();
            assert_eq!(
                (options.get_host(), options.get_port(), options.get_database()),
                (host, port, database),
                "{url}"
            );
            if !user.is_empty() {
                assert_eq!(options.get_username(), user, "{url}");
            }
        }
        let socket = Dsn::parse("postgresql:///d?host=/run/pg").unwrap().options().unwrap();
        assert_eq!(socket.get_socket().unwrap().to_str(), Some("/run/pg"));
        for url in ["mysql://h/d", "h:5432", ""] {
            assert!(Dsn::parse(url).is_none(), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told_without_it() {
        for (url, problem) in [
            ("postgresql://u:SECRET@a,b/d", "several hosts"),
            ("postgresql://u:p@SECRET/word@db/d", "percent-encoded"),
            ("postgresql://u:SECRET@h/d?sslmode=SECRET", "cannot be read"),
        ] {
            let dsn = Dsn::parse(url).unwrap();
            let error = dsn.options().err().unwrap();
            assert!(error.contains(problem), "{url}: {error}");
            assert!(!format!("{error} {dsn:?}").contains("SECRET"), "{error}");
        }
    }
}
