//! Tests of servers and their tools, which are replaced as one.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::*;

/// Returns the sets to which the stored tools belong, and the number of tools.
async fn stored(place: &TestStore) -> (BTreeSet<String>, usize) {
    let rows = place.table("SELECT t.name, s.tools_digest FROM tools t, tool_servers s").await;
    let set = |row: &Vec<String>| {
        let name = row[0].split('-').next().unwrap_or_default().to_owned();
        assert_eq!(row[1], format!("digest of {name}"), "the digest is that of the tools");
        name
    };
    (rows.iter().map(set).collect(), rows.len())
}

/// Has ten processes write a set of tools each, in these versions, while another one reads.
async fn refresh_at_once(place: &TestStore, versions: [i64; 10]) {
    write(&mut place.store.writer().await.unwrap(), [server("s", 1, "start", 5)]).await;
    let done = Arc::new(AtomicBool::new(false));
    let writers = async {
        let mut tasks = tokio::task::JoinSet::new();
        for version in versions {
            let mut writer = place.store.writer().await.unwrap();
            let number = tasks.len();
            let batch = Batch {
                records: vec![server("s", version, &format!("set{number}"), 10 + number)],
                deletions: Vec::new(),
            };
            tasks.spawn(async move { writer.write(&batch).await });
        }
        while let Some(written) = tasks.join_next().await {
            written.unwrap().unwrap();
        }
        done.store(true, Ordering::Release);
    };
    let reader = async {
        while !done.load(Ordering::Acquire) {
            let (sets, tools) = stored(place).await;
            assert!(sets.len() == 1 && tools >= 5, "readers see one whole set: {sets:?}");
        }
    };
    tokio::join!(writers, reader);
}

pub(super) async fn ten_refreshes_at_once_leave_the_tools_of_the_newest(place: &TestStore) {
    refresh_at_once(place, [97, 105, 99, 100, 101, 103, 98, 104, 102, 96]).await;
    assert_eq!(stored(place).await, (BTreeSet::from(["set1".to_owned()]), 11));
}

pub(super) async fn ten_refreshes_of_one_version_leave_the_tools_of_one(place: &TestStore) {
    refresh_at_once(place, [100; 10]).await;
    let (sets, tools) = stored(place).await;
    let number: usize = sets.first().unwrap().strip_prefix("set").unwrap().parse().unwrap();
    assert_eq!((sets.len(), tools), (1, 10 + number));
}

pub(super) async fn tools_that_are_not_known_stay_and_come_later(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    write(&mut writer, [server("s", 1, "first", 2)]).await;
    // The server's status is seen before the ConfigMap to which it refers.
    let mut unknown = server("s", 2, "second", 0);
    unknown.server.as_mut().unwrap().tools = None;
    write(&mut writer, [unknown]).await;
    assert_eq!(stored(place).await, (BTreeSet::from(["first".to_owned()]), 2));
    assert_eq!(place.table("SELECT description FROM tool_servers").await, [["second"]]);
    write(&mut writer, [server("s", 2, "second", 3)]).await;
    assert_eq!(stored(place).await, (BTreeSet::from(["second".to_owned()]), 3));
    write(&mut writer, [server("s", 1, "first", 2)]).await;
    assert_eq!(stored(place).await, (BTreeSet::from(["second".to_owned()]), 3), "an older version is late");
    // Created again, and not queried yet.
    let mut again = server("s", 9, "", 0);
    (again.uid, again.server.as_mut().unwrap().tools) = ("new".into(), Some(ToolSet::default()));
    write(&mut writer, [again]).await;
    assert_eq!(stored(place).await.1, 0);
}

pub(super) async fn a_server_that_is_gone_takes_its_tools_along(place: &TestStore) {
    let mut writer = place.store.writer().await.unwrap();
    write(&mut writer, [server("s", 1, "first", 2), server("other", 2, "first", 2)]).await;
    remove(&mut writer, &server("s", 1, "first", 2)).await;
    assert_eq!(place.table("SELECT DISTINCT server_name FROM tools").await, [["other"]]);
}
