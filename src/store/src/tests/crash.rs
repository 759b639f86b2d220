//! Test of a process that is killed in the middle of a transaction: readers never see half of it.

use std::{
    env,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use super::*;
use crate::{DatabaseUrl, Store};

/// Environment variable with the URL of the database; it marks this process as the one to be killed.
const CHILD: &str = "RECIF_STORE_CHILD";

/// Replaces tools as fast as it can, until it is killed. Returns at once in an ordinary run, which sets no URL.
#[tokio::test]
async fn child() {
    let Ok(url) = env::var(CHILD) else { return };
    let url: DatabaseUrl = url.parse().unwrap();
    let mut writer = Store::open(&url).unwrap().writer().await.unwrap();
    let start: i64 = env::var("RECIF_STORE_VERSION").unwrap().parse().unwrap();
    for version in start.. {
        let name = format!("set{version}");
        write(&mut writer, [server("s", version, &name, 300), agent("a", "u", version)]).await;
        println!("wrote {version}");
    }
}

fn start(place: &TestStore, version: i64) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "tests::crash::child", "--nocapture"]);
    command.env(CHILD, &place.database.url).env("RECIF_STORE_VERSION", version.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

pub(super) async fn a_process_killed_while_it_writes_leaves_a_whole_set(place: &TestStore) {
    let mut last = 1;
    for round in 0..6_u64 {
        let mut child = start(place, last + 1);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The child writes all the time, so whenever it is killed it is most likely within a transaction.
        let wrote = |line: Result<String, _>| line.unwrap().strip_prefix("wrote ").map(|it| it.parse::<i64>().unwrap());
        let reported = lines.filter_map(wrote).nth(3).unwrap();
        tokio::time::sleep(std::time::Duration::from_micros(700 * round)).await;
        child.kill().unwrap();
        child.wait().unwrap();

        // A database server may still execute the child's last statements. An older version changes nothing, but waits for the
        // row locks.
        let mut writer = Store::open(&place.url).unwrap().writer().await.unwrap();
        write(&mut writer, [agent("a", "u", 0), server("s", 0, "older", 0)]).await;
        let rows = place.table("SELECT resource_version FROM tool_servers").await;
        last = rows[0][0].parse().unwrap();
        assert!(last >= reported, "what was reported as written is there");
        let tools = place.table("SELECT name FROM tools").await;
        assert_eq!(tools.len(), 300);
        assert!(tools.iter().all(|tool| tool[0].starts_with(&format!("set{last}-"))), "one set: {last}");
        assert_eq!(workloads(place).await["a"], format!(r#"u {last} {{"version":{last}}}"#), "of one transaction");
    }
}
