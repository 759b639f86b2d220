//! What is wrong with a file of the contract, and where.

use std::fmt;

/// Something that cannot be served. Problems are collected, so that one look shows all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlowProblem {
    /// The file, below the contract's folder.
    pub(super) file: String,
    /// The line, from 1, where it can be told.
    pub(super) line: Option<usize>,
    /// What is wrong and what to do, without a credential.
    pub(super) text: String,
}

impl FlowProblem {
    /// A problem of a whole file.
    pub(super) fn new(file: impl Into<String>, text: impl Into<String>) -> Self {
        Self { file: file.into(), line: None, text: text.into() }
    }

    /// A problem in a line.
    pub(super) fn at(file: impl Into<String>, line: usize, text: impl Into<String>) -> Self {
        Self { file: file.into(), line: Some(line), text: text.into() }
    }

    /// What serde says, with its line where it has one.
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

/// The first line of `text` that has `part`, from 1.
pub(super) fn line_of(text: &str, part: &str) -> Option<usize> {
    text.lines().position(|line| line.contains(part)).map(|index| index + 1)
}

/// All of `problems` in one line.
pub(super) fn join_problems(problems: &[FlowProblem]) -> String {
    problems.iter().map(FlowProblem::to_string).collect::<Vec<_>>().join("; ")
}
