//! Processes that a killed node left behind: the file `processes` holds each group with its start time, and the next start ends them.
//! All use of `/proc` is here; elsewhere than on Linux nothing is found, so nothing is ended.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::time::sleep;

/// Variable by which the processes of one run of the node are known, whatever became of the first one of their group.
const VARIABLE: &str = "RECIF_DEV_RUN";
/// Time that leftovers get to end by SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which it is checked whether they have.
const INTERVAL: Duration = Duration::from_millis(20);

/// Groups that run now, kept in a file.
#[derive(Debug, Clone)]
pub(crate) struct Leftovers(Arc<ProcessGroups>);

#[derive(Debug)]
struct ProcessGroups {
    path: PathBuf,
    run: String,
    /// Start time by group.
    groups: Mutex<BTreeMap<i32, u64>>,
}

/// Keeps a group in the file until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    leftovers: Leftovers,
    group: i32,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.leftovers.change(|groups| {
            groups.remove(&self.group);
        });
    }
}

impl Leftovers {
    /// Makes an empty list that is kept in this file.
    pub(crate) fn new(path: PathBuf) -> Self {
        let mut bytes = [0; 16];
        // Without random numbers the runs are not distinguished, and their groups are still known by the start time.
        let _ = getrandom::fill(&mut bytes);
        Self(Arc::new(ProcessGroups { path, run: hex::encode(bytes), groups: Mutex::default() }))
    }

    /// Returns the variable that every process gets, and its value.
    pub(crate) fn variable(&self) -> (&'static str, &str) {
        (VARIABLE, &self.0.run)
    }

    /// Adds a group.
    pub(crate) fn register(&self, group: Pid) -> Registration {
        let group = group.as_raw_nonzero().get();
        let start = stat(group).map_or(0, |(_, start)| start);
        self.change(|groups| {
            groups.insert(group, start);
        });
        Registration { leftovers: self.clone(), group }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<i32, u64>)) {
        let mut groups = self.0.groups.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut groups);
        let lines: String = groups.iter().map(|(group, start)| format!("{group} {start} {}\n", self.0.run)).collect();
        if let Err(error) = write(&self.0.path, &lines) {
            tracing::warn!(%error, "the list of processes {} is not written", self.0.path.display());
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

/// Ends the groups that the file of an earlier run names, if they are the same ones still.
pub(crate) async fn end(path: &Path) {
    let text = fs::read_to_string(path).unwrap_or_default();
    let groups: Vec<Pid> = text.lines().filter_map(left).collect();
    let signal = |signal| {
        for group in &groups {
            // Fails if the group is empty by now.
            let _ = kill_process_group(*group, signal);
        }
    };
    signal(Signal::TERM);
    let mut waited = Duration::ZERO;
    while waited < PATIENCE && groups.iter().any(|group| test_kill_process_group(*group).is_ok()) {
        sleep(INTERVAL).await;
        waited += INTERVAL;
    }
    signal(Signal::KILL);
}

/// Returns the group of a line of the file, if a process of it still runs.
fn left(line: &str) -> Option<Pid> {
    let mut words = line.split(' ');
    let group: i32 = words.next()?.parse().ok()?;
    let start: u64 = words.next()?.parse().ok()?;
    let run = words.next()?;
    let is_same = match stat(group) {
        Some((_, found)) => found == start,
        None => has_member(group, run),
    };
    Pid::from_raw(group).filter(|_| is_same && group > 1)
}

/// Returns group and start time of a process; none if it does not run.
fn stat(process: i32) -> Option<(i32, u64)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program comes before, in parentheses, and may hold spaces.
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    Some((fields.get(2)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// Reports whether a process of a group without its first one is of this run.
fn has_member(group: i32, run: &str) -> bool {
    let variable = format!("{VARIABLE}={run}");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut members = numbers.filter(|process| stat(*process).is_some_and(|(of, _)| of == group));
    members.any(|process| {
        let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|found| found == variable.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;
    use crate::{
        process::{Launch, Process},
        testing::TestFolder,
    };

    fn start(script: &str, leftovers: &Leftovers, folder: &Path) -> Process {
        let arguments = ["-c".to_owned(), script.to_owned()];
        let variables = BTreeMap::new();
        let program = Path::new("/bin/sh");
        let launch = Launch { program, arguments: &arguments, variables: &variables, folder };
        let mut process = Process::start(&launch, leftovers).unwrap();
        let lines: crate::process::Lines = Arc::new(|_| {});
        process.read(&lines);
        process
    }

    #[tokio::test]
    async fn what_a_killed_node_left_is_ended_and_nothing_else() {
        let folder = TestFolder::new();
        let path = folder.path().join("processes");
        let leftovers = Leftovers::new(path.clone());
        let mut left = start("trap '' TERM; touch ready; sleep 1000", &leftovers, folder.path());
        let first = fs::read_to_string(&path).unwrap();
        let mut other = start("sleep 1000", &leftovers, folder.path());
        let both = fs::read_to_string(&path).unwrap();
        let second = both.replacen(&first, "", 1);
        while !folder.path().join("ready").exists() {
            tokio::task::yield_now().await;
        }
        // The other one is a process that has got a number of before.
        let kept = folder.path().join("kept");
        fs::write(&kept, format!("{first}{} 1 x\n", second.split(' ').next().unwrap())).unwrap();
        end(&kept).await;
        assert_eq!(left.wait().await.signal, Some(9), "it ignores SIGTERM");
        assert!(tokio::time::timeout(Duration::from_millis(50), other.wait()).await.is_err());
        drop(other);
        drop(left);
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }

    #[tokio::test]
    async fn a_group_whose_first_process_is_gone_is_known_by_its_variable() {
        let folder = TestFolder::new();
        let leftovers = Leftovers::new(folder.path().join("processes"));
        let mut process = start("sleep 1000 & exec sleep 1000", &leftovers, folder.path());
        let text = fs::read_to_string(folder.path().join("processes")).unwrap();
        let mut words = text.split_whitespace();
        let (group, run) = (words.next().unwrap().parse().unwrap(), words.nth(1).unwrap());
        // The first one is known by its own start time, and the members by the variable.
        while !has_member(group, run) {
            tokio::task::yield_now().await;
        }
        assert!(!has_member(group, "another"));
        assert!(super::left(text.trim()).is_some());
        process.signal(Signal::KILL);
        process.wait().await;
        while super::left(text.trim()).is_some() {
            tokio::task::yield_now().await;
        }
    }
}
