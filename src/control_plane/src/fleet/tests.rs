use serde_json::{Value, json};

use super::{testing::TestFleet, *};

/// Describes the next read of a feed, such as `a Running, -b`.
fn read_changes(feed: &mut Feed, limit: usize) -> String {
    match feed.read(limit) {
        None => String::new(),
        Some(Batch::Reset) => "reset".into(),
        Some(Batch::Changes(changes)) => {
            let one = |change: ChangedObject| match change.deleted {
                true => format!("-{}", change.record.key.name),
                false => format!("{} {}", change.record.key.name, change.record.phase.as_deref().unwrap_or_default()),
            };
            changes.into_iter().map(one).collect::<Vec<_>>().join(", ")
        }
    }
}

#[test]
fn a_reader_sees_the_newest_state_of_each_object_once() {
    let mut stage = TestFleet::new();
    stage.agent("ns", "a", "Pending");
    stage.agent("ns", "b", "Pending");
    let mut feed = stage.fleet.feed();
    assert_eq!(read_changes(&mut feed, 10), "a Pending, b Pending");
    for phase in ["Resolving", "Rendering", "Running"] {
        stage.agent("ns", "a", phase);
    }
    stage.delete("Agent", "ns", "b");
    assert_eq!(read_changes(&mut feed, 10), "a Running, -b");
    assert_eq!(read_changes(&mut feed, 10), "");
    stage.agent("ns", "b", "Pending");
    stage.delete("Agent", "ns", "b");
    stage.agent("ns", "b", "Running");
    assert_eq!(read_changes(&mut feed, 10), "b Running");
}

#[test]
fn a_reader_may_read_in_pieces_and_go_on_where_it_was() {
    let mut stage = TestFleet::new();
    ["a", "b", "c"].iter().for_each(|name| stage.agent("ns", name, "Running"));
    let mut feed = stage.fleet.feed();
    assert_eq!(read_changes(&mut feed, 2), "a Running, b Running");
    stage.agent("ns", "a", "Failed");
    let mut resumed = stage.fleet.feed_after(feed.position()).unwrap();
    assert_eq!(read_changes(&mut resumed, 9), "c Running, a Failed");
    assert!(stage.fleet.feed_after(resumed.position() + 1).is_none(), "of another epoch");
}

#[test]
fn a_reader_who_missed_deletions_that_are_forgotten_begins_anew() {
    let mut stage = TestFleet::new();
    stage.agent("ns", "stays", "Running");
    let mut feed = stage.fleet.feed();
    read_changes(&mut feed, 10);
    for number in 0..5000 {
        let name = format!("a{number}");
        stage.agent("ns", &name, "Pending");
        stage.delete("Agent", "ns", &name);
    }
    assert!(stage.fleet.feed_after(feed.position()).is_none());
    assert_eq!(read_changes(&mut feed, 10), "reset");
    assert!(read_changes(&mut feed, 10).starts_with("stays Running, -a"));
    let journal = &stage.fleet.lock().journal;
    assert!(journal.after(0, usize::MAX).len() <= 4097, "deletions do not pile up");
}

#[tokio::test]
async fn a_reader_who_waits_is_woken() {
    let mut stage = TestFleet::new();
    let mut feed = stage.fleet.feed();
    let waiting =
        tokio::spawn(async move { matches!(feed.next(1).await, Batch::Changes(changes) if changes.len() == 1) });
    tokio::task::yield_now().await;
    stage.agent("ns", "a", "Running");
    assert!(waiting.await.unwrap());
}

#[test]
fn a_namespace_has_a_workload_as_long_as_one_is_in_it() {
    let mut stage = TestFleet::new();
    let there = |stage: &TestFleet| ["a", "b", "b2"].map(|namespace| stage.fleet.has_workload_in(namespace));
    stage.put("Prompt", "a", "p", json!({ "content": "c" }), json!({ "phase": "Available" }));
    stage.agent("b2", "x", "Running");
    assert_eq!(there(&stage), [false, false, true]);
    stage.agent("b", "y", "Running");
    assert_eq!(there(&stage), [false, true, true]);
    stage.delete("Agent", "b", "y");
    assert_eq!(there(&stage), [false, false, true]);
}

