//! Errors of tool calls.

use std::time::Duration;

/// Failure of a tool call. The text is for the model.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ToolError {
    /// No tool has this name; with the names of all tools.
    #[error("unknown tool `{0}`; known tools: {1}")]
    Unknown(String, String),
    /// The arguments do not match the tool's parameters.
    #[error("wrong arguments: {0}")]
    Arguments(String),
    /// The call is not allowed.
    #[error("refused: {0}")]
    Refused(String),
    /// The tool was called and failed.
    #[error("{0}")]
    Failed(String),
    /// The tool did not respond in time.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
}

impl ToolError {
    /// Returns the kind of the failure in a word.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Unknown(..) | Self::Arguments(_) | Self::Failed(_) => "tool_error",
            Self::Refused(_) => "refused",
            Self::Timeout(_) => "timeout",
        }
    }
}
