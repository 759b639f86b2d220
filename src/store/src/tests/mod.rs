//! Tests of the store on both databases: SQLite in a file, and a real PostgreSQL.

mod crash;
pub(crate) mod databases;
mod faults;
mod history;
mod migrations;
mod rows;
mod servers;
mod spans;
mod usage;

use std::{collections::BTreeMap, panic::AssertUnwindSafe};

use futures::FutureExt as _;
use jiff::Timestamp;

use self::databases::TestStore;
use super::{
    Batch, Deletion, ObjectKey, Record, ServerTool, StoredVersion, ToolServerRow, ToolSet, TransitionRow, Unconfirmed,
    WorkloadRow, Writer,
};
use testing::postgres;

/// Runs each case on SQLite as a test of its own, and all of them in databases of one PostgreSQL server.
macro_rules! on_both {
    ($($room:ident::$case:ident,)+) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $case() {
                super::$room::$case(&super::TestStore::sqlite()).await;
            })+
        }

        #[tokio::test]
        async fn postgres() {
            let server = postgres::PostgresServer::start().await;
            $(
                let place = TestStore::postgres(&server, stringify!($case)).await;
                let ended = AssertUnwindSafe($room::$case(&place)).catch_unwind().await;
                assert!(ended.is_ok(), "case {} on PostgreSQL", stringify!($case));
            )+
        }
    };
}

on_both! {
    rows::what_is_written_is_what_is_read,
    rows::versions_are_numbers,
    rows::a_late_version_of_an_old_uid_changes_nothing,
    rows::an_object_made_again_is_not_removed_with_its_predecessor,
    rows::a_deletion_takes_what_had_the_name_before_and_leaves_what_has_it_since,
    rows::nothing_of_a_batch_is_written_when_a_part_is_refused,
    rows::what_is_gone_is_removed_at_the_start,
    rows::a_restored_cluster_is_written_anew,
    rows::a_history_that_was_cleared_or_cannot_be_read_deletes_no_steps,
    rows::a_process_that_is_ahead_is_not_undone,
    rows::texts_of_every_kind_are_kept,
    rows::many_rows_are_written_at_once,
    servers::ten_refreshes_at_once_leave_the_tools_of_the_newest,
    servers::ten_refreshes_of_one_version_leave_the_tools_of_one,
    servers::tools_that_are_not_known_stay_and_come_later,
    servers::a_server_that_is_gone_takes_its_tools_along,
    history::steps_are_kept_once_and_outlive_their_object,
    history::the_fleets_steps_are_paged_newest_first,
    history::only_what_is_visible_is_read,
    history::old_steps_are_forgotten,
    migrations::several_processes_start_at_once,
    migrations::every_released_version_is_brought_up_to_date,
    migrations::a_step_that_fails_leaves_no_trace,
    migrations::tables_of_a_newer_program_are_refused,
    usage::reports_that_come_thrice_in_any_order_are_counted_once,
    usage::sums_are_those_of_what_is_asked_for,
    usage::old_cells_are_folded_and_forgotten,
    usage::a_cost_without_measure_keeps_no_other_one_from_being_summed,
    spans::the_first_span_of_an_id_stays,
    spans::a_span_of_the_platform_goes_before_one_that_has_its_ids,
    spans::runs_are_those_that_are_asked_for_and_visible,
    spans::old_spans_go_by_age_and_by_size,
    crash::a_process_killed_while_it_writes_leaves_a_whole_set,
}

fn key(kind: &'static str, name: &str) -> ObjectKey {
    ObjectKey { kind, namespace: "ns".into(), name: name.into() }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Creates a workload in that version.
fn agent(name: &str, uid: &str, version: i64) -> Record {
    let workload = WorkloadRow {
        generation: version,
        phase: "Running".into(),
        spec: format!(r#"{{"version":{version}}}"#),
        status: "{}".into(),
    };
    Record {
        key: key("Agent", name),
        uid: uid.into(),
        version,
        observed_at: at(version),
        workload: Some(workload),
        server: None,
        steps: Vec::new(),
    }
}

/// Creates a server in that version, with so many tools whose names begin with `set`.
fn server(name: &str, version: i64, set: &str, tools: usize) -> Record {
    let tool = |number| ServerTool {
        name: format!("{set}-{number}"),
        description: format!("tool {number} of {set}"),
        input_schema: r#"{"type":"object"}"#.into(),
    };
    let tools = ToolSet { digest: format!("digest of {set}"), tools: (0..tools).map(tool).collect() };
    let server = ToolServerRow {
        description: set.into(),
        protocol: "STREAMABLE_HTTP".into(),
        url: "http://h/mcp".into(),
        phase: "Available".into(),
        tools_changed_at: String::new(),
        tools: Some(tools),
    };
    let key = key("RemoteMCPServer", name);
    Record { key, workload: None, server: Some(server), ..agent(name, &format!("uid of {name}"), version) }
}

fn step(seq: i64, second: i64, to: &str) -> TransitionRow {
    TransitionRow {
        seq,
        at: at(second),
        from: "Pending".into(),
        to: to.into(),
        action: "accept".into(),
        reason: "valid".into(),
        took_ms: 3,
        trace_id: format!("trace-{seq}"),
    }
}

fn head(record: &Record) -> StoredVersion {
    let last_step = record.steps.last().map_or(0, |step| step.seq);
    StoredVersion { key: record.key.clone(), uid: record.uid.clone(), version: record.version, last_step }
}

async fn write(writer: &mut Writer, records: impl IntoIterator<Item = Record>) {
    let batch = Batch { records: records.into_iter().collect(), deletions: Vec::new() };
    writer.write(&batch).await.unwrap();
}

async fn remove(writer: &mut Writer, record: &Record) {
    let gone = vec![Deletion { key: record.key.clone(), uid: record.uid.clone(), version: record.version }];
    writer.write(&Batch { records: Vec::new(), deletions: gone }).await.unwrap();
}

/// Returns the workloads by name: uid, version, spec.
async fn workloads(place: &TestStore) -> BTreeMap<String, String> {
    let rows = place.table("SELECT name, uid, resource_version, spec FROM workloads").await;
    rows.into_iter().map(|mut row| (row.remove(0), row.join(" "))).collect()
}
