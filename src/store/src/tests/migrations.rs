//! Tests of the migrations.

use std::time::Duration;

use super::*;
use crate::{
    Store, StoreError,
    migrations::{MIGRATIONS, Migration, migrate},
    url::Engine,
};

const NEXT: Migration = Migration {
    number: MIGRATIONS.len() as i64 + 1,
    name: "a colour",
    statements: "ALTER TABLE workloads ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey'; CREATE TABLE more (a TEXT)",
};
const BROKEN: Migration =
    Migration { number: NEXT.number + 1, name: "broken", statements: "CREATE TABLE x (a TEXT); DROP TABLE nowhere" };

fn engine(place: &TestStore) -> Engine {
    place.url.source().unwrap().engine
}

/// Makes these steps, which are leaked.
async fn make(place: &TestStore, steps: Vec<Migration>) -> Result<(), StoreError> {
    let mut connection = place.pool.acquire().await.unwrap();
    migrate(&mut connection, engine(place), steps.leak()).await
}

async fn versions(place: &TestStore) -> Vec<Vec<String>> {
    place.table("SELECT number FROM recif_migrations ORDER BY number").await
}

pub(super) async fn several_processes_start_at_once(place: &TestStore) {
    let stores: Vec<Store> = (0..6).map(|_| Store::open(&place.url).unwrap()).collect();
    let writers = futures::future::join_all(stores.iter().map(Store::writer)).await;
    for writer in writers {
        write(&mut writer.unwrap(), [agent("a", "u", 1)]).await;
    }
    assert_eq!(versions(place).await.len(), MIGRATIONS.len());
}

/// The lock outlasts `busy_timeout`, as that of a process that is stopped while it starts.
#[tokio::test]
async fn a_start_waits_until_the_file_is_free() {
    let place = TestStore::sqlite();
    drop(place.store.writer().await.unwrap());
    let mut holder = place.pool.acquire().await.unwrap();
    // The connections of the writer close in the background.
    let locked = async {
        while sqlx::raw_sql("PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE").execute(&mut *holder).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), locked).await.expect("the file is never free");
    let ends = async {
        tokio::time::sleep(Duration::from_millis(2500)).await;
        sqlx::raw_sql("COMMIT").execute(&mut *holder).await.unwrap();
    };
    let (writer, ()) = tokio::join!(place.store.writer(), ends);
    write(&mut writer.unwrap(), [agent("a", "u", 1)]).await;
}

pub(super) async fn every_released_version_is_brought_up_to_date(place: &TestStore) {
    let steps: Vec<_> = MIGRATIONS.iter().copied().chain([NEXT]).collect();
    drop(place.store.writer().await.unwrap());
    for released in 1..=MIGRATIONS.len() {
        place.execute("DROP TABLE tools; DROP TABLE tool_servers; DROP TABLE workloads; DROP TABLE transitions").await;
        place.execute("DROP TABLE recif_migrations; DROP TABLE IF EXISTS more; DROP TABLE IF EXISTS usage").await;
        place.execute("DROP TABLE IF EXISTS spans").await;
        make(place, steps[..released].to_vec()).await.unwrap();
        place
            .execute(
                "INSERT INTO workloads (kind, namespace, name, uid, generation, resource_version, phase, spec, status, \
                 observed_at) VALUES ('Agent', 'ns', 'old', 'u', 1, 5, 'Running', '{}', '{}', '')",
            )
            .await;
        make(place, steps.clone()).await.unwrap();
        assert_eq!(workloads(place).await["old"], "u 5 {}");
        assert_eq!(place.table("SELECT colour FROM workloads").await, [["grey"]]);
        assert_eq!(versions(place).await.len(), steps.len());
        make(place, steps.clone()).await.unwrap();
        assert_eq!(versions(place).await.len(), steps.len(), "done once");
    }
}

pub(super) async fn a_step_that_fails_leaves_no_trace(place: &TestStore) {
    let steps: Vec<_> = MIGRATIONS.iter().copied().chain([NEXT, BROKEN]).collect();
    drop(place.store.writer().await.unwrap());
    assert!(make(place, steps.clone()).await.is_err());
    assert_eq!(versions(place).await.len(), MIGRATIONS.len());
    assert!(sqlx::query("SELECT colour FROM workloads").fetch_all(&place.pool).await.is_err());
    make(place, steps[..steps.len() - 1].to_vec()).await.unwrap();
    assert_eq!(versions(place).await.len(), MIGRATIONS.len() + 1);
}

pub(super) async fn tables_of_a_newer_program_are_refused(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    write(&mut writer, [agent("a", "u", 1)]).await;
    make(place, MIGRATIONS.iter().copied().chain([NEXT]).collect()).await.unwrap();
    let error = Store::open(&place.url).unwrap().writer().await.unwrap_err();
    let (found, known) = (MIGRATIONS.len() + 1, MIGRATIONS.len());
    assert_eq!(
        error.to_string(),
        format!(
            "the tables in the database are of version {found}, and this program knows versions up to {known}: run the \
             newer program, or give this one a database of its own"
        )
    );
    assert_eq!(workloads(place).await.len(), 1, "nothing was touched");
}
