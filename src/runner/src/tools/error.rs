//! Says why a tool gave no result.

use std::time::Duration;

/// A call that gave no answer. The text is for the model.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ToolError {
    /// No tool has this name; those that there are.
    #[error("there is no tool `{0}`; there are: {1}")]
    Unknown(String, String),
    /// The arguments do not fit the tool's parameters.
    #[error("wrong arguments: {0}")]
    Arguments(String),
    /// The call is not allowed.
    #[error("refused: {0}")]
    Refused(String),
    /// The tool was called and did not succeed.
    #[error("{0}")]
    Failed(String),
    /// The tool took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
}
