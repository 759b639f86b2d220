//! Logs of containers: the last lines of the instance that runs and of the one before, in memory.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use tokio::sync::watch;

use crate::log_files::{LogFile, LogFiles};

/// Lines that are kept of an instance.
const KEPT: usize = 1000;

/// Logs of all containers. Clones share them.
#[derive(Clone)]
pub struct Logs(Arc<ContainerLogs>);

struct ContainerLogs {
    containers: Mutex<HashMap<LogKey, Arc<ContainerLog>>>,
    files: LogFiles,
}

/// Namespace, Pod and container.
type LogKey = (String, String, String);

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs").finish_non_exhaustive()
    }
}

impl Logs {
    /// Makes logs whose lines are also written to files below a folder.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self(Arc::new(ContainerLogs { containers: Mutex::default(), files: LogFiles::new(folder) }))
    }

    /// Adds a line to the log of a container that is no process of the node, such as a part of this process. Its file is named
    /// by the Pod and the container.
    pub fn push(&self, namespace: &str, pod: &str, container: &str, line: &str) {
        let log = self.container(namespace, pod, container, || format!("{pod}-{container}"));
        log.begin_if_new();
        log.push(line);
    }

    /// Returns the log of a container; `file` is the name of its file, which containers may share.
    pub(crate) fn container(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        file: impl FnOnce() -> String,
    ) -> Arc<ContainerLog> {
        let key = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        let mut containers = self.0.containers.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || Arc::new(ContainerLog::new(pod, Some(self.0.files.open(namespace, &file()))));
        containers.entry(key).or_insert_with(made).clone()
    }

    /// Returns the log of a container, if it has one.
    pub(crate) fn find(&self, namespace: &str, pod: &str, container: &str) -> Option<Arc<ContainerLog>> {
        let key = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        self.0.containers.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Reports whether a Pod has a log.
    pub(crate) fn has_pod(&self, namespace: &str, pod: &str) -> bool {
        let containers = self.0.containers.lock().unwrap_or_else(PoisonError::into_inner);
        containers.keys().any(|(of, name, _)| of == namespace && name == pod)
    }

    /// Forgets the logs of a Pod; those who follow them see their end.
    pub(crate) fn remove_pod(&self, namespace: &str, pod: &str) {
        let mut containers = self.0.containers.lock().unwrap_or_else(PoisonError::into_inner);
        containers.retain(|(of, name, _), log| {
            let is_gone = of == namespace && name == pod;
            if is_gone {
                log.end();
            }
            !is_gone
        });
    }
}

/// One line with its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: Timestamp,
    pub(crate) text: Arc<str>,
}

/// Log of one container.
pub(crate) struct ContainerLog {
    pod: String,
    state: Mutex<LogState>,
    changed: watch::Sender<()>,
    file: Option<Arc<LogFile>>,
}

#[derive(Default)]
struct LogState {
    /// Number of instances that were started.
    instances: u64,
    /// Reason for which the container waits.
    waiting: Option<String>,
    current: Lines,
    previous: Option<Lines>,
    is_over: bool,
}

/// Lines of one instance.
#[derive(Default)]
struct Lines {
    lines: VecDeque<Line>,
    /// Number of the first line that is kept.
    first: u64,
}

/// Cursor in the log of an instance: the next line to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogCursor {
    instance: u64,
    line: u64,
}

/// Instance of which a log is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Instance {
    /// The one that is asked for, from its beginning.
    At(LogCursor),
    /// None was started; the reason for which the container waits.
    NotStarted(Option<String>),
    /// There was none before.
    NoPrevious,
}

impl ContainerLog {
    /// Makes an empty log.
    pub(crate) fn new(pod: &str, file: Option<Arc<LogFile>>) -> Self {
        Self { pod: pod.to_owned(), state: Mutex::default(), changed: watch::Sender::new(()), file }
    }

    fn change<T>(&self, change: impl FnOnce(&mut LogState) -> T) -> T {
        let result = change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_replace(());
        result
    }

    /// Begins the log of another instance.
    pub(crate) fn begin(&self) {
        self.change(|state| {
            if state.instances > 0 {
                state.previous = Some(std::mem::take(&mut state.current));
            }
            state.instances += 1;
            state.waiting = None;
            state.is_over = false;
        });
    }

