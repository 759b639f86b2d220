//! One process of the server: its input, its output, its log, and its end.

use std::{collections::VecDeque, io, process, sync::Arc, time::Duration};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStderr, ChildStdin, ChildStdout},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

use super::{
    command::Command,
    framing::{Frame, Framer},
    reaper::{Exit, Reaper},
};

/// Largest message of a child, in bytes; common clients take no larger one.
pub(super) const LARGEST: usize = 16 << 20;
/// Bytes read at once.
const READ: usize = 16 << 10;
/// What may wait for a child that does not read, in bytes.
const WAITING: usize = 8 << 20;
/// Longest line of a child's log, in bytes.
const LINE: usize = 8 << 10;

/// Where messages for a child go in.
#[derive(Debug, Clone)]
pub(super) struct Input {
    lines: mpsc::UnboundedSender<(Bytes, Option<OwnedSemaphorePermit>)>,
    space: Arc<Semaphore>,
}

impl Input {
    /// Puts a line in as soon as there is room for it; says whether anybody will read it. It brings its own line break.
    pub(super) async fn send(&self, line: Bytes) -> bool {
        let size = u32::try_from(line.len().min(WAITING)).unwrap_or(u32::MAX);
        match self.space.clone().acquire_many_owned(size).await {
            Ok(permit) => self.lines.send((line, Some(permit))).is_ok(),
            Err(_) => false,
        }
    }

    /// Puts a short line in without waiting.
    pub(super) fn force(&self, line: Bytes) {
        // A child that ended misses nothing.
        let _ = self.lines.send((line, None));
    }
}

/// What a child writes.
pub(super) struct Output {
    stdout: ChildStdout,
    buffer: Vec<u8>,
    framer: Framer,
    found: VecDeque<Frame>,
}

impl Output {
    /// What it wrote next; none at the end.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.found.pop_front() {
                return Some(frame);
            }
            let count = self.stdout.read(&mut self.buffer).await.ok().filter(|count| *count > 0)?;
            self.framer.push(&self.buffer[..count], &mut self.found);
        }
    }
}

/// A process and the group that it leads.
pub(super) struct Process {
    pid: Option<Pid>,
    ended: oneshot::Receiver<Exit>,
    exit: Option<Exit>,
    writer: JoinHandle<()>,
}

/// Starts a child; `name` tells it in the log.
///
/// # Errors
/// The system does not start it.
pub(super) fn start(command: &Command, reaper: &Reaper, name: &str) -> io::Result<(Input, Output, Process)> {
    let (mut child, ended) = reaper.spawn(|| command.start())?;
    let missing = || io::Error::other("a pipe is missing");
    let stdin = ChildStdin::from_std(child.stdin.take().ok_or_else(missing)?)?;
    let stdout = ChildStdout::from_std(child.stdout.take().ok_or_else(missing)?)?;
    let stderr = ChildStderr::from_std(child.stderr.take().ok_or_else(missing)?)?;
    let pid = pid(&child);
    tracing::info!(child = name, pid = child.id(), "started");
    let (lines, waiting) = mpsc::unbounded_channel();
    let space = Arc::new(Semaphore::new(WAITING));
    let writer = tokio::spawn(write(stdin, waiting, space.clone()));
    tokio::spawn(log(stderr, name.to_owned()));
    let output = Output { stdout, buffer: vec![0; READ], framer: Framer::new(LARGEST), found: VecDeque::new() };
    Ok((Input { lines, space }, output, Process { pid, ended, exit: None, writer }))
}

/// Tells that a child writes what is no message.
pub(super) fn tell_noise(name: &str, noise: &[u8]) {
    let beginning = &noise[..noise.len().min(200)];
    tracing::warn!(child = name, "not a message: {}", String::from_utf8_lossy(beginning).trim_end());
}

/// What is said of a message over [`LARGEST`].
pub(super) fn too_large() -> String {
    format!("the MCP server wrote a message of more than {} MiB, which is not passed on", LARGEST >> 20)
}

fn pid(child: &process::Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

impl Process {
    /// How it ended, once it did.
    pub(super) async fn exit(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        // The reaper tells everybody; without it there is nothing to wait for.
        let exit = (&mut self.ended).await.unwrap_or(Exit::Status(-1));
        self.exit = Some(exit);
        exit
    }

    /// Ends it as the protocol says: by closing its input, then by SIGTERM, then by SIGKILL, with `patience` after each of
    /// the first two. What it left in its group ends with it.
    pub(super) async fn end(mut self, patience: Duration) -> Exit {
        self.writer.abort();
        if timeout(patience, self.exit()).await.is_err() {
            self.signal(Signal::TERM);
            if timeout(patience, self.exit()).await.is_err() {
                self.signal(Signal::KILL);
            }
        }
        let exit = self.exit().await;
        self.signal(Signal::KILL);
        exit
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // An empty group is no group.
            let _ = kill_process_group(pid, signal);
        }
    }
}

/// Writes what waits, as much as there is at once.
async fn write(
    mut stdin: ChildStdin,
    mut waiting: mpsc::UnboundedReceiver<(Bytes, Option<OwnedSemaphorePermit>)>,
    space: Arc<Semaphore>,
) {
    let mut lines = Vec::new();
    while waiting.recv_many(&mut lines, 64).await > 0 {
        let sent = match &lines[..] {
            [(line, _)] => stdin.write_all(line).await,
            several => stdin.write_all(&several.iter().flat_map(|(line, _)| line).copied().collect::<Vec<_>>()).await,
        };
        if sent.is_err() {
            break;
        }
        lines.clear();
    }
    space.close();
}

/// Passes a child's log on, line by line.
async fn log(mut stderr: ChildStderr, name: String) {
    let mut buffer = vec![0; 4 << 10];
    let mut line = Vec::new();
    let tell = |line: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(line);
        if !text.trim().is_empty() {
            tracing::info!(child = name, "{}", text.trim_end());
        }
        line.clear();
    };
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        for byte in &buffer[..count] {
            if *byte == b'\n' || line.len() == LINE {
                tell(&mut line);
            }
            if *byte != b'\n' {
                line.push(*byte);
            }
        }
    }
    tell(&mut line);
}
