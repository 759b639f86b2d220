//! Empty database for one test, SQLite or PostgreSQL.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use sqlx::{AnyPool, AssertSqlSafe, Row as _, any::AnyPoolOptions};

use crate::postgres::PostgresServer;

/// Empty database. A SQLite file is deleted when it is dropped.
#[derive(Debug)]
pub struct TestDatabase {
    /// URL of the database.
    pub url: String,
    /// Connections of the test itself.
    pub pool: AnyPool,
    folder: Option<PathBuf>,
}

impl TestDatabase {
    /// Refers to a SQLite file in a folder that does not exist yet.
    pub fn sqlite() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("recif-store-{}-{number}", std::process::id()));
        Self::at(format!("sqlite:{}/data/recif.db", folder.display()), Some(folder))
    }

    /// Creates a database of this name, which is shortened to 60 bytes.
    pub async fn postgres(server: &PostgresServer, name: &str) -> Self {
        let name = &name[..name.len().min(60)];
        let mut administrator = server.connect().await;
        let create = format!("CREATE DATABASE {name}");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut administrator).await.unwrap();
        let url = server.url("postgresql");
        let (server, _) = url.rsplit_once('/').unwrap();
        Self::at(format!("{server}/{name}"), None)
    }

    fn at(url: String, folder: Option<PathBuf>) -> Self {
        sqlx::any::install_default_drivers();
        let pool = AnyPoolOptions::new().max_connections(2).connect_lazy(&url).unwrap();
        Self { url, pool, folder }
    }

    /// Returns every row of a query, with its columns as text.
    pub async fn table(&self, query: &'static str) -> Vec<Vec<String>> {
        let rows = sqlx::query(query).fetch_all(&self.pool).await.unwrap();
        let text = |row: &sqlx::any::AnyRow, column: usize| {
            row.try_get::<String, _>(column).unwrap_or_else(|_| row.get::<i64, _>(column).to_string())
        };
        rows.iter().map(|row| (0..row.columns().len()).map(|column| text(row, column)).collect()).collect()
    }

    /// Executes statements.
    pub async fn execute(&self, statements: &'static str) {
        sqlx::raw_sql(statements).execute(&self.pool).await.unwrap();
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}
