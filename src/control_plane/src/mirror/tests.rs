//! Tests of the mirror on real databases, fed by a fleet that the tests change.

use std::collections::BTreeMap;

use cluster::{Change, ChangeSource, ObjectVersion as VersionHead};
use crds::digest::sha256_hex;
use meta::Key;
use prometheus_client::registry::Registry;
use serde_json::json;
use testing::{database::TestDatabase, postgres::PostgresServer};
use tokio::task::AbortHandle;

use super::*;
use crate::fleet::{Column, MASKED, row, testing::TestFleet};

const DEADLINE: Duration = Duration::from_secs(60);

/// Running mirror, stopped on drop.
struct RunningMirror {
    state: Arc<MirrorState>,
    fleet: Arc<FleetCache>,
    tasks: [AbortHandle; 2],
}

impl Drop for RunningMirror {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

fn start(stage: &TestFleet, database: &TestDatabase) -> RunningMirror {
    let board = Arc::new(WatchHealth::default());
    let watch = |kind: &crds::ApiKind| format!("watch {}", Resource::custom(kind.name).unwrap().collection(None));
    let watches: Vec<usize> = KINDS.iter().map(|kind| board.add_started(watch(kind))).collect();
    let heard = board.clone();
    let hear = async move {
        loop {
            watches.iter().for_each(|watch| heard.record_activity(*watch));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (fleet, state) = (stage.fleet.clone(), Arc::new(MirrorState::default()));
    let mirror = Mirror {
        fleet: fleet.clone(),
        store: Arc::new(Store::open(&database.url.parse().unwrap()).unwrap()),
        watch_health: board,
        namespaces: Vec::new(),
        history: Duration::from_secs(365 * 24 * 3600 * 100),
        state: state.clone(),
        metrics: MirrorMetrics::new(&mut Registry::default()),
    };
    let tasks = [tokio::spawn(hear).abort_handle(), tokio::spawn(mirror.run()).abort_handle()];
    RunningMirror { state, fleet, tasks }
}

type MirrorRows = BTreeMap<String, Vec<String>>;

/// Returns the rows that have to be stored for the fleet.
fn expected(stage: &TestFleet) -> MirrorRows {
    let (_, all) = stage.fleet.snapshot();
    let workloads = all.iter().filter(|record| record.kind.role == Role::Workload);
    let row = |record: &Arc<Record>| {
        let object = record.object();
        let name = format!("{} {}/{}", record.kind.name, record.key.namespace, record.key.name);
        (
            name,
            vec![
                record.uid.to_string(),
                record.version.to_string(),
                object["spec"].to_string(),
                object["status"].to_string(),
            ],
        )
    };
    workloads.map(row).collect()
}

async fn stored(database: &TestDatabase) -> MirrorRows {
    let query = "SELECT kind, namespace, name, uid, resource_version, spec, status FROM workloads";
    let rows = database.table(query).await;
    rows.into_iter().map(|row| (format!("{} {}/{}", row[0], row[1], row[2]), row[3..].to_vec())).collect()
}

/// Waits until the stored rows match the fleet.
async fn settled(stage: &TestFleet, database: &TestDatabase, mirror: &RunningMirror) {
    let equal = async {
        loop {
            let caught_up = mirror.state.behind(&mirror.fleet) == Duration::ZERO && mirror.state.position().is_some();
            if caught_up && !mirror.state.is_failing() && stored(database).await == expected(stage) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(DEADLINE, equal).await.is_err() {
        assert_eq!(stored(database).await, expected(stage), "{:?}", mirror.state);
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, so).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Creates objects of several kinds.
fn fill(stage: &mut TestFleet) {
    (0..40).for_each(|number| stage.agent("ns", &format!("a{number}"), "Pending"));
    stage.put("Tool", "ns", "t", json!({}), history("Available", 1..=2));
}

fn history(phase: &str, seqs: impl IntoIterator<Item = i64>) -> serde_json::Value {
    let entry =
        |seq| json!({ "seq": seq, "at": format!("2026-01-01T00:00:{seq:02}Z"), "to": phase, "action": "check" });
    json!({ "phase": phase, "history": seqs.into_iter().map(entry).collect::<Vec<_>>() })
}

async fn steps(database: &TestDatabase, name: &str) -> Vec<i64> {
    let rows = database.table("SELECT name, seq FROM transitions ORDER BY seq").await;
    rows.into_iter().filter(|row| row[0] == name).map(|row| row[1].parse().unwrap()).collect()
}

/// Creates and deletes so many agents.
fn come_and_go(fleet: &FleetCache, many: usize) {
    let kind = crds::ApiKind::find("Agent").unwrap();
    let (row, columns) = (row(kind).unwrap(), Column::of(kind));
    for number in 0..many {
        let key = Key::new("ns", format!("b{number}"));
        let head = VersionHead { key: key.clone(), uid: key.name.clone(), resource_version: u64::MAX / 2 };
        let record = Record::read(row, &columns, &head, r#"{"metadata":{},"spec":{}}"#).unwrap();
        let record = Some(Arc::new(record));
        let change = |old, new| Change { key: key.clone(), old, new, source: ChangeSource::Watch };
        fleet.apply_change(row, &change(None, record.clone()));
        fleet.apply_change(row, &change(record, None));
    }
}

async fn until_steps(database: &TestDatabase, name: &str, expected: &[i64]) {
    let so = async {
        while steps(database, name).await != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(DEADLINE, so).await.is_err() {
        assert_eq!(steps(database, name).await, expected);
    }
}

async fn what_there_is_and_every_change_of_it_is_stored(database: &TestDatabase) {
    let mut stage = TestFleet::new();
    fill(&mut stage);
    // More objects than fit into one transaction.
    (40..250).for_each(|number| stage.agent("ns", &format!("a{number}"), "Pending"));
    let mirror = start(&stage, database);
    settled(&stage, database, &mirror).await;
    assert_eq!(steps(database, "t").await, [1, 2]);
    (0..20).for_each(|number| stage.agent("ns", &format!("a{number}"), "Running"));
    (20..40).for_each(|number| stage.delete("Agent", "ns", &format!("a{number}")));
    // Created again under the same name; created and deleted at once.
    stage.agent("ns", "a30", "Failed");
    stage.put("Flow", "ns", "f", json!({}), history("Failed", 1..=3));
    stage.delete("Flow", "ns", "f");
    stage.put("Tool", "ns", "t", json!({}), history("Error", [2, 3, 7]));
    settled(&stage, database, &mirror).await;
    assert_eq!(steps(database, "t").await, [1, 2, 3, 7]);
    assert_eq!(steps(database, "f").await, [1, 2, 3], "what happened to it is known, though it is gone");
}

async fn tools_are_those_of_the_config_map_that_the_status_speaks_of(database: &TestDatabase) {
    let (first, second) = (r#"[{"name":"a"},{"name":"b"}]"#, r#"[{"name":"c"}]"#);
    let reported = |text: &str| json!({ "phase": "Available", "toolsDigest": sha256_hex(text.as_bytes()) });
    let spec = json!({ "url": "https://user:SECRET@h/mcp", "protocol": "SSE", "description": "d" });
    let mut stage = TestFleet::new();
    let (kind, key) = (crds::ApiKind::find("RemoteMCPServer").unwrap(), Key::new("ns", "s"));
    let mirror = start(&stage, database);
    stage.put(kind.name, "ns", "s", spec.clone(), reported(first));
    stage.fleet.set_tools(kind, &key, Some(first.into()));
    settled(&stage, database, &mirror).await;
    let tools = async || database.table("SELECT name FROM tools ORDER BY position").await;
    assert_eq!(tools().await, [["a"], ["b"]]);
    let query = "SELECT description, protocol, url, phase FROM tool_servers";
    assert_eq!(database.table(query).await, [["d", "SSE", &format!("https://{MASKED}@h/mcp"), "Available"]]);
    // The status is seen before the ConfigMap.
    stage.put(kind.name, "ns", "s", spec, reported(second));
    settled(&stage, database, &mirror).await;
    assert_eq!(tools().await, [["a"], ["b"]]);
    stage.fleet.set_tools(kind, &key, Some(second.into()));
    settled(&stage, database, &mirror).await;
    assert_eq!(tools().await, [["c"]]);
    stage.delete(kind.name, "ns", "s");
    settled(&stage, database, &mirror).await;
    assert!(tools().await.is_empty());
}

async fn rows_of_objects_that_are_gone_are_removed_at_the_start(database: &TestDatabase) {
    let mut stage = TestFleet::new();
    fill(&mut stage);
    settled(&stage, database, &start(&stage, database)).await;
    (0..20).for_each(|number| stage.delete("Agent", "ns", &format!("a{number}")));
    stage.agent("ns", "a30", "Running");
    settled(&stage, database, &start(&stage, database)).await;
}

async fn a_restored_cluster_replaces_what_is_stored(database: &TestDatabase) {
    let mut stage = TestFleet::new();
    fill(&mut stage);
    let mut backup = TestFleet::new();
    backup.put("Agent", "ns", "a1", json!({}), history("Running", [1]));
    backup.put("Tool", "ns", "t", json!({}), history("Available", [1]));
    stage.put("Agent", "ns", "a1", json!({}), history("Failed", 1..=3));
    settled(&stage, database, &start(&stage, database)).await;
    let mirror = start(&backup, database);
    settled(&backup, database, &mirror).await;
    until_steps(database, "a1", &[1]).await;
    assert_eq!(steps(database, "t").await, [1, 2], "no row tells that it went back");
}

async fn two_mirrors_on_one_database_agree(database: &TestDatabase) {
    let mut stage = TestFleet::new();
    fill(&mut stage);
    let (one, other) = (start(&stage, database), start(&stage, database));
    for round in 0..20 {
        for number in 0..40 {
            let name = format!("a{number}");
            match (number + round) % 7 {
                0 => stage.delete("Agent", "ns", &name),
                _ => stage.agent("ns", &name, if round % 2 == 0 { "Running" } else { "Failed" }),
            }
        }
        stage.put("Tool", "ns", "t", json!({}), history("Available", 1..=i64::from(round) + 2));
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    settled(&stage, database, &one).await;
    settled(&stage, database, &other).await;
    assert_eq!(steps(database, "t").await, (1..=21).collect::<Vec<_>>());
    drop(one);
    stage.agent("ns", "a0", "Terminated");
    settled(&stage, database, &other).await;
}

async fn old_transitions_are_deleted_from_the_first_moment(database: &TestDatabase) {
    let mut stage = TestFleet::new();
    fill(&mut stage);
    settled(&stage, database, &start(&stage, database)).await;
    database
        .execute(
            "INSERT INTO transitions SELECT 'gone', seq, kind, namespace, 'old', '1900-01-01T00:00:00.000000Z', \
             \"from\", \"to\", action, reason, took_ms, trace_id FROM transitions",
        )
        .await;
    assert_eq!(steps(database, "old").await, [1, 2]);
    let _mirror = start(&stage, database);
    until_steps(database, "old", &[]).await;
    assert_eq!(steps(database, "t").await, [1, 2]);
}

macro_rules! on_both {
    ($($case:ident,)+) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&super::TestDatabase::sqlite()).await;
            })+
        }

        #[tokio::test]
        async fn postgres() {
            let server = PostgresServer::start().await;
            $($case(&TestDatabase::postgres(&server, stringify!($case)).await).await;)+
        }
    };
}

on_both! {
    what_there_is_and_every_change_of_it_is_stored,
    tools_are_those_of_the_config_map_that_the_status_speaks_of,
    rows_of_objects_that_are_gone_are_removed_at_the_start,
    a_restored_cluster_replaces_what_is_stored,
    two_mirrors_on_one_database_agree,
    old_transitions_are_deleted_from_the_first_moment,
}

#[tokio::test]
async fn a_database_that_is_away_is_caught_up_with_when_it_is_back() {
    let mut server = PostgresServer::start().await;
    let database = TestDatabase::postgres(&server, "away").await;
    server.stop();
    let mut stage = TestFleet::new();
    fill(&mut stage);
    let mirror = start(&stage, &database);
    until("the database is missed", || mirror.state.is_failing()).await;
    assert!(mirror.state.behind(&mirror.fleet) > Duration::ZERO);
    let [note] = mirror.state.notes(&mirror.fleet).try_into().unwrap();
    assert!(
        note.starts_with("database: unavailable (the database does not answer); ") && note.ends_with(" s behind"),
        "{note}"
    );
    server.resume().await;
    settled(&stage, &database, &mirror).await;
    assert_eq!(mirror.state.notes(&mirror.fleet), [""; 0]);

    // The database stops while the mirror runs. An object that is deleted meanwhile has its last steps stored.
    stage.put("Flow", "ns", "f", json!({}), history("Running", [1]));
    settled(&stage, &database, &mirror).await;
    server.stop();
    stage.put("Flow", "ns", "f", json!({}), history("Failed", [1, 2]));
    stage.delete("Flow", "ns", "f");
    (0..10).for_each(|number| stage.agent("ns", &format!("a{number}"), "Running"));
    until("the database is missed", || mirror.state.is_failing()).await;
    (10..20).for_each(|number| stage.delete("Agent", "ns", &format!("a{number}")));
    server.resume().await;
    settled(&stage, &database, &mirror).await;
    assert_eq!(steps(&database, "f").await, [1, 2]);

    // More deletions than the journal remembers.
    server.stop();
    stage.delete("Agent", "ns", "a0");
    come_and_go(&stage.fleet, 5000);
    until("the database is missed", || mirror.state.is_failing()).await;
    server.resume().await;
    settled(&stage, &database, &mirror).await;
}

#[tokio::test]
async fn a_database_that_lost_everything_is_filled_again() {
    let server = PostgresServer::start().await;
    let database = TestDatabase::postgres(&server, "lost").await;
    let mut stage = TestFleet::new();
    fill(&mut stage);
    let mirror = start(&stage, &database);
    settled(&stage, &database, &mirror).await;
    database.execute("DELETE FROM workloads; DELETE FROM transitions").await;
    database
        .execute(
            "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity \
             WHERE application_name = 'recif-control-plane' AND datname = current_database()",
        )
        .await;
    stage.agent("ns", "a1", "Running");
    settled(&stage, &database, &mirror).await;
    assert_eq!(steps(&database, "t").await, [1, 2]);
}

#[tokio::test]
async fn a_locked_file_is_caught_up_with_when_it_is_free() {
    let database = TestDatabase::sqlite();
    let mut stage = TestFleet::new();
    fill(&mut stage);
    let mirror = start(&stage, &database);
    settled(&stage, &database, &mirror).await;
    let holder = database.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    stage.agent("ns", "a1", "Running");
    until("the file is missed", || mirror.state.is_failing()).await;
    stage.agent("ns", "a2", "Running");
    assert!(mirror.state.notes(&mirror.fleet)[0].ends_with(" s behind"), "how it fails is not for everybody");
    holder.rollback().await.unwrap();
    settled(&stage, &database, &mirror).await;
}

#[tokio::test]
async fn credentials_are_not_stored() {
    let database = TestDatabase::sqlite();
    let mut stage = TestFleet::new();
    let spec = json!({ "databaseUrl": "postgresql://u:SECRET@h/d", "env": [{ "name": "API_KEY", "value": "SECRET" }] });
    stage.put("Agent", "ns", "a", spec, json!({}));
    settled(&stage, &database, &start(&stage, &database)).await;
    let rows = database.table("SELECT spec, status FROM workloads").await;
    assert!(rows[0][0].contains(MASKED) && !rows[0][0].contains("SECRET"), "{rows:?}");
}
