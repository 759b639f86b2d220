//! Exit codes of the commands: the only list of them, from which `recif --help` and `docs/cli.md` are made.

use std::{fmt::Write, process::ExitCode};

/// Exit code of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command did what was requested.
    Done = 0,
    /// The command failed for a reason without a code of its own.
    Failed = 1,
    /// The command line cannot be used; clap has the same code.
    Usage = 2,
    /// The object exists and is not Ready.
    NotReady = 3,
    /// The object does not exist.
    Missing = 4,
    /// The caller lacks the right, or is not authenticated.
    Forbidden = 5,
    /// A server cannot be reached, or is not installed.
    Unreachable = 6,
    /// The wait timed out.
    TimedOut = 7,
    /// The import would lose something.
    Lossy = 8,
    /// Stopped by Ctrl-C: 128 plus the number of the signal, as in shells.
    Interrupted = 130,
}

impl Exit {
    /// All exit codes, in the order in which they are listed.
    pub const ALL: [Self; 10] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::NotReady,
        Self::Missing,
        Self::Forbidden,
        Self::Unreachable,
        Self::TimedOut,
        Self::Lossy,
        Self::Interrupted,
    ];

    /// Returns the meaning of the code, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done; of why: the object is Ready, or all is as it should be",
            Self::Failed => "failed for another reason than those below",
            Self::Usage => "invalid usage",
            Self::NotReady => "the object is not Ready, or one of several; of doctor: a check failed",
            Self::Missing => "object not found",
            Self::Forbidden => "you may not do this, or are not signed in",
            Self::Unreachable => "the cluster, the gateway or the control plane cannot be reached or is not installed",
            Self::TimedOut => "not done within --timeout",
            Self::Lossy => "of import --strict: something has no counterpart, and nothing is printed",
            Self::Interrupted => "stopped by Ctrl-C",
        }
    }

    /// Returns the list for the end of a help text.
    pub fn table() -> String {
        Self::ALL.iter().fold("Exit codes:\n".to_owned(), |mut text, code| {
            let _ = writeln!(text, "  {:>3}  {}", *code as u8, code.meaning());
            text
        })
    }
}

impl From<Exit> for ExitCode {
    fn from(code: Exit) -> Self {
        Self::from(code as u8)
    }
}
