//! One child process of the MCP server: its input, its output, its log, and its end.

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
use tokio_util::sync::CancellationToken;

use super::{
    child_log::log,
    command::ServerCommand,
    framing::{Frame, Framer},
    memory::{MemoryBudget, MemoryPermit, NO_ROOM},
    reaper::{Exit, Reaper},
};

/// Largest message of a child, in bytes; common clients take no larger one.
pub(super) const MAX_MESSAGE: usize = 16 << 20;
/// Bytes read at once.
const READ_BUFFER: usize = 16 << 10;
/// Most bytes that are queued for a child that does not read its input; the second bound is for lines that are queued
/// without waiting for room, such as cancellations.
const MAX_QUEUED: usize = 8 << 20;
const MAX_FORCED: usize = 1 << 20;
/// Most bytes of an unfinished message that are held without a permit of the memory budget.
const MAX_UNACCOUNTED: usize = 256 << 10;
/// Sender of lines to the standard input of a child.
///
/// Invariant: the bytes queued by `send` are at most `MAX_QUEUED`, those queued by `force` at most `MAX_FORCED`.
#[derive(Debug, Clone)]
pub(super) struct ChildInput {
    lines: mpsc::UnboundedSender<(Bytes, OwnedSemaphorePermit)>,
    space: Arc<Semaphore>,
    forced: Arc<Semaphore>,
    /// Cancelled once the child takes no input any more.
    unresponsive: CancellationToken,
}

impl ChildInput {
    /// Queues a line, which ends with a line break, as soon as there is room. Returns whether the child's input is
    /// still open.
    pub(super) async fn send(&self, line: Bytes) -> bool {
        let size = u32::try_from(line.len().min(MAX_QUEUED)).unwrap_or(u32::MAX);
        match self.space.clone().acquire_many_owned(size).await {
            Ok(permit) => self.lines.send((line, permit)).is_ok(),
            Err(_) => false,
        }
    }

    /// Queues a short line without waiting. A child for which too many of them are queued does not read, and is given
    /// up.
    pub(super) fn force(&self, line: Bytes) {
        let size = u32::try_from(line.len().min(MAX_FORCED)).unwrap_or(u32::MAX);
        match self.forced.clone().try_acquire_many_owned(size) {
            // A child that has ended needs no line.
            Ok(permit) => drop(self.lines.send((line, permit))),
            Err(_) => self.unresponsive.cancel(),
        }
    }
}

/// Reader of the standard output of a child.
pub(super) struct ChildOutput {
    stdout: ChildStdout,
    buffer: Vec<u8>,
    framer: Framer,
    frames: VecDeque<Frame>,
    memory: MemoryBudget,
    /// Permit of the memory budget for the bytes that the framer holds.
    permit: MemoryPermit,
}

impl ChildOutput {
    /// Returns the next frame; `None` at the end of the output.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Some(frame);
            }
            self.reserve_or_discard();
            let count = self.stdout.read(&mut self.buffer).await.ok().filter(|count| *count > 0)?;
            self.framer.push(&self.buffer[..count], &mut self.frames);
        }
    }

    /// Acquires a permit of the memory budget for the unfinished message that the framer holds, or discards the
    /// message.
    fn reserve_or_discard(&mut self) {
        let wanted = self.framer.buffered().saturating_sub(MAX_UNACCOUNTED);
        if wanted == 0 {
            self.permit = MemoryPermit::default();
        } else if wanted > self.permit.size() {
            // Acquires in large steps, because a message that is large already is likely to grow.
            match self.memory.try_acquire(MAX_UNACCOUNTED) {
                Some(more) => self.permit.merge(more),
                None => self.framer.discard(),
            }
        }
    }
}

/// A child process, which leads a process group of its own.
pub(super) struct ChildProcess {
    pid: Option<Pid>,
    ended: oneshot::Receiver<Exit>,
    exit: Option<Exit>,
    writer: JoinHandle<()>,
    unresponsive: CancellationToken,
}

