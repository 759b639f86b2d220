//! A database of a test's own, with a store over it.

use std::ops::Deref;

use testing::{database::TestDatabase, postgres::PostgresServer};

use crate::{DatabaseUrl, Store};

/// An empty database with a store over it. What it holds goes with it.
pub(crate) struct TestStore {
    pub(crate) url: DatabaseUrl,
    pub(crate) store: Store,
    pub(crate) database: TestDatabase,
}

impl TestStore {
    pub(crate) fn sqlite() -> Self {
        Self::over(TestDatabase::sqlite())
    }

    /// A database of that name.
    pub(crate) async fn postgres(server: &PostgresServer, name: &str) -> Self {
        Self::over(TestDatabase::postgres(server, name).await)
    }

    fn over(database: TestDatabase) -> Self {
        let url: DatabaseUrl = database.url.parse().unwrap();
        // The store makes the folder of SQLite.
        let store = Store::open(&url).unwrap();
        Self { url, store, database }
    }
}

impl Deref for TestStore {
    type Target = TestDatabase;

    fn deref(&self) -> &TestDatabase {
        &self.database
    }
}
