//! The tables, in numbered steps that lead from each released version to the newest.
//!
//! Several processes may start at once on one database: whoever takes the lock first makes the steps, in one transaction,
//! and the others find them made. Once they are there a role that may only read and write rows is enough.

use jiff::Timestamp;
use sqlx::{AnyConnection, Row as _};

use super::{error::StoreError, record::timestamp_text, sql::Sql, transaction::begin, url::Engine};

/// One step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    /// Counts from one.
    pub(super) number: i64,
    /// What it does.
    pub(super) name: &'static str,
    /// Its statements.
    pub(super) statements: &'static str,
}

/// All steps. A step that was released is never changed.
pub(super) const MIGRATIONS: &[Migration] =
    &[Migration { number: 1, name: "tables", statements: include_str!("0001_tables.sql") }];

/// Held while the steps are made, on PostgreSQL: `CREATE … IF NOT EXISTS` fails when two do it at once.
const LOCK: i64 = 0x0052_6563_6966_0001;

/// Makes the steps that are missing.
///
/// # Errors
/// The database refuses or is away, or was made by a newer program.
pub(super) async fn migrate(
    connection: &mut AnyConnection,
    engine: Engine,
    steps: &'static [Migration],
) -> Result<(), StoreError> {
    let newest = steps.last().map_or(0, |step| step.number);
    match version(connection, engine).await? {
        Some(found) if found == newest => return Ok(()),
        Some(found) if found > newest => return Err(StoreError::Newer { found, known: newest }),
        _ => {}
    }
    let mut transaction = begin(connection, engine).await?;
    if engine == Engine::Postgres {
        Sql::new("SELECT pg_advisory_xact_lock(").value(LOCK).text(")").query(false).execute(&mut *transaction).await?;
    }
    sqlx::raw_sql(
        "CREATE TABLE IF NOT EXISTS recif_migrations \
         (number BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)",
    )
    .execute(&mut *transaction)
    .await?;
    let found = version(&mut transaction, engine).await?.unwrap_or(0);
    if found > newest {
        return Err(StoreError::Newer { found, known: newest });
    }
    for step in steps.iter().filter(|step| step.number > found) {
        sqlx::raw_sql(step.statements).execute(&mut *transaction).await?;
        let now = timestamp_text(Timestamp::now());
        let made = Sql::new("INSERT INTO recif_migrations (number, name, applied_at) VALUES ");
        let made = made.rows([[step.number.into(), step.name.into(), (&now).into()]]);
        made.query(false).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    tracing::info!(from = found, to = newest, "brought the tables of the database up to date");
    Ok(())
}

/// The newest step that was made; `None`: there is no table of them.
async fn version(connection: &mut AnyConnection, engine: Engine) -> Result<Option<i64>, StoreError> {
    let there = match engine {
        Engine::Sqlite => "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'recif_migrations'",
        Engine::Postgres => "SELECT count(to_regclass('recif_migrations')::text)",
    };
    let row = sqlx::query(there).fetch_one(&mut *connection).await?;
    if row.try_get::<i64, _>(0)? == 0 {
        return Ok(None);
    }
    let row = sqlx::query("SELECT coalesce(max(number), 0) FROM recif_migrations").fetch_one(connection).await?;
    Ok(Some(row.try_get(0)?))
}
