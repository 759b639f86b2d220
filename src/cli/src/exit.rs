//! How a command ends: the one list of exit codes, from which `recif --help` and the README tell them.

use std::{fmt::Write, process::ExitCode};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It did what it was asked.
    Done = 0,
    /// It failed for a reason that has no code of its own.
    Failed = 1,
    /// The command line cannot be used; clap has this code too.
    Usage = 2,
    /// The object is there and is not Ready.
    NotReady = 3,
    /// There is no such object.
    Missing = 4,
    /// The caller may not, or nobody knows who he is.
    Forbidden = 5,
    /// A server cannot be reached, or is not installed.
    Unreachable = 6,
    /// It waited as long as it was told to.
    TimedOut = 7,
    /// Somebody pressed Ctrl-C: 128 and the number of the signal, as shells count.
    Interrupted = 130,
}

impl Exit {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::NotReady,
        Self::Missing,
        Self::Forbidden,
        Self::Unreachable,
        Self::TimedOut,
        Self::Interrupted,
    ];

    /// What it says, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done; of why: the object is Ready",
            Self::Failed => "failed for another reason than those below",
            Self::Usage => "invalid usage",
            Self::NotReady => "the object is not Ready",
            Self::Missing => "there is no such object",
            Self::Forbidden => "you may not do this, or are not signed in",
            Self::Unreachable => "the cluster, the gateway or the control plane cannot be reached or is not installed",
            Self::TimedOut => "not done within --timeout",
            Self::Interrupted => "stopped by Ctrl-C",
        }
    }

    /// The list, for the end of a help text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_the_list() {
        let readme = include_str!("../../../README.md");
        for code in Exit::ALL {
            let row = format!("| {} | {} |", code as u8, code.meaning());
            assert!(readme.contains(&row), "the README lacks: {row}");
        }
    }
}
