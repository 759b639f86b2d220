//! The screen: events as lines, or as JSON. A thread of its own writes, so that a terminal that stands still holds up nothing; lines of
//! programs for which it has no room are left out, and stay in the logs.

mod event;
mod selection;

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    time::Duration,
};

pub(crate) use event::Event;
use node::{Output, Source, readable};
pub(crate) use selection::OutputSelection;
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use crate::{args::EventFormat, part::Part};

/// Lines that wait for the terminal.
const BUFFERED: usize = 4096;
/// Longest wait for the terminal at the end, and the interval of attempts.
const FINISH: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);
/// Colours of names before lines of programs: those that can be read on dark and on light.
const COLOURS: [u8; 5] = [36, 33, 32, 35, 34];

/// Screen of this process. Clones write to the same one.
#[derive(Clone)]
pub(crate) struct Screen {
    /// Lines; none at the end.
    lines: SyncSender<Option<String>>,
    shared: Arc<ScreenState>,
}

struct ScreenState {
    format: EventFormat,
    coloured: bool,
    selection: OutputSelection,
    /// Width of the widest name so far.
    width: AtomicUsize,
    left_out: AtomicU64,
}

/// Receiver of the end of the writing thread, which then has written everything.
pub(crate) struct ScreenWriter(oneshot::Receiver<()>);

/// Form and place of the screen.
#[derive(Debug, Clone)]
pub(crate) struct ScreenStyle {
    /// Lines, or JSON.
    pub(crate) format: EventFormat,
    /// Programs whose output is shown.
    pub(crate) selection: OutputSelection,
    /// Writes to stderr: stdout belongs to a command.
    pub(crate) to_stderr: bool,
}

impl Screen {
    /// Starts to write.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn start(style: ScreenStyle) -> io::Result<(Self, ScreenWriter)> {
        let ScreenStyle { format, selection, to_stderr } = style;
        let is_terminal = if to_stderr { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let coloured = is_terminal && !plain && format == EventFormat::Plain;
        let (lines, waiting) = sync_channel(BUFFERED);
        let (written, writer) = oneshot::channel();
        let write = move || {
            write(&waiting, to_stderr);
            // The receiver is gone if this process did not wait.
            let _ = written.send(());
        };
        std::thread::Builder::new().name("screen".to_owned()).spawn(write)?;
        let shared =
            ScreenState { format, coloured, selection, width: AtomicUsize::new(0), left_out: AtomicU64::new(0) };
        Ok((Self { lines, shared: Arc::new(shared) }, ScreenWriter(writer)))
    }

    /// Shows an event.
    pub(crate) fn show(&self, event: &Event) {
        let line = self.render(event);
        let left_out = self.shared.left_out.swap(0, Relaxed);
        let line = match left_out {
            0 => line,
            count => format!(
                "{}\n{line}",
                self.render(&Event::Note(format!("{count} lines are left out here: see the logs")))
            ),
        };
        if let Err(TrySendError::Full(_)) = self.lines.try_send(Some(line)) {
            self.shared.left_out.fetch_add(left_out + 1, Relaxed);
        }
    }

    /// Shows a note.
    pub(crate) fn note(&self, text: impl Into<String>) {
        self.show(&Event::Note(text.into()));
    }

    /// Shows what is wrong.
    pub(crate) fn problem(&self, text: impl Into<String>) {
        self.show(&Event::Problem(text.into()));
    }

    /// Shows a line of a part, if it is selected.
    pub(crate) fn part_line(&self, part: Part, text: &str) {
        if self.shared.selection.has_part(part) {
            self.show(&Event::Line {
                name: part.name().to_owned(),
                namespace: crate::platform::NAMESPACE.to_owned(),
                pod: part.full_name().to_owned(),
                container: part.name().to_owned(),
                text: readable(text).into_owned(),
            });
        }
    }

    fn render(&self, event: &Event) -> String {
        let shared = &self.shared;
        if shared.format == EventFormat::Json {
            return event.json().to_string();
        }
        let width = match event {
            Event::Line { name, .. } => shared.width.fetch_max(name.chars().count(), Relaxed).max(name.chars().count()),
            _ => 0,
        };
        let text = printable(&event.text(width));
        match event {
            Event::Line { name, .. } if shared.coloured => {
                let (name, rest) = text.split_at_checked(name.len()).unwrap_or((&text, ""));
                format!("\x1b[{}m{name}\x1b[0m{rest}", colour(name))
            }
            Event::Problem(_) if shared.coloured => format!("\x1b[31m{text}\x1b[0m"),
            _ => text,
        }
    }
}

impl ScreenWriter {
    /// Waits until everything is written, but not for a terminal that stands still.
    pub(crate) async fn finish(self, screen: &Screen) {
        let finished = async {
            while let Err(TrySendError::Full(_)) = screen.lines.try_send(None) {
                sleep(POLL).await;
            }
            // An error means that the thread is gone.
            let _ = self.0.await;
        };
        let _ = timeout(FINISH, finished).await;
    }
}

fn write(lines: &Receiver<Option<String>>, to_stderr: bool) {
    let mut failed = false;
    while let Ok(Some(line)) = lines.recv() {
        let line = line + "\n";
        // A terminal that was closed, or a pipe that is not read any more, is no reason to end the programs.
        if !failed {
            let written = match to_stderr {
                true => io::stderr().write_all(line.as_bytes()),
                false => io::stdout().lock().write_all(line.as_bytes()).and_then(|()| io::stdout().flush()),
            };
            failed = written.is_err();
        }
    }
}

/// Returns the colour of a name: always the same one.
fn colour(name: &str) -> u8 {
    let name = name.split('#').next().unwrap_or(name);
    let sum = name.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    COLOURS.get(sum % COLOURS.len()).copied().unwrap_or(COLOURS[0])
}

/// Replaces what could steer a terminal, but for tabs: a program may print what others wrote.
fn printable(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() && !"\t\n".contains(character) { '\u{fffd}' } else { character })
        .collect()
}

impl Output for Screen {
    fn line(&self, source: &Source, text: &str) {
        if self.shared.selection.has(source) {
            self.show(&Event::Line {
                name: numbered(source),
                namespace: source.namespace.clone(),
                pod: source.pod.clone(),
                container: source.container.clone(),
                text: readable(text).into_owned(),
            });
        }
    }

    fn note(&self, source: &Source, text: &str) {
        self.problem(format!("{}: {text}", numbered(source)));
    }
}

/// Returns the name of a workload, with the number of the Pod if it is not the first.
fn numbered(source: &Source) -> String {
    match source.index {
        0 | 1 => format!("{}/{}", source.kind, source.name),
        index => format!("{}/{}#{index}", source.kind, source.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_replaced() {
        assert_eq!(printable("a\tb\n\x1b[2Jc\r"), "a\tb\n\u{fffd}[2Jc\u{fffd}");
    }

    #[test]
    fn a_name_keeps_its_colour() {
        assert_eq!(colour("agent/a"), colour("agent/a#2"));
        assert!(COLOURS.contains(&colour("")));
    }
}
