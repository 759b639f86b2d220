//! Errors in prompts, and in their inputs.

/// Error: a text is not a prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
pub struct PromptError {
    /// Line in the text, from 1, if it is known.
    pub line: Option<usize>,
    /// Problem and correction.
    pub message: String,
}

impl PromptError {
    pub(super) fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), message: message.into() }
    }
}

/// Error: a prompt cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The input is wrong: the caller's mistake. It quotes no value of the input.
    #[error("{0}")]
    Input(String),
    /// The template cannot be rendered with this input: the prompt's mistake.
    #[error("prompt `{prompt}`: {message}")]
    Template {
        /// Name of the prompt.
        prompt: String,
        /// Problem.
        message: String,
    },
}