#[test]
fn the_transitions_of_an_object_are_told_once_and_of_another_one_anew() {
    let mut stage = TestFleet::new();
    let history = |last: i64| {
        let entry =
            |seq: i64| json!({ "seq": seq, "at": "2026-01-01T00:00:00Z", "to": format!("P{seq}"), "action": "x" });
        json!({ "phase": "Pending", "history": (1..=last).map(entry).collect::<Vec<_>>() })
    };
    let seqs = |feed: &mut Feed| {
        let before = feed.position();
        feed.read(10);
        feed.transitions_after(before).iter().map(|found| found.entry.seq).collect::<Vec<_>>()
    };
    let mut feed = stage.fleet.feed();
    stage.put("Prompt", "ns", "p", json!({ "content": "c" }), history(2));
    assert_eq!(seqs(&mut feed), [1, 2]);
    stage.put("Prompt", "ns", "p", json!({ "content": "c" }), history(4));
    assert_eq!(seqs(&mut feed), [3, 4]);
    stage.put("Prompt", "ns", "p", json!({ "content": "d" }), history(4));
    assert_eq!(seqs(&mut feed), [0; 0]);
    stage.delete("Prompt", "ns", "p");
    stage.put("Prompt", "ns", "p", json!({ "content": "d" }), history(1));
    assert_eq!(seqs(&mut feed), [1]);
}

#[test]
fn tools_of_a_server_are_a_change_of_the_server() {
    let mut stage = TestFleet::new();
    let kind = ApiKind::find("RemoteMCPServer").unwrap();
    let key = Key::new("ns", "docs");
    stage.put("RemoteMCPServer", "ns", "docs", json!({ "url": "https://u:p@h/mcp" }), json!({ "toolCount": 1 }));
    let mut feed = stage.fleet.feed();
    read_changes(&mut feed, 10);
    stage.fleet.set_tools(kind, &key, Some("[]".into()));
    assert_eq!(read_changes(&mut feed, 10), "docs ");
    stage.fleet.set_tools(kind, &key, Some("[]".into()));
    assert_eq!(read_changes(&mut feed, 10), "");
    assert_eq!(stage.fleet.tools("RemoteMCPServer", &key).as_deref(), Some("[]"));
    let facts: Value =
        serde_json::from_slice(stage.fleet.get(kind, &key).unwrap().record.server.as_ref().unwrap()).unwrap();
    assert_eq!(facts, json!({ "toolCount": 1, "url": format!("https://{MASKED}@h/mcp"), "protocol": "" }));
}

#[test]
fn a_summary_says_what_a_list_shows() {
    let mut stage = TestFleet::new();
    stage.agent("team", "weather", "Running");
    stage.agent("team", "lost", "Failed");
    let kind = ApiKind::find("Agent").unwrap();
    let entry = stage.fleet.get(kind, &Key::new("team", "weather")).unwrap();
    let summary: Value = serde_json::from_slice(&entry.record.summary).unwrap();
    assert_eq!(
        summary,
        json!({
            "kind": "Agent", "namespace": "team", "name": "weather", "uid": "team-weather", "resourceVersion": "1",
            "generation": 1, "createdAt": "2026-01-01T00:00:00Z", "phase": "Running", "ready": "True", "reason": "Running",
            "message": "", "why": null, "since": null, "replicas": { "desired": 1, "ready": 0 },
            "columns": { "Model": "stub-echo" },
        })
    );
    let lost = stage.fleet.get(kind, &Key::new("team", "lost")).unwrap().record;
    let summary: Value = serde_json::from_slice(&lost.summary).unwrap();
    let status = lost.status();
    let metadata = serde_json::from_value(lost.object()["metadata"].take()).unwrap();
    assert_eq!(summary["why"], crds::why::why("Agent", &metadata, status.as_ref()).sentence);
}
