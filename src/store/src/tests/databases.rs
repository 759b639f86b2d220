//! Database of a single test, with a store.

use std::ops::Deref;

use testing::{database::TestDatabase, postgres::PostgresServer};

use crate::{DatabaseUrl, Store};

/// Empty database with a store, removed on drop.
pub(crate) struct TestStore {
    pub(crate) url: DatabaseUrl,
    pub(crate) store: Store,
    pub(crate) database: TestDatabase,
}

impl TestStore {
    pub(crate) fn sqlite() -> Self {
        Self::over(TestDatabase::sqlite())
    }

    /// Creates a database of that name.
    pub(crate) async fn postgres(server: &PostgresServer, name: &str) -> Self {
        Self::over(TestDatabase::postgres(server, name).await)
    }

    fn over(database: TestDatabase) -> Self {
        let url: DatabaseUrl = database.url.parse().unwrap();
        // The store creates the folder of SQLite's file.
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
