//! Schema migrations: numbered steps from each released version of the tables to the newest.
//!
//! Several processes may start at once on one database: the first one to get the lock makes the steps, in one transaction, and
//! the others find them made. After that a role that may only read and write rows is sufficient.

use jiff::Timestamp;
use sqlx::{AnyConnection, Row as _};

use super::{error::StoreError, record::timestamp_text, sql::Sql, transaction::begin, url::Engine};

/// Migration step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    /// Its number, from one.
    pub(super) number: i64,
    /// Its name.
    pub(super) name: &'static str,
    /// Its statements.
    pub(super) statements: &'static str,
}

/// All steps. A released step is never changed.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "tables", statements: include_str!("0001_tables.sql") },
    Migration { number: 2, name: "usage", statements: include_str!("0002_usage.sql") },
    Migration { number: 3, name: "spans", statements: include_str!("0003_spans.sql") },
];

/// Key of the [advisory lock](https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS) that is held while
/// the steps are made, on PostgreSQL: `CREATE … IF NOT EXISTS` fails if two sessions run it at once.
const LOCK: i64 = 0x0052_6563_6966_0001;

/// Makes the missing steps.
///
/// # Errors
/// The database is away or refuses, or its tables were made by a newer program.
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

/// Returns the number of the newest step that was made; `None`: the table of steps does not exist.
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
