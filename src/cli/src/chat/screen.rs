//! Where an answer appears: its text on stdout, what happens besides on stderr, for people only.

use std::io::{self, IsTerminal as _, Write as _};

use super::super::{
    CliError,
    output::{print, print_foreign, sanitize},
};

/// How much of a tool's arguments is shown, in characters.
const MAX_ARGUMENTS: usize = 200;

/// Where an answer appears.
#[derive(Debug)]
pub(super) struct ChatScreen {
    /// Whether somebody watches stderr.
    is_terminal: bool,
    /// Whether that somebody likes colours (<https://no-color.org>).
    colours: bool,
    /// Whether the text ends within a line.
    within_line: bool,
}

impl ChatScreen {
    /// This process's.
    pub(super) fn new() -> Self {
        let watched = io::stderr().is_terminal();
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { is_terminal: watched, colours: watched && !dumb && !refused, within_line: false }
    }

    /// A piece of the answer.
    pub(super) fn text(&mut self, text: &str) -> Result<(), CliError> {
        if !text.is_empty() {
            self.within_line = !text.ends_with('\n');
            print_foreign(text)?;
        }
        Ok(())
    }

    /// Ends the line of the answer.
    pub(super) fn end(&mut self) -> Result<(), CliError> {
        if std::mem::take(&mut self.within_line) { print("\n") } else { Ok(()) }
    }

    /// A tool is called.
    pub(super) fn call(&mut self, name: &str, arguments: &str) -> Result<(), CliError> {
        let short: String = arguments.chars().take(MAX_ARGUMENTS).collect();
        let more = if short.len() < arguments.len() { "…" } else { "" };
        self.aside(&format!("[calls {name} {short}{more}]"))
    }

    /// A tool answered.
    pub(super) fn outcome(&mut self, ok: bool, took_ms: u64) -> Result<(), CliError> {
        self.aside(&format!("[{} after {took_ms} ms]", if ok { "it answered" } else { "it failed" }))
    }

    /// Where the user types.
    pub(super) fn prompt(&self) {
        let _ = write!(io::stderr().lock(), "{}", if self.colours { "\x1b[1m> \x1b[0m" } else { "> " });
    }

    /// A line beside the answer, for people who watch.
    pub(super) fn aside(&mut self, line: &str) -> Result<(), CliError> {
        if !self.is_terminal {
            return Ok(());
        }
        self.end()?;
        let line = sanitize(line);
        let line = if self.colours { format!("\x1b[2m{line}\x1b[0m") } else { line };
        let _ = writeln!(io::stderr().lock(), "{line}");
        Ok(())
    }
}
