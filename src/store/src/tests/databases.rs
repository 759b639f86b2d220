//! A database of a test's own, with a store over it.

use std::ops::Deref;

use testing::{database::Database, postgres::Server};

use crate::{DatabaseUrl, Store};

/// An empty database with a store over it. What it holds goes with it.
pub(crate) struct Place {
    pub(crate) url: DatabaseUrl,
    pub(crate) store: Store,
    pub(crate) database: Database,
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        Self::over(Database::sqlite())
    }

    /// A database of that name.
    pub(crate) async fn postgres(server: &Server, name: &str) -> Self {
        Self::over(Database::postgres(server, name).await)
    }

    fn over(database: Database) -> Self {
        let url: DatabaseUrl = database.url.parse().unwrap();
        // The store makes the folder of SQLite.
        let store = Store::open(&url).unwrap();
        Self { url, store, database }
    }
}

impl Deref for Place {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}
