//! One process of a container: it leads a process group of its own, and its output is always read.

use std::{
    collections::BTreeMap,
    io,
    os::{fd::AsFd, unix::process::ExitStatusExt as _},
    path::Path,
    process::{ExitStatus, Stdio},
    sync::Arc,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
    task::{JoinSet, yield_now},
};
use tokio_util::sync::CancellationToken;

use crate::leftovers::{Leftovers, Registration};

/// Longest line that is kept as one, in bytes.
const MAX_LINE: usize = 64 * 1024;
/// Bytes that are read at once.
const BUFFER: usize = 16 * 1024;

/// Receiver of the lines of a process.
pub(crate) type Lines = Arc<dyn Fn(&str) + Send + Sync>;

/// Program to start, with all that it gets.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [String],
    /// All variables: none is inherited.
    pub(crate) variables: &'a BTreeMap<String, String>,
    /// Folder in which it runs.
    pub(crate) folder: &'a Path,
}

/// Exit status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessExit {
    /// Exit code: 128 and the signal if a signal ended it, as in containers.
    pub(crate) code: i32,
    /// The signal.
    pub(crate) signal: Option<i32>,
}

impl From<ExitStatus> for ProcessExit {
    fn from(status: ExitStatus) -> Self {
        let signal = status.signal();
        Self { code: status.code().unwrap_or_else(|| 128 + signal.unwrap_or_default()), signal }
    }
}

/// A running process. Dropping it kills its group.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    group: Option<Pid>,
    readers: JoinSet<()>,
    /// Cancelled when no more output of the process will come.
    has_ended: CancellationToken,
    exit: Option<ProcessExit>,
    /// Keeps the group in the list of what a killed node leaves.
    _registration: Option<Registration>,
}

impl Process {
    /// Starts a process. Its output is read from [`Process::read`] on.
    ///
    /// # Errors
    /// The system cannot start it.
    pub(crate) fn start(launch: &Launch<'_>, leftovers: &Leftovers) -> io::Result<Self> {
        let mut command = Command::new(launch.program);
        command.args(launch.arguments).current_dir(launch.folder).process_group(0).kill_on_drop(true);
        command.env_clear().envs(launch.variables).env(leftovers.variable().0, leftovers.variable().1);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let registration = group.map(|group| leftovers.register(group));
        let (readers, has_ended) = (JoinSet::new(), CancellationToken::new());
        Ok(Self { child, group, readers, has_ended, exit: None, _registration: registration })
    }

    /// Passes on its lines from now on.
    pub(crate) fn read(&mut self, lines: &Lines) {
        if let Some(output) = self.child.stdout.take() {
            self.readers.spawn(read_lines(output, lines.clone(), self.has_ended.clone()));
        }
        if let Some(output) = self.child.stderr.take() {
            self.readers.spawn(read_lines(output, lines.clone(), self.has_ended.clone()));
        }
    }

    /// Waits until the process has ended, ends what it left in its group, and reads what it has written, but not what another
    /// process writes that has its output, too. May be cancelled and called again.
    pub(crate) async fn wait(&mut self) -> ProcessExit {
        if let Some(exit) = self.exit {
            return exit;
        }
        // Fails only if the process was reaped by another part of this program; then it has ended, too.
        let status = self.child.wait().await;
        // In a container all processes end with the first one.
        self.signal(Signal::KILL);
        self.has_ended.cancel();
        while self.readers.join_next().await.is_some() {}
        let exit = status.map_or(ProcessExit { code: 255, signal: None }, ProcessExit::from);
        self.exit = Some(exit);
        exit
    }

    /// Sends a signal to the group.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Fails if the group is empty, which is fine.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Once it has been waited for, its number may be another group's.
        if self.exit.is_none() {
            self.signal(Signal::KILL);
        }
    }
}

/// Passes on each line of an output; the last one may have no line break.
async fn read_lines(mut output: impl AsyncRead + AsFd + Unpin, lines: Lines, has_ended: CancellationToken) {
    let mut buffer = vec![0; BUFFER];
    let mut line = Vec::new();
    loop {
        let read = tokio::select! {
            biased;
            () = has_ended.cancelled() => break,
            read = output.read(&mut buffer) => read,
        };
        match read {
            Ok(count @ 1..) => pass_all(&buffer[..count], &mut line, &lines),
            // Fails as an output that ends.
            _ => break,
        }
    }
    // The pipe holds all output of the process, even if the runtime has not read it. Later output is of another process.
    let mut rest = rustix::io::ioctl_fionread(&output).map_or(0, |count| usize::try_from(count).unwrap_or_default());
    while rest > 0 {
        let most = rest.min(BUFFER);
        let Ok(count @ 1..) = rustix::io::read(&output, &mut buffer[..most]) else { break };
        pass_all(&buffer[..count], &mut line, &lines);
        rest -= count;
        yield_now().await;
    }
    if !line.is_empty() {
        pass(&mut line, &lines);
    }
}

/// Passes on the lines that end in these bytes, and keeps what is left of them.
fn pass_all(bytes: &[u8], line: &mut Vec<u8>, lines: &Lines) {
    for part in bytes.split_inclusive(|byte| *byte == b'\n') {
        line.extend_from_slice(part);
        if line.ends_with(b"\n") || line.len() >= MAX_LINE {
            pass(line, lines);
        }
    }
}

fn pass(line: &mut Vec<u8>, lines: &Lines) {
    let text = String::from_utf8_lossy(line);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    lines(text.strip_suffix('\r').unwrap_or(text));
    line.clear();
}

#[cfg(test)]
mod tests;
