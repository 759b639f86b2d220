//! Problems of the contract's files, with their location.

use std::fmt;

/// Reason why a flow cannot be served. Problems are collected, so that the user sees all of them at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlowProblem {
    /// Path of the file, relative to the contract's folder.
    pub(super) file: String,
    /// Line, from 1, if known.
    pub(super) line: Option<usize>,
    /// Problem and remedy, without any credential.
    pub(super) text: String,
}

impl FlowProblem {
    /// Creates a problem of a whole file.
    pub(super) fn new(file: impl Into<String>, text: impl Into<String>) -> Self {
        Self { file: file.into(), line: None, text: text.into() }
    }

    /// Creates a problem at a line.
    pub(super) fn at(file: impl Into<String>, line: usize, text: impl Into<String>) -> Self {
        Self { file: file.into(), line: Some(line), text: text.into() }
    }

    /// Converts an error of serde, with its line if it has one.
    pub(super) fn json(file: impl Into<String>, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let end = text.rfind(" at line ").unwrap_or(text.len());
        Self { file: file.into(), line: Some(error.line()).filter(|line| *line > 0), text: text[..end].into() }
    }
}

impl fmt::Display for FlowProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.text),
            None => write!(f, "{}: {}", self.file, self.text),
        }
    }
}

/// Returns the number of the first line of `text` that contains `part`, from 1.
pub(super) fn line_of(text: &str, part: &str) -> Option<usize> {
    text.lines().position(|line| line.contains(part)).map(|index| index + 1)
}

/// Joins `problems` into one line.
pub(super) fn join_problems(problems: &[FlowProblem]) -> String {
    problems.iter().map(FlowProblem::to_string).collect::<Vec<_>>().join("; ")
}
