//! Start of transactions.

use sqlx::{Any, AnyConnection, Connection as _, Transaction};

use super::url::Engine;

/// Begins a transaction that writes. On SQLite it takes the write lock at once (`BEGIN IMMEDIATE`): a transaction that has read
/// first cannot take it later if another one has written since.
pub(super) async fn begin(connection: &mut AnyConnection, engine: Engine) -> Result<Transaction<'_, Any>, sqlx::Error> {
    match engine {
        Engine::Sqlite => connection.begin_with("BEGIN IMMEDIATE").await,
        Engine::Postgres => connection.begin().await,
    }
}
