//! Tests with databases that are away, locked or full.

use std::{fs, os::unix::fs::PermissionsExt as _};

use sqlx::Row as _;

use super::*;
use crate::{DatabaseUrl, Store, StoreError, sql::Sql};

#[tokio::test]
async fn a_database_that_is_not_there_is_told_without_its_password() {
    let url: DatabaseUrl = "postgresql://u:SECRET@127.0.0.1:1/d".parse().unwrap();
    let store = Store::open(&url).unwrap();
    let error = store.writer().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let shown = format!("{error} {error:?} {store:?} {}", store.display_name());
    assert!(shown.contains("PostgreSQL at 127.0.0.1:1/d") && !shown.contains("SECRET"), "{shown}");
}

#[tokio::test]
async fn a_database_that_stops_is_used_again_when_it_is_back() {
    let mut server = postgres::PostgresServer::start().await;
    let place = TestStore::postgres(&server, "stopped").await;
    let mut writer = place.store.writer().await.unwrap();
    write(&mut writer, [agent("a", "u", 1)]).await;
    server.stop();
    let batch = Batch { records: vec![agent("a", "u", 2)], deletions: Vec::new() };
    assert!(writer.write(&batch).await.is_err());
    let history = place.store.history("Agent", "ns", "a", 1).await;
    let shown = format!("{:?} {:?}", place.store.writer().await.unwrap_err(), history.unwrap_err());
    assert!(!shown.contains(postgres::PASSWORD), "{shown}");
    server.resume().await;
    place.store.writer().await.unwrap().write(&batch).await.unwrap();
    assert_eq!(workloads(&place).await["a"], r#"u 2 {"version":2}"#);
    assert!(place.store.history("Agent", "ns", "a", 1).await.is_ok());
}

#[tokio::test]
async fn a_locked_file_is_written_when_it_is_free_again() {
    let place = TestStore::sqlite();
    let mut writer = place.store.writer().await.unwrap();
    let mut holder = place.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    sqlx::query("CREATE TABLE x (a TEXT)").execute(&mut *holder).await.unwrap();
    let batch = Batch { records: vec![agent("a", "u", 1)], deletions: Vec::new() };
    let error = writer.write(&batch).await.unwrap_err();
    assert_eq!(error.to_string(), "the database refused: database is locked (code 5)");
    assert!(place.store.history("Agent", "ns", "a", 1).await.unwrap().is_empty(), "readers do not wait");
    holder.rollback().await.unwrap();
    place.store.writer().await.unwrap().write(&batch).await.unwrap();
    assert_eq!(workloads(&place).await.len(), 1);
}

#[tokio::test]
async fn a_full_disk_keeps_what_was_written() {
    let place = TestStore::sqlite();
    let mut writer = place.store.writer().await.unwrap();
    write(&mut writer, [agent("a", "u", 1)]).await;
    // The limit is the current number of pages: SQLite then reports the same error as for a full disk.
    sqlx::raw_sql("PRAGMA max_page_count = 1").execute(writer.connection()).await.unwrap();
    let records = (0..200).map(|number| agent(&format!("b{number}"), "u", 2)).collect();
    let batch = Batch { records, deletions: Vec::new() };
    let error = writer.write(&batch).await.unwrap_err();
    assert_eq!(error.to_string(), "the database refused: database or disk is full (code 13)");
    assert_eq!(workloads(&place).await.len(), 1, "nothing of the batch");
    place.store.writer().await.unwrap().write(&batch).await.unwrap();
    assert_eq!(workloads(&place).await.len(), 201);
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_named() {
    let place = TestStore::sqlite();
    drop(place.store.writer().await.unwrap());
    let file = place.url.source().unwrap().file.unwrap();
    let mode = fs::metadata(file.parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "no other user reads what is stored");
    let url = DatabaseUrl::file(&file.join("below a file/recif.db"));
    let error = Store::open(&url).unwrap().writer().await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("folder {}", file.join("below a file").display())), "{error}");
}

#[tokio::test]
async fn nothing_needs_a_temporary_folder() {
    let place = TestStore::sqlite();
    let mut writer = place.store.writer().await.unwrap();
    let row = sqlx::query("PRAGMA temp_store").fetch_one(writer.connection()).await.unwrap();
    assert_eq!(row.get::<i64, _>(0), 2, "the writer's temporary tables and journals are in memory");
    let rows = place.store.rows(Sql::new("PRAGMA temp_store")).await.unwrap();
    assert_eq!(rows[0].get::<i64, _>(0), 2, "those of the readers too");
}
