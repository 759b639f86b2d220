//! Prints a reply: its text on stdout, other events on stderr, on terminals only.

use std::io::{self, IsTerminal as _, Write as _};

use crate::{
    error::CliError,
    output::{print, print_foreign, sanitize},
};

/// Most characters shown of a tool's arguments.
const MAX_ARGUMENTS: usize = 200;

/// Printer of a reply.
#[derive(Debug)]
pub(super) struct ChatScreen {
    /// Set if stderr is a terminal.
    is_terminal: bool,
    /// Set if the terminal shows colours and the user has not turned them off (<https://no-color.org>).
    colours: bool,
    /// Set if the text printed so far ends within a line.
    within_line: bool,
}

impl ChatScreen {
    /// Returns the printer of this process.
    pub(super) fn new() -> Self {
        let watched = io::stderr().is_terminal();
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { is_terminal: watched, colours: watched && !dumb && !refused, within_line: false }
    }

    /// Prints a chunk of the reply.
    pub(super) fn text(&mut self, text: &str) -> Result<(), CliError> {
        if !text.is_empty() {
            self.within_line = !text.ends_with('\n');
            print_foreign(text)?;
        }
        Ok(())
    }

    /// Ends the line of the reply.
    pub(super) fn end(&mut self) -> Result<(), CliError> {
        if std::mem::take(&mut self.within_line) { print("\n") } else { Ok(()) }
    }

    /// Prints the call of a tool.
    pub(super) fn call(&mut self, name: &str, arguments: &str) -> Result<(), CliError> {
        let short: String = arguments.chars().take(MAX_ARGUMENTS).collect();
        let more = if short.len() < arguments.len() { "…" } else { "" };
        self.aside(&format!("[calls {name} {short}{more}]"))
    }

    /// Prints the result of a tool.
    pub(super) fn outcome(&mut self, ok: bool, took_ms: u64) -> Result<(), CliError> {
        self.aside(&format!("[{} after {took_ms} ms]", if ok { "it answered" } else { "it failed" }))
    }

    /// Prints the prompt for the user's input.
    pub(super) fn prompt(&self) {
        let _ = write!(io::stderr().lock(), "{}", if self.colours { "\x1b[1m> \x1b[0m" } else { "> " });
    }

    /// Prints a line on stderr, on a terminal or not.
    pub(super) fn note(&mut self, line: &str) -> Result<(), CliError> {
        if self.is_terminal {
            return self.aside(line);
        }
        self.end()?;
        let _ = writeln!(io::stderr().lock(), "{}", sanitize(line));
        Ok(())
    }

    /// Prints a line on stderr, if that is a terminal.
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
