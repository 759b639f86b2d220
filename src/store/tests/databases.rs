//! A database of a test's own.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use sqlx::any::AnyPoolOptions;
use sqlx::{AnyPool, AssertSqlSafe, Row as _};

use crate::{
    postgres::Server,
    store::{DatabaseUrl, Store},
};

/// An empty database. What it holds goes with it.
pub(crate) struct Place {
    pub(crate) url: DatabaseUrl,
    /// The same as text, for another process.
    pub(crate) text: String,
    pub(crate) store: Store,
    /// The test's own connections.
    pub(crate) pool: AnyPool,
    folder: Option<PathBuf>,
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("recif-store-{}-{number}", std::process::id()));
        // The store makes the folder.
        let mut place = Self::at(format!("sqlite:{}/data/recif.db", folder.display()));
        place.folder = Some(folder);
        place
    }

    /// A database of that name.
    pub(crate) async fn postgres(server: &Server, name: &str) -> Self {
        let name = &name[..name.len().min(60)];
        let mut administrator = server.connect().await;
        let create = format!("CREATE DATABASE {name}");
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut administrator).await.unwrap();
        let url = server.url("postgresql");
        let (server, _) = url.rsplit_once('/').unwrap();
        Self::at(format!("{server}/{name}"))
    }

    fn at(text: String) -> Self {
        let url: DatabaseUrl = text.parse().unwrap();
        let store = Store::open(&url).unwrap();
        let pool = AnyPoolOptions::new().max_connections(2).connect_lazy(&text).unwrap();
        Self { url, text, store, pool, folder: None }
    }

    /// Every row of a query, its columns as text.
    pub(crate) async fn table(&self, query: &'static str) -> Vec<Vec<String>> {
        let rows = sqlx::query(query).fetch_all(&self.pool).await.unwrap();
        let text = |row: &sqlx::any::AnyRow, column: usize| {
            row.try_get::<String, _>(column).unwrap_or_else(|_| row.get::<i64, _>(column).to_string())
        };
        rows.iter().map(|row| (0..row.columns().len()).map(|column| text(row, column)).collect()).collect()
    }

    /// Runs statements.
    pub(crate) async fn execute(&self, statements: &'static str) {
        sqlx::raw_sql(statements).execute(&self.pool).await.unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}