    fn begin_if_new(&self) {
        let is_new = self.state.lock().unwrap_or_else(PoisonError::into_inner).instances == 0;
        if is_new {
            self.begin();
        }
    }

    /// Ends the log of the instance.
    pub(crate) fn end(&self) {
        self.change(|state| state.is_over = true);
    }

    /// Says why no instance runs.
    pub(crate) fn wait(&self, reason: &str) {
        self.change(|state| state.waiting = Some(reason.to_owned()));
    }

    /// Adds a line.
    pub(crate) fn push(&self, text: &str) {
        let line = Line { at: Timestamp::now(), text: text.into() };
        if let Some(file) = &self.file {
            file.write(&self.pod, line.at, &line.text);
        }
        self.change(|state| {
            let lines = &mut state.current;
            lines.lines.push_back(line);
            if lines.lines.len() > KEPT {
                lines.lines.pop_front();
                lines.first += 1;
            }
        });
    }

    /// Returns the last lines of the instance.
    pub(crate) fn last(&self, count: usize) -> Vec<Line> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = &state.current.lines;
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }

    /// Returns the instance whose log is asked for. Between two attempts the one that ended counts as the one before, too.
    pub(crate) fn instance(&self, previous: bool) -> Instance {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let of_current = !previous || (state.waiting.is_some() && state.instances > 0);
        match (of_current, &state.previous) {
            (true, _) if state.instances == 0 => Instance::NotStarted(state.waiting.clone()),
            (true, _) => Instance::At(LogCursor { instance: state.instances, line: 0 }),
            (false, Some(_)) => Instance::At(LogCursor { instance: state.instances - 1, line: 0 }),
            (false, None) => Instance::NoPrevious,
        }
    }

    /// Returns the lines from a position on, the position behind them, and whether more may come.
    pub(crate) fn read(&self, from: LogCursor) -> (Vec<Line>, LogCursor, bool) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = from.instance == state.instances;
        let is_previous = from.instance + 1 == state.instances;
        let lines = if is_current { Some(&state.current) } else { state.previous.as_ref().filter(|_| is_previous) };
        let Some(lines) = lines else { return (Vec::new(), from, false) };
        let skipped = usize::try_from(from.line.saturating_sub(lines.first)).unwrap_or(usize::MAX);
        let end = lines.first + lines.lines.len() as u64;
        let found = lines.lines.iter().skip(skipped).cloned().collect();
        (found, LogCursor { line: end, ..from }, is_current && !state.is_over)
    }

    /// Returns a receiver that is notified of each change.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(log: &ContainerLog, previous: bool) -> Vec<String> {
        let Instance::At(position) = log.instance(previous) else { panic!("{:?}", log.instance(previous)) };
        log.read(position).0.iter().map(|line| line.text.to_string()).collect()
    }

    #[test]
    fn the_last_lines_of_two_instances_are_kept() {
        let log = ContainerLog::new("p", None);
        assert_eq!(log.instance(false), Instance::NotStarted(None));
        log.wait("CreateContainerError");
        assert_eq!(log.instance(false), Instance::NotStarted(Some("CreateContainerError".to_owned())));
        log.begin();
        (0..KEPT + 2).for_each(|number| log.push(&number.to_string()));
        assert_eq!((texts(&log, false).len(), texts(&log, false)[0].as_str()), (KEPT, "2"));
        assert_eq!(log.instance(true), Instance::NoPrevious);
        log.end();
        log.wait("CrashLoopBackOff");
        assert_eq!(texts(&log, true), texts(&log, false), "it ended, and no other one has started");
        log.begin();
        log.push("second");
        assert_eq!(texts(&log, false), ["second"]);
        assert_eq!(texts(&log, true).len(), KEPT);
        log.begin();
        assert_eq!(texts(&log, true), ["second"]);
    }

    #[test]
    fn a_reader_continues_where_it_was_and_sees_the_end() {
        let log = ContainerLog::new("p", None);
        log.begin();
        log.push("a");
        let Instance::At(position) = log.instance(false) else { panic!() };
        let (_, position, more) = log.read(position);
        assert!(more);
        log.push("b");
        log.end();
        log.begin();
        log.push("c");
        let (lines, position, more) = log.read(position);
        assert_eq!((lines.len(), &*lines[0].text, more), (1, "b", false), "what follows is of another instance");
        log.begin();
        assert_eq!(log.read(position), (Vec::new(), position, false), "two instances later");
    }
}