/// Starts a child; `name` identifies it in the log.
///
/// # Errors
/// The system cannot start the process.
pub(super) fn start(
    command: &ServerCommand,
    reaper: &Reaper,
    memory: &MemoryBudget,
    name: &str,
) -> io::Result<(ChildInput, ChildOutput, ChildProcess)> {
    let (mut child, ended) = reaper.spawn(|| command.start())?;
    let missing = || io::Error::other("a pipe is missing");
    let stdin = ChildStdin::from_std(child.stdin.take().ok_or_else(missing)?)?;
    let stdout = ChildStdout::from_std(child.stdout.take().ok_or_else(missing)?)?;
    let stderr = ChildStderr::from_std(child.stderr.take().ok_or_else(missing)?)?;
    let pid = pid(&child);
    tracing::info!(child = name, pid = child.id(), "started");
    let (lines, waiting) = mpsc::unbounded_channel();
    let space = Arc::new(Semaphore::new(MAX_QUEUED));
    let unresponsive = CancellationToken::new();
    let writer = tokio::spawn(write(stdin, waiting, space.clone(), unresponsive.clone()));
    tokio::spawn(log(stderr, name.to_owned()));
    let output = ChildOutput {
        stdout,
        buffer: vec![0; READ_BUFFER],
        framer: Framer::new(MAX_MESSAGE),
        frames: VecDeque::new(),
        memory: memory.clone(),
        permit: MemoryPermit::default(),
    };
    let input =
        ChildInput { lines, space, forced: Arc::new(Semaphore::new(MAX_FORCED)), unresponsive: unresponsive.clone() };
    Ok((input, output, ChildProcess { pid, ended, exit: None, writer, unresponsive }))
}

/// Returns the error text for a message over [`MAX_MESSAGE`], or one for which the memory budget has no room.
pub(super) fn too_large_message() -> String {
    let most = MAX_MESSAGE >> 20;
    format!("the MCP server wrote a message of more than {most} MiB, which is not passed on, or {NO_ROOM}")
}

fn pid(child: &process::Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

impl ChildProcess {
    /// Returns the token that is cancelled once the child has closed its input or does not read it, and so answers no
    /// request any more.
    pub(super) fn unresponsive(&self) -> CancellationToken {
        self.unresponsive.clone()
    }

    /// Waits until the process has ended and returns its exit.
    pub(super) async fn exit(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        // The reaper reports every exit; without a reaper there is nothing to wait for.
        let exit = (&mut self.ended).await.unwrap_or(Exit::Status(-1));
        self.exit = Some(exit);
        exit
    }

    /// Ends the process as MCP prescribes: closes its input, then sends SIGTERM, then SIGKILL, and waits for `patience`
    /// after each of the first two. Processes that it left in its group are killed, too.
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
            // Fails if the group is empty, which is fine.
            let _ = kill_process_group(pid, signal);
        }
    }
}

/// Writes the queued lines to the child, as many as there are at once.
async fn write(
    mut stdin: ChildStdin,
    mut waiting: mpsc::UnboundedReceiver<(Bytes, OwnedSemaphorePermit)>,
    space: Arc<Semaphore>,
    unresponsive: CancellationToken,
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
    unresponsive.cancel();
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_child_that_lets_everything_wait_is_given_up() {
        let (lines, mut waiting) = mpsc::unbounded_channel();
        let unresponsive = CancellationToken::new();
        let (space, forced) = (Arc::new(Semaphore::new(MAX_QUEUED)), Arc::new(Semaphore::new(MAX_FORCED)));
        let input = ChildInput { lines, space, forced, unresponsive: unresponsive.clone() };
        let line = Bytes::from(vec![b'x'; MAX_FORCED / 4]);
        (0..4).for_each(|_| input.force(line.clone()));
        assert!(waiting.recv().now_or_never().is_some(), "it reads");
        input.force(line.clone());
        assert!(!unresponsive.is_cancelled());
        input.force(line);
        assert!(unresponsive.is_cancelled());
        assert!(std::iter::from_fn(|| waiting.recv().now_or_never().flatten()).count() <= 4);
    }
}
