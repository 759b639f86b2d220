use std::{
    path::PathBuf,
    sync::Mutex,
    time::{Duration, Instant},
};

use rustix::process::kill_process;
use tokio::time::timeout;

use super::*;
use crate::testing::TestFolder;

/// Runs a script of bash and returns the process and its lines.
fn start(script: &str, folder: &TestFolder) -> (Process, Arc<Mutex<Vec<String>>>) {
    let arguments = ["-c".to_owned(), script.to_owned()];
    let variables = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = seen.clone();
    let lines: Lines = Arc::new(move |line| sink.lock().unwrap().push(line.to_owned()));
    let program = PathBuf::from("/bin/bash");
    let launch = Launch { program: &program, arguments: &arguments, variables: &variables, folder: folder.path() };
    let leftovers = Leftovers::new(folder.path().join("processes"));
    let mut process = Process::start(&launch, &leftovers).unwrap();
    process.read(&lines);
    (process, seen)
}

async fn run(script: &str) -> (ProcessExit, Vec<String>) {
    let folder = TestFolder::new();
    let (mut process, lines) = start(script, &folder);
    let exit = timeout(Duration::from_secs(20), process.wait()).await.unwrap();
    let lines = lines.lock().unwrap().clone();
    (exit, lines)
}

#[tokio::test]
async fn every_line_is_read_even_half_of_one_and_how_it_ended() {
    for (script, exit, lines) in [
        ("echo a; echo b >&2", ProcessExit { code: 0, signal: None }, vec!["a", "b"]),
        ("printf 'a\\r\\n\\nb'; exit 3", ProcessExit { code: 3, signal: None }, vec!["a", "", "b"]),
        ("kill -9 $$", ProcessExit { code: 137, signal: Some(9) }, vec![]),
    ] {
        let (found, mut seen) = run(script).await;
        if script.contains(">&2") {
            seen.sort();
        }
        assert_eq!((found, seen.iter().map(String::as_str).collect::<Vec<_>>()), (exit, lines), "{script}");
    }
}

#[tokio::test]
async fn a_process_is_not_held_up_by_its_output() {
    let (exit, lines) = run("for i in {1..20000}; do echo 0123456789012345678901234567890123456789; done").await;
    assert_eq!((exit.code, lines.len()), (0, 20000));
    let (_, lines) = run("head -c 150000 /dev/zero | tr '\\0' x").await;
    assert!(lines.len() >= 2 && lines.iter().all(|line| line.len() < MAX_LINE + BUFFER), "{}", lines.len());
    assert_eq!(lines.iter().map(String::len).sum::<usize>(), 150_000);
}

#[tokio::test]
async fn the_environment_is_what_it_is_given_and_one_mark() {
    let (_, lines) = run("env | cut -d= -f1 | sort").await;
    let own = ["PWD", "SHLVL", "_"];
    let given: Vec<_> = lines.iter().filter(|name| !own.contains(&name.as_str())).collect();
    assert_eq!(given, ["PATH", "RECIF_DEV_RUN"]);
}

#[tokio::test]
async fn what_it_left_in_its_group_ends_with_it() {
    let (exit, lines) = run("sleep 1000 & echo $!").await;
    assert_eq!(exit.code, 0);
    let child: i32 = lines[0].parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while std::path::Path::new(&format!("/proc/{child}/fd/0")).exists() {
        assert!(Instant::now() < deadline, "the child still runs");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Ends the process whose number a script has written into the file `here`.
fn kill_other(folder: &TestFolder) {
    let pid = std::fs::read_to_string(folder.path().join("here")).unwrap().trim().parse().unwrap();
    // It may have ended with the one that read its output.
    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}

#[tokio::test]
async fn the_end_of_a_process_loses_no_output_and_waits_for_no_other_process_that_has_it() {
    for (script, last) in
        [("printf 'half a line'", "half a line"), ("head -c 60000 /dev/zero | tr '\\0' x; echo; echo last", "last")]
    {
        let folder = TestFolder::new();
        let other = "setsid sh -c 'echo $$ >here; exec sleep 600' & while [ ! -s here ]; do sleep 0.01; done";
        let (mut process, lines) = start(&format!("{other}; {script}"), &folder);
        let waited = timeout(Duration::from_secs(20), process.wait()).await;
        kill_other(&folder);
        assert!(waited.is_ok(), "the other one was waited for: {script}");
        assert_eq!(lines.lock().unwrap().last().map(String::as_str), Some(last));
    }
}

#[tokio::test]
async fn another_process_that_writes_without_end_does_not_keep_it() {
    let folder = TestFolder::new();
    let other = "setsid sh -c 'echo y; echo $$ >here; exec yes' & while [ ! -s here ]; do sleep 0.01; done";
    let (mut process, lines) = start(&format!("{other}; sleep 0.1"), &folder);
    let waited = timeout(Duration::from_secs(20), process.wait()).await;
    kill_other(&folder);
    assert!(waited.is_ok(), "the other one was waited for");
    assert!(lines.lock().unwrap().iter().any(|line| line == "y"));
}

#[tokio::test]
async fn a_signal_reaches_the_whole_group() {
    let folder = TestFolder::new();
    let script = "trap 'wait; echo leader; exit 0' TERM; (trap 'echo child; exit 0' TERM; echo up; while :; do sleep 0.01; done) & wait";
    let (mut process, lines) = start(script, &folder);
    while lines.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    process.signal(Signal::TERM);
    process.wait().await;
    let mut seen = lines.lock().unwrap().clone();
    // The shell may tell of what it waited for.
    seen.retain(|line| line != "Terminated");
    assert_eq!(seen, ["up", "child", "leader"]);
}

#[tokio::test]
async fn a_dropped_process_is_killed() {
    let folder = TestFolder::new();
    let (process, lines) = start("echo $$; sleep 1000", &folder);
    while lines.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let pid: i32 = lines.lock().unwrap()[0].parse().unwrap();
    drop(process);
    let deadline = Instant::now() + Duration::from_secs(5);
    // A zombie has no files any more.
    while std::path::Path::new(&format!("/proc/{pid}/fd/0")).exists() {
        assert!(Instant::now() < deadline, "it still runs");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
