//! Begins transactions.

use sqlx::{Any, AnyConnection, Connection as _, Transaction};

use super::url::Engine;

/// Begins a transaction that writes: on SQLite it takes the lock at once, for one that read first could not take it later.
pub(super) async fn begin(connection: &mut AnyConnection, engine: Engine) -> Result<Transaction<'_, Any>, sqlx::Error> {
    match engine {
        Engine::Sqlite => connection.begin_with("BEGIN IMMEDIATE").await,
        Engine::Postgres => connection.begin().await,
    }
}
