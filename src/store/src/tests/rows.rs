//! Tests of the rows of objects.

use super::*;

pub(super) async fn what_is_written_is_what_is_read(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    write(&mut writer, [agent("a", "u", 7), server("s", 8, "first", 2)]).await;
    assert_eq!(
        place.table("SELECT * FROM workloads").await,
        [["Agent", "ns", "a", "u", "7", "7", "Running", r#"{"version":7}"#, "{}", "2027-01-15T08:00:07.000000Z"]]
    );
    assert_eq!(
        place.table("SELECT * FROM tool_servers").await,
        [[
            "RemoteMCPServer",
            "ns",
            "s",
            "uid of s",
            "8",
            "digest of first",
            "first",
            "STREAMABLE_HTTP",
            "http://h/mcp",
            "Available",
            "",
        ]]
    );
    let schema = r#"{"type":"object"}"#;
    let tool = |name, text, position| ["RemoteMCPServer", "ns", "s", name, text, schema, position];
    assert_eq!(
        place.table("SELECT * FROM tools ORDER BY position").await,
        [tool("first-0", "tool 0 of first", "0"), tool("first-1", "tool 1 of first", "1")]
    );
}

pub(super) async fn versions_are_numbers(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    for version in [99, 100, 9] {
        write(&mut writer, [agent("a", "u", version)]).await;
    }
    assert_eq!(workloads(place).await["a"], r#"u 100 {"version":100}"#);
}

pub(super) async fn a_late_version_of_an_old_uid_changes_nothing(place: &TestStore) {
    let (mut one, mut other) = (place.store.writer().await.unwrap(), place.store.writer().await.unwrap());
    write(&mut one, [agent("a", "old", 5)]).await;
    // Deleted and created again; one process is ahead of the other.
    write(&mut one, [agent("a", "new", 9)]).await;
    write(&mut other, [agent("a", "old", 6)]).await;
    remove(&mut other, &agent("a", "old", 6)).await;
    assert_eq!(workloads(place).await["a"], r#"new 9 {"version":9}"#);
}

pub(super) async fn an_object_made_again_is_not_removed_with_its_predecessor(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    write(&mut writer, [agent("a", "old", 5)]).await;
    let gone = vec![Deletion { key: key("Agent", "a"), uid: "old".into(), version: 5 }];
    writer.write(&Batch { records: vec![agent("a", "new", 9)], deletions: gone }).await.unwrap();
    assert_eq!(workloads(place).await["a"], r#"new 9 {"version":9}"#);
    remove(&mut writer, &agent("a", "new", 9)).await;
    assert!(workloads(place).await.is_empty());
}

pub(super) async fn a_deletion_takes_what_had_the_name_before_and_leaves_what_has_it_since(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    write(&mut writer, [agent("a", "old", 3), agent("b", "newest", 9), agent("c", "u", 8), server("s", 3, "set", 1)])
        .await;
    let gone = |kind, name, uid: &str, version| Deletion { key: key(kind, name), uid: uid.into(), version };
    let gone = vec![
        // Deleted, created and deleted again between two writes: the object in between was never stored.
        gone("Agent", "a", "between", 7),
        // Created again, and another process was ahead.
        gone("Agent", "b", "old", 7),
        // Another process had stored a later version of it.
        gone("Agent", "c", "u", 7),
        gone("RemoteMCPServer", "s", "between", 7),
    ];
    writer.write(&Batch { records: Vec::new(), deletions: gone }).await.unwrap();
    assert_eq!(workloads(place).await, [("b".to_owned(), r#"newest 9 {"version":9}"#.to_owned())].into());
    assert!(place.table("SELECT name FROM tool_servers UNION ALL SELECT name FROM tools").await.is_empty());
}

pub(super) async fn nothing_of_a_batch_is_written_when_a_part_is_refused(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let mut twice = server("s", 1, "set", 1);
    if let Some(ToolSet { tools, .. }) = twice.server.as_mut().and_then(|server| server.tools.as_mut()) {
        tools.push(tools[0].clone());
    }
    let batch = Batch { records: vec![agent("a", "u", 1), twice], deletions: Vec::new() };
    assert!(writer.write(&batch).await.is_err(), "a tool twice");
    assert!(workloads(place).await.is_empty());
    assert!(place.table("SELECT name FROM tool_servers").await.is_empty());
}

pub(super) async fn what_is_gone_is_removed_at_the_start(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let (kept, changed) = (agent("kept", "u1", 1), agent("changed", "u2", 2));
    let elsewhere = Record { key: ObjectKey { namespace: "other".into(), ..key("Agent", "x") }, ..agent("x", "u4", 4) };
    write(&mut writer, [kept.clone(), changed, agent("gone", "u3", 3), elsewhere, server("s", 5, "set", 3)]).await;
    let listed = [head(&kept), head(&agent("changed", "u2", 6)), head(&agent("new", "u5", 7))];
    let mut fresh = place.store.writer().await.unwrap();
    let known = fresh.compare("Agent", &["ns".into()], &listed, &Unconfirmed::default()).await.unwrap();
    assert_eq!((known.removed, known.undone), (1, 0));
    assert!(known.unconfirmed.is_empty());
    assert_eq!(known.workloads.keys().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["kept"]);
    assert_eq!(workloads(place).await.keys().collect::<Vec<_>>(), ["changed", "kept", "x"], "another process has x");
    // Rows of other kinds are not affected.
    assert_eq!(look(&mut fresh, "RemoteMCPServer", &[], 2).await.removed, 1);
    assert!(place.table("SELECT name FROM tools").await.is_empty());
}

pub(super) async fn a_restored_cluster_is_written_anew(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let mut later = agent("a", "u", 500);
    later.steps = vec![step(1, 1, "Pending"), step(2, 2, "Resolving"), step(3, 3, "Running"), step(4, 4, "Failed")];
    write(&mut writer, [later, agent("made since", "v", 502), server("s", 501, "later", 3)]).await;

    // Content of the backup; the second step differs from the stored one.
    let mut restored = agent("a", "u", 40);
    restored.steps = vec![step(1, 1, "Pending"), step(2, 9, "Rendering")];
    let restored_server = server("s", 41, "backup", 2);
    let known = look(&mut writer, "Agent", &[head(&restored)], 2).await;
    assert_eq!((known.removed, known.undone, known.workloads.len(), known.last_steps.len()), (1, 1, 0, 0));
    assert_eq!(look(&mut writer, "RemoteMCPServer", &[head(&restored_server)], 2).await.undone, 1);
    assert_eq!(workloads(place).await.len(), 1, "the row can be read all the time");
    write(&mut writer, [restored, restored_server]).await;

    assert_eq!(workloads(place).await["a"], r#"u 40 {"version":40}"#);
    let steps = place.table("SELECT seq, \"to\" FROM transitions ORDER BY seq").await;
    assert_eq!(steps, [["1", "Pending"], ["2", "Rendering"]]);
    assert_eq!(place.table("SELECT name FROM tools ORDER BY position").await, [["backup-0"], ["backup-1"]]);
}

pub(super) async fn a_history_that_was_cleared_or_cannot_be_read_deletes_no_steps(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let steps = |last| (1..=last).map(|seq| step(seq, seq, "Running")).collect();
    let with_steps = |version, last| Record { steps: steps(last), ..agent("a", "u", version) };
    write(&mut writer, [with_steps(5, 3)]).await;
    for last in [0, 1] {
        let known = look(&mut writer, "Agent", &[head(&with_steps(6, last))], 3).await;
        assert!(known.unconfirmed.is_empty(), "{known:?}");
    }
    // Restored, with an unknown status.
    let known = look(&mut writer, "Agent", &[head(&with_steps(4, 0))], 2).await;
    assert_eq!(known.undone, 1);
    assert_eq!(place.table("SELECT seq FROM transitions ORDER BY seq").await, [["1"], ["2"], ["3"]]);
}

pub(super) async fn a_process_that_is_ahead_is_not_undone(place: &TestStore) {
    let mut ahead = place.store.writer().await.unwrap();
    let moved = |version, last| Record { steps: vec![step(last, last, "Running")], ..agent("a", "u", version) };
    write(&mut ahead, [moved(9, 2), agent("made since", "v", 10)]).await;
    let mut late = place.store.writer().await.unwrap();
    let known = look(&mut late, "Agent", &[head(&moved(5, 1))], 1).await;
    assert_eq!((known.removed, known.undone), (0, 0));
    // The rows that were unconfirmed in the first comparison have changed since: another process is writing.
    write(&mut ahead, [moved(11, 3), agent("made since", "v", 12)]).await;
    let known = late.compare("Agent", &[], &[head(&moved(9, 2))], &known.unconfirmed).await.unwrap();
    assert_eq!((known.removed, known.undone), (0, 0));
    assert_eq!(workloads(place).await.len(), 2);
    assert_eq!(place.table("SELECT seq FROM transitions ORDER BY seq").await, [["2"], ["3"]]);
}

/// Compares the same list so many times.
async fn look(
    writer: &mut Writer,
    kind: &'static str,
    listed: &[StoredVersion],
    times: usize,
) -> crate::KindComparison {
    let mut known = crate::KindComparison::default();
    for _ in 0..times {
        known = writer.compare(kind, &[], listed, &known.unconfirmed).await.unwrap();
    }
    known
}

pub(super) async fn texts_of_every_kind_are_kept(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let mut record = agent("a", "u", 1);
    let spec = r#"{"text":"quo'te \" \u0000 $1 ? % é 漢 \\"}"#;
    record.workload.as_mut().unwrap().spec = spec.into();
    record.steps = vec![TransitionRow { reason: "a NUL \0 and a 'quote'".into(), ..step(1, 1, "Failed") }];
    write(&mut writer, [record]).await;
    assert_eq!(place.table("SELECT spec FROM workloads").await, [[spec]]);
    assert_eq!(place.table("SELECT reason FROM transitions").await, [["a NUL \u{fffd} and a 'quote'"]]);
}

pub(super) async fn many_rows_are_written_at_once(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    let many = |version| (0..1000).map(move |number| agent(&format!("a{number}"), &format!("u{number}"), version));
    write(&mut writer, many(1)).await;
    write(&mut writer, many(2)).await;
    assert!(workloads(place).await.values().all(|row| row.ends_with(r#" 2 {"version":2}"#)));
    let gone = many(2).map(|record| Deletion { key: record.key, uid: record.uid, version: record.version }).collect();
    writer.write(&Batch { records: Vec::new(), deletions: gone }).await.unwrap();
    assert!(workloads(place).await.is_empty());
}

#[tokio::test]
async fn sqlite_finds_what_it_deletes_by_the_index() {
    let place = TestStore::sqlite();
    drop(place.store.writer().await.unwrap());
    let gone: Vec<Deletion> = (0..200)
        .map(|number| Deletion { key: key("Agent", &format!("a{number}")), uid: "u".into(), version: 1 })
        .collect();
    for table in
        ["EXPLAIN QUERY PLAN DELETE FROM workloads WHERE ", "EXPLAIN QUERY PLAN DELETE FROM tool_servers WHERE "]
    {
        let plan = crate::write::removal(table, &gone.iter().collect::<Vec<_>>()).query(false);
        let plan = plan.fetch_all(&place.pool).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| sqlx::Row::get(row, "detail")).collect();
        let searches =
            plan.iter().filter(|line| line.starts_with("SEARCH") && line.contains("kind=? AND namespace=? AND name=?"));
        assert_eq!(searches.count(), gone.len(), "{plan:?}");
        assert!(plan.iter().all(|line| !line.starts_with("SCAN")), "{plan:?}");
    }
}
