//! Connections to the database, and the differences between SQLite and PostgreSQL.
//!
//! Opening a store does not connect, so a database that is away keeps no process from starting. All writes go over one
//! connection, which is dropped at the first error of any kind: the next connection finds the rows as the last transaction left
//! them. Every use of a database has a timeout.

use crate::transaction::begin;
use std::{
    fs::DirBuilder,
    future::Future,
    os::unix::fs::DirBuilderExt as _,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use sqlx::{
    AnyConnection, AnyPool, ConnectOptions as _,
    any::{AnyConnectOptions, AnyPoolOptions, AnyRow},
};

use super::{
    error::StoreError,
    migrations::{MIGRATIONS, migrate},
    sql::Sql,
    url::{DatabaseSource, DatabaseUrl, Engine},
};

/// Timeout for a connection and the migration of the tables.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time between two tries to prepare a connection while another process holds SQLite's file.
const BUSY_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Timeout of a query.
const READ_TIMEOUT: Duration = Duration::from_secs(8);
/// Timeout of a transaction.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of the connections that read at the same time.
const MAX_READERS: u32 = 4;

/// Settings of SQLite's writer. In WAL mode readers never wait for the writer, nor the writer for them. A crash of the process
/// loses nothing; a crash of the machine may lose the last transactions, which the cluster still holds. Temporary tables and
/// statement journals stay in memory: under a read-only root there is no folder for them, and SQLite then fails with
/// SQLITE_IOERR_GETTEMPPATH (6410).
const SQLITE_WRITER: &str = "PRAGMA busy_timeout = 2000; PRAGMA temp_store = MEMORY; PRAGMA journal_mode = WAL; \
                             PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA journal_size_limit = 67108864";
const SQLITE_READER: &str = "PRAGMA busy_timeout = 2000; PRAGMA temp_store = MEMORY; PRAGMA query_only = ON";
/// Settings of a PostgreSQL session. A process that is stopped in the middle of a transaction blocks the others no longer than
/// this.
const POSTGRES: &str = "SET statement_timeout = '20s'; SET lock_timeout = '10s'; \
                        SET idle_in_transaction_session_timeout = '20s'";

impl Engine {
    fn set_up(self, writes: bool) -> &'static str {
        match (self, writes) {
            (Self::Sqlite, true) => SQLITE_WRITER,
            (Self::Sqlite, false) => SQLITE_READER,
            (Self::Postgres, _) => POSTGRES,
        }
    }
}

/// Database with a pool of readers.
#[derive(Debug)]
pub struct Store {
    source: DatabaseSource,
    readers: AnyPool,
    /// Set once a connection has found or made the tables of this program.
    ready: AtomicBool,
}

impl Store {
    /// Creates a store for the database at `url`, without connecting. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// The URL cannot be used.
    pub fn open(url: &DatabaseUrl) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let source = url.source()?;
        let engine = source.engine;
        let readers = AnyPoolOptions::new()
            .max_connections(MAX_READERS)
            .acquire_timeout(READ_TIMEOUT)
            .idle_timeout(Duration::from_secs(300))
            .after_connect(move |connection, _| {
                Box::pin(async move { sqlx::raw_sql(engine.set_up(false)).execute(connection).await.map(drop) })
            })
            .connect_lazy_with(source.options("rw"));
        Ok(Self { source, readers, ready: AtomicBool::new(false) })
    }

    /// Returns the name of the database for logs, without user and password.
    pub fn display_name(&self) -> &str {
        &self.source.display_name
    }

    /// Connects for writing, and migrates the tables.
    ///
    /// # Errors
    /// The database is away or refuses, or its tables were made by a newer program.
    pub async fn writer(&self) -> Result<Writer, StoreError> {
        within(CONNECT_TIMEOUT, async {
            if let Some(folder) = self.source.file.as_deref().and_then(|file| file.parent()) {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
                made.map_err(|source| StoreError::Folder { folder: folder.into(), source })?;
            }
            let engine = self.source.engine;
            let mut connection = self.source.options("rwc").connect().await?;
            while let Err(error) = prepare(&mut connection, engine).await {
                if !(engine == Engine::Sqlite && error.is_busy()) {
                    return Err(error);
                }
                tokio::time::sleep(BUSY_RETRY_INTERVAL).await;
            }
            self.ready.store(true, Ordering::Release);
            Ok(Writer { connection, engine })
        })
        .await
    }

    /// Returns the rows of a query.
    pub(super) async fn rows(&self, query: Sql) -> Result<Vec<AnyRow>, StoreError> {
        if !self.ready.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable("its tables have not been checked yet".into()));
        }
        let mut connection = self.readers.acquire().await?;
        let found = within(READ_TIMEOUT, async { Ok(query.query(true).fetch_all(&mut *connection).await?) }).await;
        if matches!(found, Err(StoreError::Unavailable(_))) {
            // The connection may still wait for the late response, so it is not reused.
            drop(connection.detach());
        }
        found
    }
}

impl DatabaseSource {
    /// Returns the options to connect with; `mode` is that of SQLite's file.
    fn options(&self, mode: &str) -> AnyConnectOptions {
        let mut url = self.url.clone();
        if self.engine == Engine::Sqlite {
            url.query_pairs_mut().append_pair("mode", mode);
        }
        // Cannot fail: the URL is only stored.
        let options = AnyConnectOptions::from_url(&url);
        options.map_or_else(|error| unreachable!("{error}"), |options| options.disable_statement_logging())
    }
}

/// Connection for writes. It must be dropped after an error.
#[derive(Debug)]
pub struct Writer {
    connection: AnyConnection,
    engine: Engine,
}

impl Writer {
    /// Returns the connection itself, for tests that disturb it.
    #[cfg(test)]
    pub(super) fn connection(&mut self) -> &mut AnyConnection {
        &mut self.connection
    }

    /// Runs `work` in a transaction, which is committed only if all of `work` succeeds within the timeout.
    pub(super) async fn transact<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut AnyConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let (connection, engine) = (&mut self.connection, self.engine);
        within(WRITE_TIMEOUT, async move {
            let mut transaction = begin(connection, engine).await?;
            let result = work(&mut transaction).await?;
            transaction.commit().await?;
            Ok(result)
        })
        .await
    }
}

/// Sets up a connection for writes, and migrates the tables.
async fn prepare(connection: &mut AnyConnection, engine: Engine) -> Result<(), StoreError> {
    sqlx::raw_sql(engine.set_up(true)).execute(&mut *connection).await?;
    migrate(connection, engine, MIGRATIONS).await
}

/// Returns the result of `work`, or an error if it takes longer than `time`.
async fn within<T>(time: Duration, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = || StoreError::Unavailable(format!("no answer within {} s", time.as_secs()));
    tokio::time::timeout(time, work).await.unwrap_or_else(|_| Err(late()))
}
